package api

import (
	"strings"
	"testing"

	"stint/coordinator/api/wire"
	"stint/ledger"
)

func TestEditRequests(t *testing.T) {
	for _, c := range []struct {
		path, contentType, ifMatch, body string
		status                           int
		want                             string
	}{
		{"aa-2", jsonType, "", `{"label":null}`, 200, `"note":"{\"label\":null}"`},
		{"aa-2", mergePatch, "", `{"label":null}`, 200, `"note":`},
		{"aa-2", mergePatch + "; charset=utf-8", "*", `{}`, 200, `"note":"{}"`},
		{"@last", jsonType, `"42"`, `{}`, 200, `"id":"aa-2"`},
		{"aa-2", jsonType, `"41", "42"`, `{}`, 200, `"id":"aa-2"`},
		{"aa-2", jsonType, `"41"`, `{}`, 412, `"code":"changed"`},
		{"aa-2", jsonType, `W/"42"`, `{}`, 412, "it has changed"},
		{"aa-2", jsonType, `42`, `{}`, 412, ""},
		{"aa-2", jsonType, `"042"`, `{}`, 412, ""},
		{"aa-2", jsonType, `"x"`, `{}`, 412, ""},
		{"zz", jsonType, "", `{}`, 404, "no task zz"},
		{"aa-2", "text/plain", "", `{}`, 415, "application/json"},
		{"aa-2", "application/json-patch+json", "", `{}`, 415, "application/json"},
		{"aa-2", "", "", `{}`, 415, ""},
		{"aa-2", jsonType, "", `{"label":`, 400, "not JSON"},
		{"aa-2", jsonType, "", ``, 400, "body is required"},
		{"aa-2", jsonType, "", "{\"label\":\"\xff\"}", 400, "UTF-8"},
		{"aa-2", jsonType, "", `{"label":"` + strings.Repeat("x", wire.MaxBody) + `"}`, 413, "large"},
	} {
		m := twoTasks(t)
		var headers []string
		if c.ifMatch != "" {
			headers = []string{"If-Match: " + c.ifMatch}
		}
		w := ask(newServer(m, Options{}), "PATCH", "/v1/tasks/"+c.path, c.contentType, c.body, headers...)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
		if w.Code == 200 && (w.Header().Get("ETag") != `"43"` || m.by != ledger.ByClient) {
			t.Errorf("%+v: ETag %s, by %s", c, w.Header().Get("ETag"), m.by)
		}
	}
	if w := ask(newServer(twoTasks(t), Options{}), "POST", "/v1/tasks/aa-2/cancel", mergePatch, "{}"); w.Code != 415 {
		t.Errorf("a patch where none is taken: %d", w.Code)
	}
}

// TestIfMatchLines: each line of the header counts, and one that says nothing is refused:
// who sends it means to be held to what was seen.
func TestIfMatchLines(t *testing.T) {
	for _, c := range []struct {
		lines  []string
		status int
	}{
		{nil, 200},
		{[]string{"*"}, 200},
		{[]string{" * "}, 200},
		{[]string{"*", ""}, 200},
		{[]string{" , *", "\t"}, 200},
		{[]string{"*", `"41"`}, 412},
		{[]string{`"41"`, `"42"`}, 200},
		{[]string{`"42"`, ""}, 200},
		{[]string{"", `"41"`}, 412},
		{[]string{`"41"`, `"40"`}, 412},
		{[]string{`"41" "42"`}, 412},
		{[]string{`""`}, 412},
		{[]string{""}, 422},
		{[]string{" \t"}, 422},
		{[]string{"", ""}, 422},
		{[]string{" , ,"}, 422},
	} {
		m := twoTasks(t)
		var headers []string
		for _, line := range c.lines {
			headers = append(headers, "If-Match: "+line)
		}
		w := ask(newServer(m, Options{}), "PATCH", "/v1/tasks/aa-2", jsonType, `{"label":null}`, headers...)
		if w.Code != c.status || (w.Code == 200) != (m.by != "") {
			t.Errorf("%q: %d %s, by %q", c.lines, w.Code, w.Body, m.by)
		}
		if w.Code == 422 && decode[wire.Problem](t, w.Body.Bytes()).Field != "If-Match" {
			t.Errorf("%q: %s", c.lines, w.Body)
		}
	}
}
