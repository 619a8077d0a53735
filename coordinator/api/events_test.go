package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
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
	mu     sync.Mutex
	body   bytes.Buffer
	cancel context.CancelFunc
	ended  chan struct{}
}

func (s *streamed) Header() http.Header { return http.Header{} }
func (s *streamed) WriteHeader(int)     {}
func (s *streamed) Flush()              {}
func (s *streamed) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.body.Write(p)
}

func follows(t *testing.T, m master, after uint64, lines bool) *streamed {
	ctx, cancel := context.WithCancel(t.Context())
	s := &streamed{cancel: cancel, ended: make(chan struct{})}
	opts := Options{}.withDefaults()
	e := &eventStream{
		changed: m, lag: opts.EventBuffer, heartbeat: opts.Heartbeat, lines: lines,
		out: &streamWriter{w: s, rc: http.NewResponseController(s)}, seq: after,
	}
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
	rest := s.body.String()
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
	s.body.Reset()
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

// A eventSource reads events as a browser's EventSource does: it connects again and
// again, with the id of the last event.
type eventSource struct {
	t      *testing.T
	client *http.Client
	id     string // of the last event
	query  string
	known  map[string]state.Status
	seq    uint64 // of the last event
	told   int    // events
	resync int    // likewise
	times  int    // that it was connected
}

func newSource(t *testing.T, s *served, query string) *eventSource {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &eventSource{t: t, client: &http.Client{Transport: transport}, query: query, known: map[string]state.Status{}}
}

// read connects, until enough says so or the stream has ended.
func (e *eventSource) read(ctx context.Context, enough func() bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stint/v1/events"+e.query, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", eventStreamType)
	if e.id != "" {
		req.Header.Set("Last-Event-ID", e.id)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	e.times++
	lines := bufio.NewReader(resp.Body)
	name, data, id := "", "", e.id
	for !enough() {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			data = value
		case "id":
			id = value
		case "":
			if e.id = id; data != "" {
				e.event(name, data)
			}
			name, data = "", ""
		}
	}
	return nil
}

func (e *eventSource) event(name, data string) {
	var c task.Change
	if err := json.Unmarshal([]byte(data), &c); err != nil || fmt.Sprint(c.Seq) != e.id || (name == "resync") != c.Resync {
		e.t.Errorf("event %s, id %s: %v in %s", name, e.id, err, data)
	}
	switch {
	case c.Resync:
		e.resync++
		clear(e.known)
	case c.Seq <= e.seq:
		e.t.Errorf("%d comes after %d", c.Seq, e.seq)
	default:
		e.told++
		e.known[c.Task.ID] = c.Task.Status
	}
	e.seq = c.Seq
}

// until reads, over as many connections as it takes, until enough says so.
func (e *eventSource) until(enough func() bool) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 20*time.Second)
	defer cancel()
	for !enough() {
		if err := e.read(ctx, enough); ctx.Err() != nil {
			e.t.Errorf("it is at %d after %d connections: %v", e.seq, e.times, err)
			return
		}
	}
}

// following is a coordinator that counts those who follow it.
type following struct {
	*coordinator.Coordinator
	readers atomic.Int32
}

func (f *following) SubscribeAfter(after uint64, buffer int) ([]*task.Change, <-chan *task.Change, func()) {
	missed, changes, cancel := f.Coordinator.SubscribeAfter(after, buffer)
	if changes != nil {
		f.readers.Add(1)
		return missed, changes, func() { cancel(); f.readers.Add(-1) }
	}
	return missed, changes, cancel
}

// TestEventsOverARestart: streams that are open when the master goes away go on with
// the next one, as if there had been one only.
func TestEventsOverARestart(t *testing.T) {
	dir, work := filepath.Join(t.TempDir(), "state"), t.TempDir()
	socket := filepath.Join(t.TempDir(), "d", "s.sock")
	start := func() (*following, *served) {
		c := &following{Coordinator: openMaster(t, dir)}
		return c, serveAt(t, c, Options{}, socket)
	}
	want := map[string]state.Status{}
	change := func(c *following) {
		t.Helper()
		for i := range 5 {
			task, err := c.Submit(t.Context(), task.TaskSpec{Prompt: "p", Workspace: work, Hold: true})
			if err != nil {
				t.Fatal(err)
			}
			if want[task.ID] = task.Status; i%2 > 0 {
				continue
			}
			if _, err := c.Cancel(t.Context(), task.ID, "client"); err != nil {
				t.Fatal(err)
			}
			want[task.ID] = state.Canceled
		}
	}
	c, s := start()
	const records = 8 // that change makes
	readers := make([]*eventSource, 8)
	var reading sync.WaitGroup
	for i := range readers {
		readers[i] = newSource(t, s, "?after=0")
		reading.Go(func() { readers[i].until(func() bool { return readers[i].seq == 4*records }) })
	}
	for round := range 4 {
		if round == 1 {
			eventually(t, "all are connected", func() bool { return int(c.readers.Load()) == len(readers) })
		}
		change(c) // some of them are reading, and some on their way
		if round == 3 {
			break
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		newest := c.Seq()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if c, s = start(); c.Seq() != newest {
			t.Fatalf("record %d is the newest one after a restart, and was %d", c.Seq(), newest)
		}
	}
	reading.Wait()
	for _, e := range readers {
		if !maps.Equal(e.known, want) || e.resync > 0 || e.times < 2 {
			t.Errorf("%d connections, %d resyncs, %d tasks known of %d", e.times, e.resync, len(e.known), len(want))
		}
	}
	if err := errors.Join(s.stop(), c.Close()); err != nil {
		t.Error(err)
	}
}

// TestEventsListThenFollow: the number that a list's answer has in its header is where
// a reader of events goes on, whatever happens in between.
func TestEventsListThenFollow(t *testing.T) {
	c := openMaster(t, filepath.Join(t.TempDir(), "state"))
	s := serve(t, c, Options{})
	work := t.TempDir()
	const tasks = 200
	var submitting sync.WaitGroup
	submitting.Go(func() {
		for range tasks {
			if _, err := c.Submit(context.Background(), task.TaskSpec{Prompt: "p", Workspace: work, Hold: true}); err != nil {
				t.Error(err)
			}
		}
	})
	eventually(t, "some are there", func() bool { return c.Seq() > 10 })
	for range 5 {
		list, err := s.client.List(t.Context(), state.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		e := newSource(t, s, fmt.Sprint("?after=", s.client.Notice().Seq))
		for _, task := range list {
			e.known[task.ID] = task.Status
		}
		e.until(func() bool { return len(e.known) == tasks })
	}
	submitting.Wait()
	if err := errors.Join(s.stop(), c.Close()); err != nil {
		t.Error(err)
	}
}
