package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/wire"
	"stint/state"
)

// TestEventStream is what goes over the wire, and when.
func TestEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFake(t)
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			m.add(state.Task{ID: id, Status: state.Queued, Label: "<&>\r\n"})
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			m.set(id, func(*state.Task) {})
		}
		sse, lines := follows(t, m, 0, false), follows(t, m, 0, true)
		task := func(seq int, id string) string {
			return fmt.Sprintf(`{"seq":%d,"task":{"id":"%s","status":"queued","label":"<&>\r\n"`, seq, id)
		}
		expect := func(s *streamed, want ...string) {
			t.Helper()
			synctest.Wait()
			s.expect(t, want...)
		}
		expect(sse, "retry: 1000\nid: 0\n\n", "id: 1\nevent: task\ndata: "+task(1, "a"), "id: 2\nevent: task\ndata: "+task(2, "b"),
			"id: 3\nevent: task\ndata: "+task(3, "c"), "id: 4\nevent: task\ndata: "+task(4, "d"))
		expect(lines, task(1, "a"), task(2, "b"), task(3, "c"), task(4, "d"))

		time.Sleep(14 * time.Second) // fake time
		m.set("e", func(*state.Task) {})
		expect(sse, "id: 5\nevent: task\ndata: "+task(5, "e"))
		time.Sleep(14 * time.Second)
		expect(sse)
		time.Sleep(time.Second)
		expect(sse, ": heartbeat\n\n")
		time.Sleep(30 * time.Second)
		expect(sse, ": heartbeat\n\n: heartbeat\n\n")
		expect(lines, task(5, "e")) // no heartbeats

		m.dropSubscribers()
		<-sse.ended
		<-lines.ended
		old := follows(t, m, 9, false)
		expect(old, "retry: 1000\nid: 9\n\n", "id: 5\nevent: resync\ndata: {\"seq\":5,\"resync\":true}\n\n")
		old.cancel()
		<-old.ended
		if n := m.subscribers(); n != 0 {
			t.Errorf("%d subscribers are left", n)
		}
	})
}

// streamed is an event stream to a recorder.
type streamed struct {
	safeBuffer
	cancel context.CancelFunc
	ended  chan struct{}
}

func (s *streamed) Header() http.Header { return http.Header{} }
func (s *streamed) WriteHeader(int)     {}
func (s *streamed) Flush()              {}

func follows(t *testing.T, m master, after uint64, lines bool) *streamed {
	ctx, cancel := context.WithCancel(t.Context())
	s := &streamed{cancel: cancel, ended: make(chan struct{})}
	e := &eventStream{server: newServer(m, Options{}), lines: lines, out: &streamWriter{w: s, rc: http.NewResponseController(s)}, seq: after}
	go func() {
		defer close(s.ended)
		e.run(ctx)
	}()
	return s
}

// expect looks for pieces in what was sent since it was last asked, one after the
// other from its beginning to its end; in a task's JSON only the beginning counts.
func (s *streamed) expect(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.buf.String()
	for _, w := range want {
		if !strings.HasPrefix(rest, w) {
			t.Fatalf("%q was sent, want %q first", rest, w)
		}
		rest = rest[len(w):]
		if end := strings.Index(rest, "\n"); strings.Contains(w, "{") && !strings.HasSuffix(w, "\n") {
			rest = strings.TrimPrefix(rest[end+1:], "\n")
		}
	}
	if rest != "" {
		t.Fatalf("%q was sent besides", rest)
	}
	s.buf.Reset()
}

// TestEventsAfter: which record counts of those that a reader names, how the answer is
// marked, and in which form it is.
func TestEventsAfter(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Queued})
	for range 8 {
		m.set("a", func(*state.Task) {})
	}
	s := newServer(m, Options{})
	for _, tc := range []struct{ query, id, accept, seq, begins string }{
		{"", "", "", "8", "retry: 1000\nid: 8\n\n"},
		{"", "", "text/event-stream", "8", "retry: 1000\nid: 8\n\n"},
		{"", "", "*/*", "8", "retry: 1000\nid: 8\n\n"},
		{"", "6", "", "6", "retry: 1000\nid: 6\n\nid: 7\nevent: task\n"},
		{"?after=6", "", "", "6", "retry: 1000\nid: 6\n\nid: 7\nevent: task\n"},
		{"?after=2", "6", "", "6", "retry: 1000\nid: 6\n\nid: 7\nevent: task\n"}, // it has come back
		{"?after=0", "", "application/jsonl", "0", `{"seq":1,"task":{"id":"a"`},
		{"?after=6", "", "text/html, Application/JSONL;q=0.9", "6", `{"seq":7,"task":{"id":"a"`},
		{"", "", "application/jsonl", "8", ""},
		{"", "9", "application/jsonl", "9", `{"seq":8,"resync":true}` + "\n"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/events"+tc.query, nil)
		ctx, cancel := context.WithCancel(r.Context())
		r.Header.Set("Last-Event-ID", tc.id)
		r.Header.Set("Accept", tc.accept)
		w := httptest.NewRecorder()
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			s.ServeHTTP(w, r.WithContext(ctx))
		}()
		eventually(t, "it has caught up", func() bool { return m.subscribers() == 1 })
		cancel()
		if broken := <-done; broken != http.ErrAbortHandler {
			t.Errorf("%+v: the stream ends with %v", tc, broken)
		}
		want := eventStreamType
		if !strings.HasPrefix(tc.begins, "retry") {
			want = wire.JSONLines
		}
		if got := w.Body.String(); !strings.HasPrefix(got, tc.begins) || tc.begins == "" && got != "" || w.Header().Get("Stint-Seq") != tc.seq || w.Header().Get("Content-Type") != want {
			t.Errorf("%+v: %v %q", tc, w.Header(), got)
		}
	}
	if w := ask(s, http.MethodHead, "/v1/events", "", ""); w.Code != http.StatusOK || w.Body.Len() > 0 || m.subscribers() > 0 {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
}

// A listedLate master changes while it is listed.
type listedLate struct{ *fakeMaster }

func (m listedLate) Rows(f state.Filter, encode func(*state.Task) ([]byte, error)) ([]state.Row, error) {
	m.set("aa-1", func(*state.Task) {})
	return m.fakeMaster.Rows(f, encode)
}

// TestEventsListThenFollow: the number in the header of a list is that of a record before it
// was made, so that a reader of events who goes on there misses nothing.
func TestEventsListThenFollow(t *testing.T) {
	m := twoTasks(t)
	m.set("aa-2", func(*state.Task) {})
	if w := get(newServer(listedLate{m}, Options{}), "/v1/tasks"); w.Header().Get("Stint-Seq") != "1" || m.Seq() != 2 {
		t.Errorf("it follows on %s, and the newest is %d", w.Header().Get("Stint-Seq"), m.Seq())
	}
}
