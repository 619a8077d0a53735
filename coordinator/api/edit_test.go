package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
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
		r := httptest.NewRequest(http.MethodPatch, "/v1/tasks/"+c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.contentType)
		if c.ifMatch != "" {
			r.Header.Set("If-Match", c.ifMatch)
		}
		w := httptest.NewRecorder()
		newServer(m, Options{}).ServeHTTP(w, r)
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
	if w := ask(newServer(twoTasks(t), Options{}), "DELETE", "/v1/tasks/aa-2", "", ""); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, PATCH, OPTIONS" {
		t.Errorf("%d, allowed are %s", w.Code, w.Header().Get("Allow"))
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
		{[]string{`""`}, 412},
		{[]string{""}, 422},
		{[]string{" \t"}, 422},
		{[]string{"", ""}, 422},
		{[]string{" , ,"}, 422},
	} {
		m := twoTasks(t)
		r := httptest.NewRequest(http.MethodPatch, "/v1/tasks/aa-2", strings.NewReader(`{"label":null}`))
		r.Header.Set("Content-Type", jsonType)
		r.Header["If-Match"] = c.lines
		w := httptest.NewRecorder()
		newServer(m, Options{}).ServeHTTP(w, r)
		if w.Code != c.status || (w.Code == 200) != (m.by != "") {
			t.Errorf("%q: %d %s, by %q", c.lines, w.Code, w.Body, m.by)
		}
		if w.Code == 422 && decode[wire.Problem](t, w.Body.Bytes()).Field != "If-Match" {
			t.Errorf("%q: %s", c.lines, w.Body)
		}
	}
}

// TestARunEditsNothing: not even a task whose id has the name of a path at which a run
// may POST.
func TestARunEditsNothing(t *testing.T) {
	m := familyOf(t)
	m.add(state.Task{ID: "fix-preview", Status: state.Queued})
	server := newServer(m, Options{})
	for _, ref := range []string{"aa-2", "fix-preview", "preview"} {
		r := httptest.NewRequest(http.MethodPatch, "/v1/tasks/"+ref, strings.NewReader("{}"))
		r.Header.Set("Content-Type", jsonType)
		r.Header.Set(wire.RunHeader, "r-1")
		w := httptest.NewRecorder()
		if server.ServeHTTP(w, r); w.Code != http.StatusForbidden || m.by != "" {
			t.Errorf("%s: %d, by %q", ref, w.Code, m.by)
		}
	}
}

func TestClientEdits(t *testing.T) {
	m := twoTasks(t)
	s := serve(t, m, Options{})
	v, err := s.client.Edit(t.Context(), "aa-2", []byte(`{"label":"x"}`))
	if err != nil || strings.TrimSpace(v.Note) != `{"label":"x"}` {
		t.Errorf("%+v %v", v, err)
	}
	m.err = &task.Error{Code: task.CodeChanged, Message: "m"}
	if _, err = s.client.Edit(t.Context(), "aa-2", []byte(`{}`)); !errors.Is(err, &task.Error{Code: task.CodeChanged}) {
		t.Errorf("%v", err)
	}
}

// TestPatchIsDescribed: with all fields that can be changed, each of which can be null.
func TestPatchIsDescribed(t *testing.T) {
	doc := decode[description](t, ask(newServer(newFake(t), Options{}), "GET", "/v1/openapi.json", "", "").Body.Bytes())
	for _, contentType := range []string{jsonType, mergePatch} {
		patch := doc.resolve(doc.Paths["/v1/tasks/{id}"]["patch"].RequestBody.Content[contentType].Schema)
		for _, name := range task.EditableFields() {
			if field := patch.Properties[name]; !field.is("null") {
				t.Errorf("%s: %s is %v", contentType, name, field.Type)
			}
		}
	}
}
