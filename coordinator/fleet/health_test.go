package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// TestStep is the state machine: what a check makes of each state.
func TestStep(t *testing.T) {
	t.Parallel()
	const unknown, running, idle, failed = "", state.HealthRunning, state.HealthIdle, state.HealthFailed
	for _, c := range []struct {
		was       string
		fails     int
		isFailure bool
		isActive  bool
		want      string
		wantFails int
	}{
		{unknown, 0, false, false, running, 0},
		{unknown, 2, false, false, running, 0},
		{unknown, 0, true, false, unknown, 1},
		{unknown, 1, true, false, unknown, 2},
		{unknown, 2, true, false, failed, 3},
		{running, 0, false, false, running, 0},
		{running, 0, true, false, unknown, 1},
		{failed, 3, true, false, failed, 4},
		{failed, 9, false, false, running, 0},
		{idle, 0, false, false, idle, 0},
		{idle, 0, false, true, running, 0},
		{idle, 0, true, false, unknown, 1},
	} {
		got := state.Control{Health: c.was, FailCount: c.fails}
		if step(&got, c.isFailure, c.isActive); got.Health != c.want || got.FailCount != c.wantFails {
			t.Errorf("%+v: %q after %d", c, got.Health, got.FailCount)
		}
	}
}

// TestLife leads an instance through all its states, by the jobs.
func TestLife(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	in := h.instance("a", g.URL)
	in.ActivityField = "last.dialogue"
	w := newWorld(t, nil, in)
	used := func(at time.Time) { g.says(200, fmt.Sprintf(`{"last": {"dialogue": %d}}`, at.UnixMilli())) }
	w.is("a", "unknown", 0)
	used(start)
	w.well("health_check", "1 run")
	w.is("a", "running", 0)
	for n, answer := range []func(){
		func() { g.says(500, "no "+secret) }, func() { g.says(302, "") },
		func() { g.set(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }) },
	} {
		answer()
		w.fails("health_check", "1 of 1 failed: a: ", []string{"answered 500", "answered 302", "does not answer: EOF"}[n])
		w.is("a", map[bool]string{true: "failed", false: "unknown"}[n == 2], n+1)
	}
	w.fails("health_check")
	if w.is("a", "failed", 4); len(w.told) != 1 || w.told[0] != "instance-failed a: instance a on "+h.name+" has failed: stint instance show a" {
		t.Errorf("told of %q", w.told)
	}

	h.set("broken")
	w.fails("auto_recovery", "a: server "+h.name+": Job for claw@a.service failed")
	h.unset("broken")
	h.set("user")
	h.set("denied")
	w.fails("auto_recovery", "sudo: a password is required")
	h.unset("denied")
	g.set(func(rw http.ResponseWriter, _ *http.Request) { w.pass(time.Minute); rw.WriteHeader(503) })
	w.fails("auto_recovery", "it was restarted, and the gateway answered 503")
	w.is("a", "failed", 4)
	used(start)
	w.well("auto_recovery", "restarted 1")
	w.is("a", "running", 0)
	w.well("auto_recovery", "restarted 0")

	w.well("idle_instance_mark", "marked 0 of 1 idle")
	w.pass(7 * 24 * time.Hour)
	for text, want := range map[string]string{`{"last": {"dial`: "the gateway's answer: it is no object", `{"last": {"dialogue": "yesterday"}}`: `"yesterday" is no time`} {
		g.says(200, text)
		w.fails("idle_instance_mark", want)
	}
	g.says(200, `{"last": {"dialogue": true}}`)
	w.well("idle_instance_mark", "marked 0 of 1 idle") // nobody knows
	w.is("a", "running", 0)
	used(start)
	w.well("idle_instance_mark", "marked 1 of 1 idle")
	w.well("health_check", "1 run")
	w.is("a", "idle", 0)
	g.says(200, `{"last`)
	w.well("health_check", "1 run") // it answers
	w.is("a", "idle", 0)
	used(w.clock())
	w.well("health_check", "1 run")
	w.is("a", "running", 0)
}

// TestAct does one thing at once, as a person asks for it.
func TestAct(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	w := newWorld(t, nil, h.instance("a", g.URL))
	for act, want := range map[string]string{"check": "it answers", "sync": `agents.defaults.model.primary is "old", not "new"`, "recover": "it was restarted, and answers"} {
		if detail, err := w.Act(t.Context(), "a", act, false); err != nil || detail != want {
			t.Errorf("%s: %s, %v", act, detail, err)
		}
	}
	g.says(500, "")
	_, err := w.Act(t.Context(), "a", "check", false)
	if !errors.Is(err, &task.Error{Code: task.CodeConflict}) || !strings.Contains(err.Error(), "instance a: the gateway answered 500") {
		t.Error(err)
	}
	if in, err := w.Instance("a"); err != nil || in.Detail != "the gateway answered 500" || !in.CheckedAt.Equal(start) {
		t.Errorf("%+v, %v", in, err)
	}
}

// TestActivityCommand asks the server when an instance was used last.
func TestActivityCommand(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	in := h.instance("a", g.URL)
	in.ActivityCommand = `cat '` + h.dir + `/used' | head -n 1; echo "$HOME" >/dev/null`
	w := newWorld(t, nil, in)
	w.well("health_check", "1 run")
	w.pass(8 * 24 * time.Hour)
	h.write("used", "", 0o600)
	w.well("idle_instance_mark", "marked 0 of 1 idle")
	h.write("used", "rubbish\n", 0o600)
	w.fails("idle_instance_mark", `"rubbish" is no time of its last dialogue`)
	h.write("used", start.Format(time.RFC3339)+"\n", 0o600)
	_, err := w.Claim(t.Context(), "a", "ana", "") // who has it only since now will use it yet
	must(t, err)
	w.well("idle_instance_mark", "marked 0 of 1 idle")
	w.pass(7 * 24 * time.Hour)
	w.well("idle_instance_mark", "marked 1 of 1 idle")
	h.write("used", fmt.Sprint(w.clock().Unix()), 0o600)
	w.well("health_check", "1 run")
	w.is("a", "running", 0)
}

// TestSlowAndWrongGateways do not keep others from being checked.
func TestSlowAndWrongGateways(t *testing.T) {
	t.Parallel()
	slow, much, gone, g := newGateway(t), newGateway(t), newGateway(t), newGateway(t)
	in := func(id, url string) Instance {
		return Instance{ID: id, Server: "s", ConfigPath: "/c/" + id, Service: "a", Gateway: url}
	}
	slow.set(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	much.says(200, strings.Repeat("x", maxGateway+1))
	gone.Close()
	w := newWorld(t, nil, in("slow", slow.URL), in("much", much.URL), in("gone", strings.Replace(gone.URL, "://", "://me:"+secret+"@", 1)+"/?token="+secret), in("well", g.URL))
	w.client.Timeout = 200 * time.Millisecond
	w.fails("health_check", "3 of 4 failed: gone: 127.0.0.1:", "connection refused", "much: 127.0.0.1:", "more than 1048576 bytes", "slow: 127.0.0.1:", "does not answer: context deadline exceeded")
	w.is("well", "running", 0)
	ctx, cancel := context.WithCancel(t.Context())
	slow.set(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	if _, err := w.Jobs()["health_check"](ctx); err == nil {
		t.Error("a check that was interrupted succeeds")
	}
	w.is("slow", "unknown", 1) // and counts for nothing
}

// TestManyInstances is a round of checks of 200 instances on ten servers, and of the servers.
func TestManyInstances(t *testing.T) {
	t.Parallel()
	h, g := newHost(t), newGateway(t)
	var list []Instance
	for i := range 200 {
		list = append(list, Instance{ID: fmt.Sprintf("i%03d", i), Server: fmt.Sprintf("%s-%d", h.name, i%10), ConfigPath: fmt.Sprintf("/c/%d", i), Service: "a", Gateway: fmt.Sprintf("%s/%d", g.URL, i)})
	}
	w := newWorld(t, nil, list...)
	begin := time.Now()
	w.well("health_check", "200 run")
	checked := time.Now()
	w.well("server_metrics", "sampled 10")
	t.Logf("checks of 200 instances on 10 servers: %v; samples of the servers: %v", checked.Sub(begin), time.Since(checked))
	servers, err := w.Servers()
	for _, s := range servers {
		if s.Instances != 20 || s.Last == nil {
			t.Errorf("%+v", s)
		}
	}
	if must(t, err); len(servers) != 10 {
		t.Errorf("%d servers", len(servers))
	}
	for _, in := range w.Instances() {
		w.is(in.ID, "running", 0)
	}
	if fi, err := os.Stat(filepath.Join(w.dir, metricsName)); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
}
