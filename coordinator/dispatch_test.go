package coordinator_test

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// TestATimeThatComesWhileTheDispatcherLooks: the clock goes on between the look at what is ready and the one
// at what comes next. A retry whose time comes just then is not left for the next change.
func TestATimeThatComesWhileTheDispatcherLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var looks atomic.Int64
		w.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(looks.Add(1)) * time.Millisecond) }
		w.cfg.MaxAttempts, w.cfg.Rand = 40, func() float64 { return 0.5 }
		for base := time.Millisecond; base <= 20*time.Millisecond; base += time.Millisecond {
			w.cfg.BackoffBase, w.cfg.BackoffMax = base, base
			failed := task.Outcome{Class: state.ClassNetwork, ExitCode: 1}
			w.outcomes(failed, failed, task.Outcome{Result: "fine"})
			w.openUnwatched()
			begun := time.Now()
			got := w.ended(w.submit(task.TaskSpec{Prompt: "p"}).ID)
			if took := time.Since(begun); got.Status != state.Done || took > time.Minute {
				t.Errorf("waits of %s: %s after %s", base, got.Status, took)
			}
			w.close()
		}
	})
}

// TestAMasterThatIsNotIdleSleeps: one that goes away when nothing is to be done does
// not look all the time whether that is so while a task runs or waits.
func TestAMasterThatIsNotIdleSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.IdleExit, w.cfg.Timeout = 30*time.Second, 2*time.Hour
		var looks atomic.Int64
		w.cfg.Now = func() time.Time {
			looks.Add(1)
			return time.Now()
		}
		w.script(map[string][]step{taskID(1): {{time.Hour, task.Outcome{Result: "fine"}}}})
		w.openUnwatched()
		w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", NotBefore: w.cfg.Now().Add(time.Hour)})
		begun := time.Now()
		check(t, <-w.ran)
		if took := time.Since(begun).Round(time.Second); took != 2*time.Hour+w.cfg.IdleExit || looks.Load() > 5000 {
			t.Errorf("it went away after %s, and looked %d times at the clock", took, looks.Load())
		}
		w.ran <- nil
	})
}

// TestByHandInASession: a task that was written into a session by hand goes on with
// its agent, whatever comes behind it, and in the native session that it names itself.
func TestByHandInASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Agents["codex"] = w.agent
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		return task.Outcome{Result: "fine", Session: cmp.Or(turn.Session, "n-"+turn.TaskID)}
	}
	w.open()
	old := w.wait(w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Agent: "demo"}).ID)
	check(t, w.c.Pause(t.Context(), "", "client"))
	w.reconcile("## Task hand\n- status: queued\n- sessionKey: web\n- prompt: p\n")
	behind := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Agent: "codex"})
	check(t, w.c.Resume(t.Context(), "client"))
	if got := w.wait("hand"); got.Agent != "demo" || got.SessionID != old.SessionID {
		t.Errorf("it went on with %s in %s", got.Agent, got.SessionID)
	}
	w.wait(behind.ID)
	w.reconcile("## Task named\n- status: queued\n- sessionKey: web\n- agent: demo\n- demoSessionId: mine\n- prompt: p\n")
	named := w.wait("named")
	if named.AgentSession != "mine" || named.SessionID == old.SessionID {
		t.Errorf("the session %s is that of %s", named.SessionID, named.AgentSession)
	}
	if next := w.wait(w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Agent: "demo"}).ID); next.AgentSession != "mine" {
		t.Errorf("the next one went on with %s", next.AgentSession)
	}
}

// TestTheMachineSleeps: a time that has come while the machine was suspended, or that a
// clock which was set has passed, is noticed soon after.
func TestTheMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var slept atomic.Int64
		w.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		w.openUnwatched()
		id := w.submit(task.TaskSpec{Prompt: "p", NotBefore: w.cfg.Now().Add(9 * time.Hour)}).ID
		time.Sleep(time.Minute)
		slept.Store(int64(9 * time.Hour))
		begun := time.Now()
		got := w.ended(id)
		w.close()
		if took := time.Since(begun); got.Status != state.Done || took > time.Minute {
			t.Errorf("%s %s after the machine woke up", got.Status, took)
		}
	})
}

// TestDependantsFailWithTheReason: what comes after a task that failed, was canceled, or was
// ended by a person in tasks.md, fails too, and what comes after that; also over a restart.
func TestDependantsFailWithTheReason(t *testing.T) {
	w := newWorld(t)
	w.outcomes(task.Outcome{Class: state.ClassVerify, Error: "it took\ntoo long", ExitCode: 1})
	w.open()
	add := func(after ...string) string {
		return w.submit(task.TaskSpec{Prompt: "p", After: after, Parallel: true, Hold: len(after) == 0}).ID
	}
	a, canceled, byHand := add(), add(), add()
	b := add(a)
	w.release(a)
	w.cancel(canceled)
	w.reconcile("## Task %s\n- status: failed\n- error: no more\n", byHand)
	for id, want := range map[string]string{
		b:             "it comes after " + state.ShortID(a) + ", which ended failed (verify): it took too long",
		add(b):        "it comes after " + state.ShortID(b) + ", which ended failed (verify): it comes after " + state.ShortID(a) + ", which ended failed (verify): it took too long",
		add(canceled): "it comes after " + state.ShortID(canceled) + ", which ended canceled",
		add(byHand):   "it comes after " + state.ShortID(byHand) + ", which ended failed: no more",
	} {
		if got := w.wait(id); got.Status != state.Failed || got.Error != want || got.Result != want || got.Attempt != 0 {
			t.Errorf("%s: %s\nwant %s, with %d attempts", got.Status, got.Error, want, got.Attempt)
		}
	}
	if _, err := w.c.Retry(t.Context(), b, "client"); code(err) != task.CodeConflict || !strings.Contains(err.Error(), "comes after "+a+", which is failed; first: stint retry "+a) {
		t.Errorf("a retry that cannot succeed: %v", err)
	}
	w.moveOut()
	w.restart()
	w.expect(w.wait(add(byHand)), state.Failed, state.ClassExit)
}

// TestHandEditsMakeNoCycle: nor do two sections of the same save; it is told as long as it stands there.
func TestHandEditsMakeNoCycle(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	for _, also := range []string{"## Task x\n- status: queued\n- prompt: p\n- after: y\n\n## Task y\n- status: queued\n- prompt: p\n- after: x\n", ""} {
		r := w.reconcile("%s", also)
		if n := len(r.Findings); n != 1 || r.Findings[0].Line == 0 || !strings.Contains(r.Findings[0].Message, "it would wait for itself: y comes after x, x comes after y") {
			t.Errorf("the findings are %v", r.Findings)
		}
	}
	if list := w.c.Health().Findings; len(list) != 1 {
		t.Errorf("a refused section is in the journal: %q", list)
	}
}
