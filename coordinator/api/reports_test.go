package api

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/session"
	"stint/state"
)

func TestReports(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Done, RunID: "r", OutputFiles: []state.OutputFile{{Path: "out/x", Size: 3}}})
	m.add(state.Task{ID: "b", Status: state.Queued})
	s := newServer(m, Options{})
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
		want               string // in the answer
	}{
		{"GET", "/v1/tasks/a/runs", "", 200, "", `{"runs":[{"runId":"r","number":1,`},
		{"GET", "/v1/tasks/b/runs", "", 200, "", `{"runs":[]}`},
		{"GET", "/v1/tasks/z/runs", "", 404, "", "no task z"},
		{"GET", "/v1/tasks/a/files", "", 200, "", `{"inputs":[],"outputs":[{"name":"out/x","size":3,"runId":"r"}]}`},
		{"GET", "/v1/tasks/a/files?run=2", "", 200, "", `"runId":"r2"`},
		{"GET", "/v1/tasks/z/files", "", 404, "", "no task z"},
		{"GET", "/v1/tasks/z/files/x", "", 404, "", "no task z"},

		{"GET", "/v1/accounts", "", 200, "", `{"accounts":[{"name":"codex","hold":true,"reason":"auth","agent":"codex","running":0,"waiting":2}]}`},

		{"GET", "/v1/usage", "", 200, "", `{"rows":[{"key":"day,0001-01-01 00:00:00 +0000 UTC,0001-01-01 00:00:00 +0000 UTC,UTC","runs":1`},
		{"GET", "/v1/usage?by=total", "", 200, "", `"key":",`},
		{"GET", "/v1/usage?by=model&since=2026-11-01T00:00:00%2B01:00&until=2026-11-02T00:00:00.5Z&location=Europe/Berlin", "", 200, "", `"key":"model,2026-10-31 23:00:00 +0000 UTC,2026-11-02 00:00:00.5 +0000 UTC,Europe/Berlin"`},
		{"GET", "/v1/usage?by=hour", "", 422, "by", "day"},
		{"GET", "/v1/usage?since=yesterday", "", 422, "since", "RFC 3339"},
		{"GET", "/v1/usage?since=2026-11-01", "", 422, "since", "RFC 3339"},
		{"GET", "/v1/usage?until=2026-13-01T00:00:00Z", "", 422, "until", "RFC 3339"},
		{"GET", "/v1/usage?location=Mars/Phobos", "", 422, "location", "no zone Mars/Phobos"},
		{"GET", "/v1/usage?location=Local", "", 422, "location", "no zone"},
		{"GET", "/v1/usage?location=../../../etc/passwd", "", 422, "location", "no zone"},

		{"POST", "/v1/memory/search", `{"workspace":"/w","prompt":"Rotate the key"}`, 200, "", `{"hits":[{"path":"MEMORY.md","line":0,"text":"Rotate the key"`},
		{"POST", "/v1/memory/search", `{"workspace":"/w"}`, 200, "", `"hits"`}, // the master checks
		{"POST", "/v1/memory/search", `{"workspace":"/w","prompt":"x","fromRun":"r"}`, 422, "fromRun", "fromRun"},
		{"POST", "/v1/memory/search", `{"workspace":7,"prompt":"x"}`, 422, "workspace", "workspace: expected a text"},
		{"GET", "/v1/memory/search", "", 405, "", "not possible"},
	} {
		contentType := ""
		if c.body != "" {
			contentType = jsonType
		}
		w := ask(s, c.method, c.path, contentType, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, wire.Clip(w.Body.String()))
		}
		if c.status == 422 {
			if p := decode[wire.Problem](t, w.Body.Bytes()); p.Field != c.field || p.Code != task.CodeInvalid {
				t.Errorf("%s %s: %+v", c.path, c.body, p)
			}
		}
	}
}

// TestSearchesWait: as many as may run at the same time, those of previews among them.
func TestSearchesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFake(t), Options{})
		bodies := map[string]string{"/v1/memory/search": `{"workspace":"/w","prompt":"x"}`, "/v1/tasks/preview": `{"prompt":"x"}`}
		for want, others := range map[int]int{http.StatusTooManyRequests: maxSearches, http.StatusOK: maxSearches - 1} {
			var leaves []func()
			for range others {
				leave, err := s.searches.enter(t.Context())
				must(t, err)
				leaves = append(leaves, leave)
			}
			for path, body := range bodies {
				if w := ask(s, "POST", path, jsonType, body); w.Code != want {
					t.Errorf("%s beside %d others: %d %s", path, others, w.Code, w.Body)
				}
			}
			for _, leave := range leaves {
				leave()
			}
		}
	})
}

// TestTranscriptPages: a long transcript comes from its end on, page by page.
func TestTranscriptPages(t *testing.T) {
	m := newFake(t)
	var text strings.Builder
	for i := range 250 {
		fmt.Fprintf(&text, `{"type":"message","role":"user","text":"%d"}`+"\n", i)
	}
	must(t, os.WriteFile(filepath.Join(m.runs, "s1.jsonl"), []byte(text.String()), 0o600))
	s := newServer(m, Options{})
	page := func(query string) ([]session.Message, string) {
		w := ask(s, "GET", "/v1/sessions/web"+query, "", "")
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		v := decode[wire.SessionView](t, w.Body.Bytes())
		return v.Transcript, v.Older
	}
	said, older := page("?limit=2")
	if len(said) != 2 || said[1].Text != "249" || older == "" {
		t.Fatalf("%+v, older %q", said, older)
	}
	said, older = page("?cursor=" + older)
	if len(said) != pageLength || said[pageLength-1].Text != "247" || older == "" {
		t.Fatalf("%d messages to %s, older %q", len(said), said[len(said)-1].Text, older)
	}
	if said, older = page("?limit=1000&cursor=" + older); len(said) != 148 || said[0].Text != "0" || older != "" {
		t.Errorf("%d messages from %s on, older %q", len(said), said[0].Text, older)
	}
	if said, older = page(""); len(said) != 1 || older != "" {
		t.Errorf("all at once: %+v, older %q", said, older)
	}
	for _, query := range []string{"cursor=1", "cursor=zy", "cursor=zzzzz", "cursor=0", "cursor=-1", "cursor=3w5e11264sgsf", "limit=1001", "limit=-1"} {
		w := ask(s, "GET", "/v1/sessions/web?"+query, "", "")
		if p := decode[wire.Problem](t, w.Body.Bytes()); w.Code != 422 || p.Field != query[:strings.Index(query, "=")] {
			t.Errorf("%s: %d %+v", query, w.Code, p)
		}
	}
}
