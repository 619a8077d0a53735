package api

import (
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/api/wire"
	"stint/state"
)

// linked returns the path in the header Link of an answer; "" if it has none.
func linked(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	link := w.Header().Get("Link")
	if link == "" {
		return ""
	}
	path, ok := strings.CutSuffix(link, `>; rel="next"`)
	if !ok || !strings.HasPrefix(path, "</v1/tasks?") {
		t.Fatalf("Link: %q", link)
	}
	return path[1:]
}

// TestPages: a client gets from page to page by the header and by the body, with its
// filters, and no further than to the end. What is added meanwhile changes nothing.
func TestPages(t *testing.T) {
	m := newFake(t)
	key := `we&b=ü;>,"`
	for i := range 7 {
		m.add(state.Task{ID: fmt.Sprint("t", i), Status: state.Queued, SessionKey: key, Label: "x"})
		m.add(state.Task{ID: fmt.Sprint("u", i), Status: state.Done})
	}
	s := newServer(m, Options{})
	path := wire.ListPath(state.Filter{Session: key, Label: "x", Status: []state.Status{state.Queued, state.Running}, Limit: 3})
	var seen []string
	for pages := 0; path != ""; pages++ {
		w := ask(s, "GET", path, "", "")
		body := decode[ListBody](t, w.Body.Bytes())
		for _, v := range body.Tasks {
			seen = append(seen, v.ID)
		}
		path = linked(t, w)
		if (body.Next == "") != (path == "") || path != "" && !strings.Contains(path, "cursor="+body.Next) || pages > 3 {
			t.Fatalf("page %d: next %q, Link to %q", pages, body.Next, path)
		}
		m.add(state.Task{ID: fmt.Sprint("n", pages), Status: state.Queued, SessionKey: key, Label: "x"})
	}
	if want := []string{"t6", "t5", "t4", "t3", "t2", "t1", "t0"}; !slices.Equal(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
}

// TestListsAreBounded: a client that does not say how many gets a page, and one that
// wants all says so, of lines as well.
func TestListsAreBounded(t *testing.T) {
	m := newFake(t)
	for i := range pageLength + 1 {
		m.add(state.Task{ID: fmt.Sprint("t", i), Status: state.Queued})
	}
	s := newServer(m, Options{})
	for path, want := range map[string]int{"/v1/tasks": pageLength, "/v1/tasks?status=queued": pageLength, "/v1/tasks?limit=0": pageLength + 1, "/v1/tasks?limit=101": pageLength + 1} {
		w := ask(s, "GET", path, "", "")
		body := decode[ListBody](t, w.Body.Bytes())
		if len(body.Tasks) != want || (body.Next != "") != (want == pageLength) || (linked(t, w) != "") != (want == pageLength) {
			t.Errorf("%s: %d tasks, next %q", path, len(body.Tasks), body.Next)
		}
		for _, accept := range []string{wire.JSONLines, "Application/JSONL;q=0.9, application/json;q=0.1"} {
			lines := ask(s, "GET", path, "", "", "Accept: "+accept)
			if text := lines.Body.String(); strings.Count(text, "\n") != want || strings.Contains(text, "next") || linked(t, lines) != linked(t, w) {
				t.Errorf("%s as %s: %d lines, and then %q", path, accept, strings.Count(text, "\n"), linked(t, lines))
			}
		}
	}
	if all, err := serve(t, m, Options{}).client.List(t.Context(), state.Filter{}); err != nil || len(all) != pageLength+1 {
		t.Errorf("the client without a limit gets %d: %v", len(all), err)
	}
}

// TestWhyIsInLists: why a task waits is the same in each list as in the task.
func TestWhyIsInLists(t *testing.T) {
	m := twoTasks(t)
	m.add(state.Task{ID: "aa-3", Status: state.Running, SessionKey: "web"})
	s := newServer(m, Options{})
	for _, path := range []string{"/v1/tasks", "/v1/sessions/web"} {
		for _, v := range decode[ListBody](t, ask(s, "GET", path, "", "").Body.Bytes()).Tasks {
			one := decode[wire.TaskView](t, ask(s, "GET", "/v1/tasks/"+v.ID, "", "").Body.Bytes())
			if v.Why != one.Why || (v.Why != "") == v.Status.Terminal() {
				t.Errorf("%s: %s is %q in the list, %q alone", path, v.ID, v.Why, one.Why)
			}
		}
	}
}

func TestBadCursors(t *testing.T) {
	s := newServer(twoTasks(t), Options{})
	for _, cursor := range []string{"0", "01", "-1", "+1", "A", "1%20", "%00", "1_0", "3", "zzzzzzzzzzzzzzzzzzzz", "3w5e11264sgsg", strings.Repeat("1", 5000)} {
		w := ask(s, "GET", "/v1/tasks?limit=1&cursor="+cursor, "", "")
		p := decode[wire.Problem](t, w.Body.Bytes())
		if w.Code != 422 || p.Field != "cursor" || !strings.Contains(p.Hint, "list anew") || len(p.Detail) > 200 {
			t.Errorf("%s: %d %+v", wire.Clip(cursor), w.Code, p)
		}
	}
}

// FuzzCursor: a text that is taken for a cursor is the one that is written for it.
func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "1", "0", "zz", "3w5e11264sgsf", "3w5e11264sgsg", "1Z", " 1", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := wire.ParseCursor(s)
		switch {
		case err != nil && first != 0:
			t.Errorf("%d beside %v", first, err)
		case err == nil && s != "" && wire.FormatCursor(first) != s:
			t.Errorf("%q is read as %d, which is %q", s, first, wire.FormatCursor(first))
		}
	})
}

// TestTextLists: the text of a list has a line for each task, those that run before the others, and its header what it is about.
func TestTextLists(t *testing.T) {
	m := newFake(t)
	for i, status := range []state.Status{state.Queued, state.Queued, state.Done} {
		m.add(state.Task{ID: fmt.Sprint("t", i), Status: status, Agent: "codex", Account: []string{"", "work", "home"}[i]})
	}
	s := newServer(m, Options{
		Line: func(v wire.TaskView, look wire.Look) []byte { return fmt.Append(nil, v.ID, look.Now.Location()) },
		Table: func(w io.Writer, lines []byte, look wire.Look) error {
			_, err := fmt.Fprintf(w, "%d %v\n%s", look.Width, look.Colour, lines)
			return err
		},
	})
	w := ask(s, "GET", "/v1/table?width=70&colour=true&location=Asia/Tokyo", "", "")
	if want := "70 true\nt2Asia/Tokyo\nt1Asia/Tokyo\nt0Asia/Tokyo\n"; w.Body.String() != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("%q of %q, want %q", w.Body, w.Header(), want)
	}
	if head := w.Header().Get(wire.ListHeader); head != "3 work codex" {
		t.Errorf("%s: %q", wire.ListHeader, head)
	}
	if w := ask(s, "GET", "/v1/table?status=failed", "", ""); w.Body.Len() > 0 || w.Header().Get(wire.ListHeader) != "0" {
		t.Errorf("of no task: %q, %q", w.Body, w.Header())
	}
	w = ask(s, "GET", "/v1/table?location=Nowhere", "", "")
	if p := decode[wire.Problem](t, w.Body.Bytes()); w.Code != 422 || p.Field != "location" {
		t.Errorf("a zone that nobody knows: %d %+v", w.Code, p)
	}
}
