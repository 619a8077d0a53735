package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// familyOf has a running task aa-1 of the run r-1, its agent's child aa-2, its follow-up aa-5
// and the stranger aa-3.
func familyOf(t testing.TB) *fakeMaster {
	m := newFake(t)
	m.add(state.Task{ID: "aa-1", Status: state.Running, RunID: "r-1"})
	m.add(state.Task{ID: "aa-2", Status: state.Queued, TriggeredBy: "aa-1", Trigger: state.ByAgent})
	m.add(state.Task{ID: "aa-5", Status: state.Queued, TriggeredBy: "aa-1", Trigger: state.OnFailure})
	m.add(state.Task{ID: "aa-3", Status: state.Queued})
	return m
}

// askAs makes a request that says which run it comes from.
func askAs(h http.Handler, run, method, path, body string) *httptest.ResponseRecorder {
	return ask(h, method, path, map[bool]string{true: jsonType}[body != ""], body, wire.RunHeader+": "+run)
}

// TestARunMayOnlyQueueAndRead: of all requests that change something, also of those
// to come, a run may make four, beside the one that cancels what is its own, a search and the list of agents. It may not even read
// what is for administrators.
func TestARunMayOnlyQueueAndRead(t *testing.T) {
	server := newServer(familyOf(t), Options{})
	api := decode[struct{ Paths map[string]map[string]any }](t, ask(server, "GET", "/v1/openapi.json", "", "").Body.Bytes())
	refused := 0
	for path, methods := range api.Paths {
		for method := range methods {
			path := strings.NewReplacer("{id}", "aa-1", "{key}", "web").Replace(path)
			if path == "/v1/events" || strings.HasSuffix(path, "/wait") || strings.HasSuffix(path, "/logs") {
				continue // they read, and last
			}
			w := askAs(server, "r-1", strings.ToUpper(method), path, "")
			may := method == "get" && !strings.HasPrefix(path, adminPath) || path == "/v1/tasks" || path == "/v1/tasks/batch" || path == "/v1/tasks/preview" || path == "/v1/memory/search" || path == "/v1/agents"
			if (w.Code != http.StatusForbidden) != may {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
			if !may {
				refused++
				if p := decode[wire.Problem](t, w.Body.Bytes()); p.Code != task.CodeForbidden || p.Detail != task.ErrFromRun.Message {
					t.Errorf("%s %s: %+v", method, path, p)
				}
			}
		}
	}
	// Not even a task whose id has the name of a path at which a run may POST.
	if w := ask(server, "PATCH", "/v1/tasks/preview", jsonType, "{}", wire.RunHeader+": r-1"); w.Code != http.StatusForbidden {
		t.Errorf("an edit: %d %s", w.Code, w.Body)
	}
	if refused < 8 {
		t.Errorf("%d kinds of requests are refused", refused)
	}
}

// TestRunsCancelTheirOwn: a run may cancel what its task has queued, while it runs.
func TestRunsCancelTheirOwn(t *testing.T) {
	m := familyOf(t)
	server := newServer(m, Options{})
	for _, c := range []struct {
		run, id string
		want    int
	}{{"r-1", "aa-3", 403}, {"r-1", "aa-5", 403}, {"r-1", "aa-1", 403}, {"r-2", "aa-2", 403}, {"r-1", "aa-9", 404}, {"r-1", "aa-2", 200}} {
		if w := askAs(server, c.run, "POST", "/v1/tasks/"+c.id+"/cancel", ""); w.Code != c.want {
			t.Errorf("run %s cancels %s: %d %s", c.run, c.id, w.Code, w.Body)
		}
	}
	if m.by != ledger.ByAgent {
		t.Errorf("it was canceled by %q", m.by)
	}
	if w := askAs(newServer(&lateMaster{m}, Options{}), "r-1", "POST", "/v1/tasks/@last/cancel", ""); w.Code != 200 || m.by != "aa-2" {
		t.Errorf("the task that is canceled is not the one that was looked at: %d, %s", w.Code, m.by)
	}
	m.set("aa-1", func(t *state.Task) { t.Status = state.Done })
	if w := askAs(server, "r-1", "POST", "/v1/tasks/aa-2/cancel", ""); w.Code != 403 {
		t.Errorf("a run that has ended cancels: %d", w.Code)
	}
}

// A lateMaster has another last task as soon as it was asked for it.
type lateMaster struct{ *fakeMaster }

func (m *lateMaster) Task(ctx context.Context, ref string) (state.Task, error) {
	if ref == "@last" {
		ref = "aa-2"
	}
	return m.fakeMaster.Task(ctx, ref)
}

func (m *lateMaster) Cancel(_ context.Context, ref, _ string) (state.Task, error) {
	m.by = ref
	return state.Task{ID: ref}, nil
}

// TestARunWaits: it is told at once where it may not wait; nobody else is.
func TestARunWaits(t *testing.T) {
	m := familyOf(t)
	m.add(state.Task{ID: "aa-4", Status: state.Done, RunID: "r-4"})
	server := newServer(m, Options{})
	for run, want := range map[string]int{"r-4": 409, "r-1": 200, "": 200} {
		for _, path := range []string{"wait", "logs?follow=true"} {
			if w := askAs(server, run, "GET", "/v1/tasks/aa-4/"+path, ""); w.Code != want {
				t.Errorf("run %q, %s: %d %s", run, path, w.Code, w.Body)
			}
		}
	}
	if m.waits != 0 {
		t.Errorf("%d waits are noted still", m.waits)
	}
}

// TestRunIsInTheHeader: the master is told which run a task, a list or a search comes from.
func TestRunIsInTheHeader(t *testing.T) {
	for body, path := range map[string]string{`{"prompt":"x"}`: "/v1/tasks", `[{"prompt":"x"}]`: "/v1/tasks", `{"workspace":"/w","prompt":"x"}`: "/v1/memory/search"} {
		m := familyOf(t)
		if w := askAs(newServer(m, Options{}), "r-1", "POST", path, body); w.Code > 201 || m.run != "r-1" {
			t.Errorf("%s: %d, run %q", body, w.Code, m.run)
		}
	}
}

// TestEnvironmentOfTheCall: it is taken from the owner's own call over the socket alone.
func TestEnvironmentOfTheCall(t *testing.T) {
	for run, want := range map[string][]string{"": {"PATH=/bin"}, "r-1": nil} {
		m := familyOf(t)
		var looked []string
		probed := false
		server := newServer(m, Options{LookAtAgents: func(_ context.Context, env []string, probe bool) []wire.AgentView {
			looked, probed = env, probe
			return nil
		}})
		for path, body := range map[string]string{"/v1/tasks": `{"prompt":"x","environment":["PATH=/bin"]}`, "/v1/agents": `{"environment":["PATH=/bin"],"probe":true}`} {
			if w := askAs(server, run, "POST", path, body); w.Code > 201 {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		if !slices.Equal(m.env, want) || !slices.Equal(looked, want) || probed != (run == "") {
			t.Errorf("run %q: a task gets %q, agents are looked for in %q, started: %t", run, m.env, looked, probed)
		}
	}
}
