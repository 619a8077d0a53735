package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// A fakeShared is a shared queue in memory.
type fakeShared struct {
	mu    sync.Mutex
	tasks []state.Task
	keys  []string
	asked state.Filter
	says  [][]state.Task // what Watch tells, a second apart
	hangs bool           // its database does not answer
	err   error
}

func (f *fakeShared) Submit(ctx context.Context, spec task.TaskSpec) (state.Task, error) {
	list, err := f.SubmitOnce(ctx, "", []task.TaskSpec{spec})
	if err != nil {
		return state.Task{}, err
	}
	return list[0], nil
}

func (f *fakeShared) SubmitOnce(_ context.Context, key string, specs []task.TaskSpec) (list []state.Task, err error) {
	for _, s := range specs {
		t := state.Task{ID: s.ID, Status: state.Queued, IdempotencyKey: state.GivenKey(s.IdempotencyKey)}
		for _, old := range f.tasks {
			if old.ID == t.ID || t.IdempotencyKey != "" && old.IdempotencyKey == t.IdempotencyKey {
				t = old
				t.CreatedAt = time.Now().Add(time.Hour) // by a clock that is ahead
			}
		}
		list, f.keys = append(list, t), append(f.keys, key)
	}
	f.tasks = append(f.tasks, list...)
	return list, f.err
}

func (f *fakeShared) Task(_ context.Context, ref string) (state.Task, error) {
	return state.Task{ID: ref, Status: state.Done, Prompt: "whole"}, f.err
}

func (f *fakeShared) List(_ context.Context, filter state.Filter) ([]state.Task, error) {
	f.asked = filter
	return f.tasks, f.err
}

func (f *fakeShared) Watch(ctx context.Context, tell func([]state.Task) error) error {
	for _, list := range f.says {
		if err := tell(list); err != nil {
			return err
		}
		if err := task.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return errors.New("the database is gone")
}

func (f *fakeShared) Status(ctx context.Context) (task.SharedStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hangs {
		<-ctx.Done()
		return task.SharedStatus{}, ctx.Err()
	}
	return task.SharedStatus{Tasks: map[string]int{"queued": 3}, Oldest: 90 * time.Second, Workers: []task.WorkerRow{{ID: "019ab3f0", Host: "build-1", Processes: 4, Silent: "4s"}}}, f.err
}

// newSharedServer returns a server of a master with that shared queue.
func newSharedServer(t testing.TB, f *fakeShared) *Server {
	rooms := *roomsOf(newFake(t))
	rooms.Shared = f
	return NewServer(rooms, Options{})
}

// TestSharedRequests: a list is of shared tasks as a whole; their status says whether one is new.
func TestSharedRequests(t *testing.T) {
	f := &fakeShared{}
	s := newSharedServer(t, f)
	for _, tt := range []struct {
		run, method, path, body string
		header                  []string
		status                  int
		want                    string
	}{
		{"", "POST", "/v1/tasks", `{"prompt":"x","shared":true,"id":"a"}`, nil, 201, `"task_id":"a"`},
		{"", "POST", "/v1/tasks", `{"prompt":"x","shared":true,"id":"a"}`, nil, 201, `"task_id":"a"`},
		{"", "POST", "/v1/tasks", `{"prompt":"x","shared":true,"id":"b"}`, []string{"Idempotency-Key: k"}, 201, `"idempotencyKey":"k"`},
		{"", "POST", "/tasks", `{"prompt":"x","shared":true}`, []string{"Idempotency-Key: k"}, 200, `"id":"b"`},
		{"", "POST", "/v1/tasks/batch", `[{"prompt":"x","shared":true,"id":"c"},{"prompt":"y","shared":true,"id":"a"}]`, []string{"Idempotency-Key: l"}, 201, `{"tasks":[{"id":"c"`},
		{"r-1", "GET", "/v1/tasks?shared=true", "", nil, 200, `"id":"a"`},
		{"", "GET", "/v1/tasks?shared=true&status=queued,dead&label=l&limit=7", "", nil, 200, `{"tasks":[{"id":"a","status":"queued"`},
		{"", "GET", "/v1/workers", "", nil, 200, `"host":"build-1"`},
		{"r-1", "POST", "/v1/tasks", `{"prompt":"x","shared":true}`, nil, 403, task.ErrFromRun.Message},
		{"", "POST", "/v1/tasks/preview", `[{"prompt":"x","shared":"yes"}]`, nil, 422, `"field":"0.shared"`},
	} {
		header := tt.header
		if tt.run != "" {
			header = append(header, wire.RunHeader+": "+tt.run)
		}
		w := ask(s, tt.method, tt.path, map[bool]string{true: jsonType}[tt.body != ""], tt.body, header...)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.body, w.Code, w.Body)
		}
		if at := w.Header().Get("Location"); at != "" {
			if w := ask(s, "GET", at, "", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"prompt":"whole"`) {
				t.Errorf("%s: %d %s", at, w.Code, w.Body)
			}
		}
	}
	if f.asked.Label != "l" || f.asked.Limit != 7 || len(f.asked.Status) != 2 {
		t.Errorf("the filter is %+v", f.asked)
	}
	if got := f.keys[len(f.keys)-1]; got != "l" {
		t.Errorf("the list has the key %q", got)
	}
	f.err = &task.Error{Code: task.CodeUnavailable, Message: "the database is gone"}
	for _, path := range []string{"/v1/tasks?shared=true", "/v1/workers"} {
		if w := ask(s, "GET", path, "", ""); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "the database is gone") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestNoSharedQueue: without a database, each request that means its queue says so.
func TestNoSharedQueue(t *testing.T) {
	s := newServer(newFake(t), Options{})
	for _, r := range [][3]string{
		{"POST", "/v1/tasks", `{"prompt":"x","shared":true}`},
		{"POST", "/v1/tasks/batch", `[{"prompt":"x"},{"prompt":"x","shared":true}]`},
		{"GET", "/v1/tasks?shared=true", ""},
		{"GET", "/v1/tasks/a?shared=true", ""},
		{"GET", "/v1/events?shared=true", ""},
		{"GET", "/v1/workers", ""},
	} {
		w := ask(s, r[0], r[1], map[bool]string{true: jsonType}[r[2] != ""], r[2])
		if p := decode[wire.Problem](t, w.Body.Bytes()); w.Code != http.StatusConflict || p.Detail != "no database is configured for a shared queue" || p.Hint == "" {
			t.Errorf("%v: %d %s", r, w.Code, w.Body)
		}
	}
	if text := ask(s, "GET", "/metrics", "", "").Body.String(); strings.Contains(text, "stint_shared") {
		t.Errorf("metrics of a queue that nobody wants:\n%s", text)
	}
}

// TestSharedEvents: tasks are told as they change, as events or as lines, until the database or the client is gone.
func TestSharedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeShared{says: [][]state.Task{{{ID: "a", Status: state.Queued}, {ID: "b", Status: state.Queued}}, nil, {{ID: "a", Status: state.Running}}}}
		for _, tt := range []struct{ accept, want string }{
			{"", "id: 0\nevent: task\ndata: {\"seq\":0,\"task\":{\"id\":\"a\",\"status\":\"queued\"}}\n\n" +
				"id: 0\nevent: task\ndata: {\"seq\":0,\"task\":{\"id\":\"b\",\"status\":\"queued\"}}\n\n" +
				"id: 0\nevent: task\ndata: {\"seq\":0,\"task\":{\"id\":\"a\",\"status\":\"running\"}}\n\n"},
			{wire.JSONLines, "{\"seq\":0,\"task\":{\"id\":\"a\",\"status\":\"queued\"}}\n{\"seq\":0,\"task\":{\"id\":\"b\",\"status\":\"queued\"}}\n{\"seq\":0,\"task\":{\"id\":\"a\",\"status\":\"running\"}}\n"},
		} {
			out, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/events?shared=true", nil)
			r.Header.Set("Accept", tt.accept)
			func() {
				defer func() {
					if recover() != http.ErrAbortHandler {
						t.Error("the stream has an end of its own")
					}
				}()
				newSharedServer(t, f).ServeHTTP(out, r)
			}()
			if got := out.Body.String(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		}
	})
}

// TestSharedMetrics: a look lasts a second at most; without an answer only that is shown.
func TestSharedMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeShared{}
		s := newSharedServer(t, f)
		show := func(want, not string) {
			t.Helper()
			began := time.Now()
			if text := ask(s, "GET", "/metrics", "", "").Body.String(); !strings.Contains(text, want) || strings.Contains(text, not) || time.Since(began) > time.Second {
				t.Errorf("after %v:\n%s", time.Since(began), text)
			}
		}
		const up, down = "stint_shared_workers 1\n", "stint_shared_up 0\n"
		show(up, down)
		if page := ask(s, "GET", "/", "", "").Body.String(); !strings.Contains(page, "<section id=\"workers\"") {
			t.Errorf("the page\n%s", page)
		}
		f.hangs = true
		show(down, "stint_shared_tasks")
		if page := ask(s, "GET", "/", "", "").Body.String(); strings.Contains(page, "<section id=\"workers\"") {
			t.Errorf("without an answer, the page\n%s", page)
		}
		f.hangs = false
		show(up, down)
	})
}
