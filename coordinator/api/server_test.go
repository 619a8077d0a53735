package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// ask makes a request to a server without a network, with other headers as "Name: value".
func ask(h http.Handler, method, path, contentType, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decode[T any](t testing.TB, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

const jsonType = "application/json"

func twoTasks(t testing.TB) *fakeMaster {
	m := newFake(t)
	m.add(state.Task{ID: "aa-1", Status: state.Done, Prompt: "one", Result: "1", SessionKey: "web", Label: "x"})
	m.add(state.Task{ID: "aa-2", Status: state.Queued, Prompt: "two"})
	return m
}

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
		code                            task.Code
		want                            string // in the answer
	}{
		{"GET", "/v1/tasks/aa-1", "", "", 200, "", `"status":"done"`},
		{"GET", "/v1/tasks/@last", "", "", 200, "", `"id":"aa-2"`},
		{"GET", "/v1/tasks/aa-2", "", "", 200, "", `"why":"it is queued"`},
		{"GET", "/v1/tasks/aa", "", "", 409, "ambiguous", "more than one"},
		{"GET", "/v1/tasks/zz", "", "", 404, "not-found", `"hint":"stint ls"`},
		{"GET", "/v1/tasks/aa-2/why", "", "", 200, "", `{"why":"it is queued"}`},
		{"GET", "/v1/tasks/aa-1/wait", "", "", 200, "", `"result":"1"`},
		{"GET", "/v1/tasks/aa-1/raw", "", "", 200, "", "## Task aa-1\n"},
		{"GET", "/v1/tasks", "", "", 200, "", `{"tasks":[{"id":"aa-2"`},
		{"GET", "/v1/tasks?status=done,failed&label=x&session=web&limit=3", "", "", 200, "", `{"tasks":[{"id":"aa-1"`},
		{"GET", "/v1/tasks?status=draft,running,canceled,dead", "", "", 200, "", `{"tasks":[]}`},
		{"GET", "/v1/tasks?status=queued&status=done", "", "", 200, "", `"status":"done"`},
		{"GET", "/v1/tasks?status=queued&status=&status=draft,done", "", "", 200, "", `"status":"done"`},
		{"GET", "/v1/tasks?status=finished", "", "", 422, "invalid", "draft"},
		{"GET", "/v1/tasks?status=done&status=finished", "", "", 422, "invalid", `"field":"status"`},
		{"GET", "/v1/tasks?limit=-1", "", "", 422, "invalid", "limit: expected number"},
		{"GET", "/v1/tasks?limt=1", "", "", 422, "invalid", "limt: unknown query parameter"},
		{"GET", "/v1/sessions", "", "", 200, "", `{"sessions":[{"key":"web"`},
		{"GET", "/v1/sessions/web", "", "", 200, "", `"tasks":[{"id":"aa-1"`},
		{"GET", "/v1/sessions/dir:%2Fhome%2Fana%2Fshop", "", "", 200, "", `"tasks":[]`},
		{"GET", "/v1/sessions/dir:/home/ana/shop", "", "", 200, "", `"text":"hello"`},
		{"GET", "/v1/sessions/nope", "", "", 404, "not-found", "no session nope"},
		{"GET", "/v1/health", "", "", 200, "", `"pid":7`},
		{"GET", "/v1/events?after=x", "", "", 422, "invalid", `"field":"after"`},
		{"GET", "/v1/events?after=-1", "", "", 422, "invalid", `after must be the number of a record, not \"-1\"`},
		{"GET", "/v1/events?after=99999999999999999999", "", "", 422, "invalid", "Stint-Seq"},
		{"POST", "/v1/handover", "", "", 204, "", ""},
		{"POST", "/v1/ledger/compact", jsonType, `{"olderThan":"30d"}`, 422, "invalid", ""},
		{"POST", "/v1/ledger/prune", jsonType, `{"olderThan":"-1h"}`, 422, "invalid", ""},
		{"GET", "/tasks/aa-1", "", "", 200, "", `"status":"done"`},
		{"POST", "/tasks", jsonType, `{"prompt":"x"}`, 201, "", ""},
		{"POST", "/v1/tasks/aa-2/cancel", "", "", 200, "", `"status":"canceled"`},
		{"POST", "/v1/tasks/aa-1/retry", "", "", 200, "", `"status":"queued"`},
		{"GET", "/v1/tasks/aa-1/logs", "", "", 404, "not-found", "has not run yet"},
		{"GET", "/v1/tasks/aa-1/logs?stream=stdin", "", "", 422, "invalid", "stdout"},
		{"GET", "/v1/tasks/zz/logs?follow=true", "", "", 404, "not-found", "no task zz"},

		{"POST", "/v1/tasks", "application/json; charset=utf-8", `{"prompt":"x"}`, 201, "", ""},
		{"POST", "/v1/tasks", jsonType, `{"prompt":""}`, 422, "invalid", `"hint":"stint task PROMPT"`},
		{"POST", "/v1/tasks", jsonType, `{"prompt":"x","colour":1,"agnet":"codex"}`, 422, "invalid", "colour: unknown field"},
		{"POST", "/v1/tasks", jsonType, `{"prompt":"x","notBefore":"soon"}`, 422, "invalid", "notBefore: expected a time"},
		{"POST", "/v1/tasks", "application/x+json", `{"prompt":"x"}`, 415, "invalid", "application/json"},
		{"POST", "/v1/tasks/batch", jsonType, `[{"prompt":"x"},{"prompt":"y"}]`, 201, "", `{"tasks":[{"id":"`},
		{"POST", "/v1/tasks/batch", jsonType, `{"tasks":[{"prompt":"x"}]}`, 422, "invalid", "the body is not a list of tasks"},
		{"POST", "/v1/tasks/batch", jsonType, `"x"`, 422, "invalid", "the body is not a list of tasks"},
		{"POST", "/v1/tasks/batch", jsonType, `[{"prompt":`, 400, "invalid", "the body is not JSON"},

		{"POST", "/v1/tasks/aa-2/hold", "", "", 200, "", `"hold":true`},
		{"POST", "/v1/tasks/aa-2/release", "", "", 200, "", `"id":"aa-2"`},
		{"POST", "/v1/tasks/zz/hold", "", "", 404, "not-found", "no task zz"},
		{"POST", "/v1/tasks/aa-2/move", jsonType, `{"first":true}`, 200, "", `"note":"{First:true Before:}"`},
		{"POST", "/v1/tasks/aa-2/move", jsonType, `{"before":"aa-1"}`, 200, "", `"note":"{First:false Before:aa-1}"`},
		{"POST", "/v1/pause", jsonType, `{"reason":"lunch"}`, 204, "", ""},
		{"POST", "/v1/pause", "", "", 204, "", ""},
		{"GET", "/v1/schedules", "", "", 200, "nightly", ""},
		{"GET", "/v1/schedules/nightly/runs?limit=5", "", "", 200, `"runs":[]`, ""},
		{"POST", "/v1/schedules/nightly/pause", "", "", 200, `"paused":true`, ""},
		{"POST", "/v1/schedules/nightly/run", "", "", 200, "nightly", ""},
		{"POST", "/v1/schedules/nightly/run", jsonType, `{"at":"2026-11-30T10:12:45.123Z"}`, 200, "", `"open":["2026-11-30T10:12:45.123Z"]`},
		{"POST", "/v1/schedules/nightly/pause", jsonType, `{"when":"2026-11-30T10:12:45.123Z"}`, 422, "invalid", "when: unknown field"},

		{"POST", "/scheduler/jobs", jsonType, `{"object_type":"cognition","object_id":"cg_123","action":"revalidate","run_at":"2026-02-21T00:00:00Z","priority":"medium"}`, 201, "", `"object_id":"cg_123"`},
		{"POST", "/v1/scheduler/jobs", jsonType, `{"idempotency_key":"k"}`, 200, "", `"job_id":"j1"`},
		{"POST", "/scheduler/jobs", jsonType, `{"object-type":"memory","kind":1}`, 422, "invalid", "kind: unknown field"},
		{"POST", "/scheduler/jobs", jsonType, `{"run_at":"soon"}`, 422, "invalid", "run_at: expected a time"},
		{"POST", "/scheduler/jobs", jsonType, `{"object_id":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "invalid", "1048576"},
		{"POST", "/scheduler/jobs/pull", jsonType, `{"now":"2026-02-21T00:00:10Z","limit":100,"worker_id":"worker-1"}`, 200, "", `{"jobs":[{"job_id":"j1"`},
		{"POST", "/scheduler/jobs/j1/ack", jsonType, `{"result":"succeeded","audit_event_id":"aud_789","next_action_at":"2026-02-28T00:00:00Z"}`, 200, "", `"audit_event_id":"aud_789"`},
		{"POST", "/scheduler/jobs/j1/fail", jsonType, `{"error":"timeout while verifying evidence","retry_delay_sec":300}`, 200, "", `"job_id":"j1"`},
		{"POST", "/scheduler/jobs/j1/retry", "", "", 200, "", `"status":"queued"`},
		{"GET", "/v1/scheduler/jobs/zz", "", "", 404, "not-found", "no job zz"},
		{"GET", "/scheduler/jobs?limit=5&status=queued", "", "", 200, "", `{"jobs":[{"job_id":"j1"`},
		{"GET", "/scheduler/jobs?status=done", "", "", 422, "invalid", "status: expected value to be one of"},
		{"GET", "/v1/scheduler/jobs/j1", "", "", 200, "", `"last_error":null`},

		{"GET", "/v1/nothing", "", "", 404, "not-found", "nothing at /v1/nothing"},
		{"DELETE", "/v1/tasks/aa-1", "", "", 405, "invalid", "DELETE is not possible"},
		{"GET", "/docs", "", "", 404, "not-found", "nothing"},
		{"GET", "/schemas/TaskSpec.json", "", "", 404, "not-found", "nothing"},
	} {
		t.Run(c.method+" "+c.path+" "+wire.Clip(c.body), func(t *testing.T) {
			w := ask(newServer(twoTasks(t), Options{}), c.method, c.path, c.contentType, c.body)
			body := w.Body.String()
			if w.Code != c.status || !strings.Contains(body, c.want) {
				t.Fatalf("%d %s, want %d with %q", w.Code, wire.Clip(body), c.status, c.want)
			}
			if strings.Contains(body, "$schema") {
				t.Errorf("$schema in %s", body)
			}
			if c.status < 400 {
				return
			}
			p := decode[wire.Problem](t, w.Body.Bytes())
			if w.Header().Get("Content-Type") != "application/problem+json" || p.Status != c.status || p.Code != c.code || p.Title == "" {
				t.Errorf("%s %+v", w.Header().Get("Content-Type"), p)
			}
			if len(body) > 2000 {
				t.Errorf("the answer repeats the request: %d bytes", len(body))
			}
		})
	}
}

// TestMethods: what cannot be done at a path is answered with what can.
func TestMethods(t *testing.T) {
	s := newServer(twoTasks(t), Options{})
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"DELETE", "/v1/tasks", 405, "GET, HEAD, POST"},
		{"OPTIONS", "/v1/pause", 405, "POST"},
		{"PUT", "/v1/tasks/aa-1", 405, "GET, HEAD, PATCH"},
		{"GET", "/v1/tasks/aa-1", 200, ""},
		{"PATCH", "/v1/tasks/aa-1", 415, ""},
		{"POST", "/v1/tasks", 415, ""},
		{"OPTIONS", "/v1/sessions/dir:/a/b", 405, "GET, HEAD"},
		{"OPTIONS", "/v1/nothing", 404, ""},
	} {
		body := ""
		if c.status == 415 {
			body = "x"
		}
		w := ask(s, c.method, c.path, "text/plain", body)
		if w.Code != c.status || w.Header().Get("Allow") != c.allow {
			t.Errorf("%s %s: %d %q %s", c.method, c.path, w.Code, w.Header().Get("Allow"), w.Body)
		}
	}
}

// TestRetryAfter: a refusal that will not last says when to ask again.
func TestRetryAfter(t *testing.T) {
	m := newFake(t)
	for code, want := range map[task.Code]bool{task.CodeTooMany: true, task.CodeStopped: true, task.CodeShortage: true, task.CodeFull: false, task.CodeConflict: false} {
		m.err = &task.Error{Code: code, Message: "no"}
		for _, path := range []string{"/v1/tasks", "/v1/tasks/aa/cancel"} {
			w := ask(newServer(m, Options{}), "POST", path, jsonType, `{}`)
			if got := w.Header().Get("Retry-After"); (got != "") != want {
				t.Errorf("%s: %d, Retry-After %q", code, w.Code, got)
			}
		}
	}
	w := httptest.NewRecorder()
	if wire.NewProblem(429, "streams", "").Write(w); w.Header().Get("Retry-After") == "" {
		t.Error("the guard says nothing")
	}
}

// TestNotModified: who has the task as it is gets no second copy of it.
func TestNotModified(t *testing.T) {
	m := twoTasks(t)
	m.set("aa-1", func(t *state.Task) { t.Seq = 7 })
	s := newServer(m, Options{})
	const path = "/v1/tasks/aa-1"
	for _, method := range []string{"GET", "HEAD"} {
		whole := ask(s, method, path, "", "")
		tag := whole.Header().Get("ETag")
		for _, c := range []struct {
			given  string
			status int
		}{{tag, 304}, {"W/" + tag, 304}, {`"x", ` + tag, 304}, {"*", 304}, {`"x"`, 200}, {"x", 200}} {
			w := ask(s, method, path, "", "", "If-None-Match: "+c.given)
			if w.Code != c.status || w.Header().Get("ETag") != tag || tag == "" || w.Code == 304 && w.Body.Len() > 0 {
				t.Errorf("%s, %s of %s: %d %s %s", method, c.given, tag, w.Code, w.Header().Get("ETag"), w.Body)
			}
		}
		m.set("aa-1", func(t *state.Task) { t.Seq++ })
		if w := ask(s, method, path, "", "", "If-None-Match: "+tag); w.Code != 200 || w.Header().Get("ETag") == tag {
			t.Errorf("%s after a change: %d", method, w.Code)
		}
	}
}

func TestErrorsOfTheMaster(t *testing.T) {
	for code, status := range map[task.Code]int{
		task.CodeInvalid: 422, task.CodeNotFound: 404, task.CodeAmbiguous: 409, task.CodeConflict: 409,
		task.CodeBusy: 423, task.CodeFull: 507, task.CodeStopped: 503, task.CodeAgentMissing: 424, task.CodeUnavailable: 502,
	} {
		m := twoTasks(t)
		want := &task.Error{Code: code, Message: "no", Hint: "do this"}
		m.err = fmt.Errorf("wrapped: %w", want)
		s := serve(t, m, Options{})
		ctx := t.Context()
		posts := func(path string, body any) func() error {
			return func() error { _, err := client.Fetch[[]byte](ctx, s.client, "POST", path, body); return err }
		}
		for name, call := range map[string]func() error{
			"submit": func() error { _, err := s.client.Submit(ctx, task.TaskSpec{Prompt: "x"}); return err },
			"task":   func() error { _, err := s.client.Task(ctx, "aa-1"); return err },
			"cancel": func() error { _, err := s.client.Act(ctx, "aa-1", "cancel"); return err },
			"retry":  func() error { _, err := s.client.Act(ctx, "aa-1", "retry"); return err },
			"wait":   func() error { _, err := s.client.Wait(ctx, "aa-1"); return err },
			"why": func() error {
				_, err := client.Fetch[wire.WhyBody](ctx, s.client, "GET", "/v1/tasks/aa-1/why", nil)
				return err
			},
			"raw": func() error {
				_, err := client.Fetch[[]byte](ctx, s.client, "GET", "/v1/tasks/aa-1/raw", nil)
				return err
			},
			"logs":   func() error { return s.client.Logs(ctx, "aa-1", "", "stdout", true, io.Discard) },
			"over":   posts("/v1/handover", nil),
			"pause":  posts("/v1/pause", wire.PauseBody{}),
			"resume": posts("/v1/resume", nil),
			"shrink": posts("/v1/ledger/compact", wire.CompactBody{OlderThan: "0s", KeepFailed: true}),
			"accept": posts("/v1/ledger/reconcile", wire.ReconcileBody{Accept: true}),
		} {
			var got *task.Error
			if err := call(); !errors.As(err, &got) || *got != *want {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		if w := ask(newServer(m, Options{}), "GET", "/v1/tasks/aa-1", "", ""); w.Code != status {
			t.Errorf("%s: %d, want %d", code, w.Code, status)
		}
	}
	m := twoTasks(t)
	m.err = errors.New("the disk is on fire")
	w := ask(newServer(m, Options{}), "GET", "/v1/tasks/aa-1", "", "")
	if p := decode[wire.Problem](t, w.Body.Bytes()); w.Code != 500 || p.Code != "" || p.Detail != "the disk is on fire" {
		t.Errorf("%d %+v", w.Code, p)
	}
}

func TestSubmitTellsCreatedFromKnown(t *testing.T) {
	m := newFake(t)
	clock := time.Date(2026, 11, 21, 3, 0, 0, 123456789, time.UTC)
	m.now = func() time.Time { return clock }
	next := 0
	s := newServer(m, Options{Now: m.now, NewID: func() string { next++; return fmt.Sprint("id-", next) }})
	submit := func(body string) (int, string, wire.TaskView) {
		w := ask(s, "POST", "/v1/tasks", jsonType, body)
		return w.Code, w.Header().Get("Location"), decode[wire.TaskView](t, w.Body.Bytes())
	}
	for _, c := range []struct {
		body   string
		status int
		id     string
	}{
		{`{"prompt":"x"}`, 201, "id-1"},
		{`{"prompt":"x","idempotencyKey":"k"}`, 201, "id-2"},
		{`{"prompt":"x","idempotencyKey":"k"}`, 200, "id-2"},
		{`{"prompt":"x","id":"mine"}`, 201, "mine"},
		{`{"prompt":"x","id":"mine"}`, 200, "mine"},
		{`{"prompt":"x","id":"other","idempotencyKey":"k"}`, 200, "id-2"},
	} {
		status, location, v := submit(c.body)
		if status != c.status || v.ID != c.id || location != "/v1/tasks/"+c.id || v.Status != state.Queued {
			t.Errorf("%s: %d %s %s %s", c.body, status, location, v.ID, v.Status)
		}
		clock = clock.Add(time.Second)
	}
}

var update = flag.Bool("update", false, "write the golden files")

// TestDescription: openapi.json is what the handlers are. A test of cmd/stint asks a
// running master whether it answers as described.
func TestDescription(t *testing.T) {
	s := newServer(newFake(t), Options{Version: "1"})
	var got bytes.Buffer
	must(t, json.Indent(&got, describe(s), "", "  "))
	got.WriteByte('\n')
	if *update {
		must(t, os.WriteFile("openapi.json", got.Bytes(), 0o644))
	}
	want, err := os.ReadFile("openapi.json")
	must(t, err)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("openapi.json (-want +got); go test ./coordinator/api -run Description -update, if this is meant:\n%s", diff)
	}
	if served := ask(s, "GET", "/v1/openapi.json", "", "").Body.String(); served != string(want) {
		t.Error("another description is served")
	}
}

// deadlines is a ResponseWriter that records the read deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.last = t; return nil }

// lookingMaster looks at the deadline from within Submit and Pause.
type lookingMaster struct {
	*fakeMaster
	look func()
}

func (m lookingMaster) Submit(ctx context.Context, spec task.TaskSpec) (state.Task, error) {
	m.look()
	return m.fakeMaster.Submit(ctx, spec)
}

func (m lookingMaster) Pause(ctx context.Context, reason, by string) error {
	m.look()
	return m.fakeMaster.Pause(ctx, reason, by)
}

// TestDeadlineOfTheBody: it does not end what the master does with the request, whether that
// has a body or not.
func TestDeadlineOfTheBody(t *testing.T) {
	for path, body := range map[string]string{"/v1/tasks": `{"prompt":"x"}`, "/v1/pause": ""} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder(), last: time.Unix(1, 0)}
		looked := false
		m := lookingMaster{newFake(t), func() { looked = w.last.IsZero() }}
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Content-Type", jsonType)
		if newServer(m, Options{}).ServeHTTP(w, r); w.Code > 299 || !looked {
			t.Errorf("%s: %d, deadline %v while the master was at work", path, w.Code, w.last)
		}
	}
}

func TestDetail(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Running, RunID: "r1", Steps: []state.Step{{RunID: "r1"}}, Title: "one"})
	m.add(state.Task{ID: "b", Status: state.Done, RunID: "../escape"})
	m.write(t, "r1", "run.json", `{"pid":1,"env":["HOME","PATH"]}`)
	m.write(t, "../escape", "run.json", `{"env":["SECRET"]}`)
	s := serve(t, m, Options{})
	v, err := s.client.Task(t.Context(), "a")
	if err != nil || v.RunDir != m.RunDir("r1") || !slices.Equal(v.Env, []string{"HOME", "PATH"}) || v.Why != "it is running" || v.Title != "one" {
		t.Errorf("%+v %v", v, err)
	}
	v, err = s.client.Task(t.Context(), "b")
	if err != nil || v.RunDir != "" || v.Env != nil || v.Why != "" {
		t.Errorf("a run id of a person's: %+v %v", v, err)
	}
	if err := s.client.Logs(t.Context(), "b", "", "stdout", false, io.Discard); !errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		t.Errorf("logs outside of the runs: %v", err)
	}
}

func TestStopAnswersWaits(t *testing.T) {
	m := twoTasks(t)
	s := serve(t, m, Options{Grace: 10 * time.Second})
	errs := make(chan error, 3)
	go func() { _, err := s.client.Wait(context.Background(), "aa-2"); errs <- err }()
	go func() { errs <- s.client.Logs(context.Background(), "aa-2", "", "stdout", true, io.Discard) }()
	go func() {
		err := s.events(func(task.Change) error { return nil })
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = wire.ErrStopping
		}
		errs <- err
	}()
	eventually(t, "three subscribers", func() bool { return m.subscribers() == 3 })
	begun := time.Now()
	if err := s.stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if d := time.Since(begun); d > 5*time.Second {
		t.Errorf("stopping took %v", d)
	}
	for range 3 {
		if err := <-errs; !errors.Is(err, &task.Error{Code: task.CodeStopped}) {
			t.Errorf("%v, want code stopped", err)
		}
	}
}

// TestStopAndASubmit: one that is under way is finished, if there is time for it.
func TestStopAndASubmit(t *testing.T) {
	for grace, finishes := range map[time.Duration]bool{10 * time.Second: true, time.Millisecond: false} {
		m := newFake(t)
		m.held, m.hold = make(chan struct{}), make(chan struct{})
		s := serve(t, m, Options{Grace: grace})
		result, stopped := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := s.client.Submit(context.Background(), task.TaskSpec{Prompt: "x"})
			result <- err
		}()
		<-m.held
		go func() { stopped <- s.stop() }()
		if finishes {
			eventually(t, "the socket is gone", func() bool { _, err := os.Lstat(s.socket); return os.IsNotExist(err) })
			close(m.hold)
		}
		if err := <-stopped; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := <-result; (err == nil) != finishes {
			t.Errorf("with %s left, a submit ends with %v", grace, err)
		}
	}
}
