package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// A missingWorld has an agent whose program a test takes away and brings back.
type missingWorld struct {
	*world
	away atomic.Bool
	runs atomic.Int32 // that found no program
}

// inMissing runs a test in a bubble with a master whose agent has run once.
func inMissing(t *testing.T, f func(*missingWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &missingWorld{world: newWorld(t)}
		w.cfg.AgentFound = func(string, []string) bool { return !w.away.Load() }
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			if w.away.Load() {
				w.runs.Add(1)
				return task.Outcome{Class: state.ClassAgentMissing, ExitCode: -1, Error: "demo: not found in PATH"}
			}
			return task.Outcome{Result: "fine", Session: "native-" + turn.TaskID}
		}
		w.openUnwatched()
		w.ended(w.submit(task.TaskSpec{Prompt: "the first one"}).ID)
		f(w)
	})
}

// TestMissingForAMoment: a program that is back within the short retry is missed by
// nobody: no attempt is spent, and the ledger says nothing of it.
func TestMissingForAMoment(t *testing.T) {
	t.Parallel()
	inMissing(t, func(w *missingWorld) {
		w.away.Store(true)
		id := w.submit(task.TaskSpec{Prompt: "p"}).ID
		time.Sleep(time.Second)
		w.away.Store(false)
		got := w.ended(id)
		if w.expect(got, state.Done, ""); got.Attempt != 1 || got.Retries != 0 || w.runs.Load() != 1 || len(w.controls()) > 0 {
			t.Errorf("attempt %d, retries %d, %d runs without a program, controls %q", got.Attempt, got.Retries, w.runs.Load(), w.controls())
		}
	})
}

// TestMissingProgramHoldsItsAccount: while the program is away, over a restart too, few runs look for it; its
// tasks wait and say why, those of others run, and all goes on soon after it is back, with no attempt spent.
func TestMissingProgramHoldsItsAccount(t *testing.T) {
	t.Parallel()
	inMissing(t, func(w *missingWorld) {
		w.cfg.Agents["other"] = &fakeAgent{do: answer("fine")}
		w.close()
		w.openUnwatched()
		w.away.Store(true)
		var ids []string
		for i := range 20 {
			ids = append(ids, w.submit(task.TaskSpec{Prompt: fmt.Sprint("p", i), Parallel: true, Fallback: []string{"other"}}).ID)
		}
		time.Sleep(time.Minute)
		for _, id := range ids {
			if why := w.why(id); !strings.HasPrefix(why, "account demo is on hold: agent-missing: demo: not found in PATH; its tasks start by themselves when the program is back") {
				t.Errorf("why: %s", why)
			}
		}
		w.expect(w.ended(w.submit(task.TaskSpec{Prompt: "p", Agent: "other", Parallel: true}).ID), state.Done, "")
		seen := len(w.sections())
		w.close()
		w.openUnwatched()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(w.sections()); n != seen || w.runs.Load() > int32(2*w.cfg.MaxWorkers) {
			t.Errorf("%d runs looked for the program; the ledger grew from %d to %d records", w.runs.Load(), seen, n)
		}
		w.away.Store(false)
		back := time.Now()
		for _, id := range ids {
			if got := w.ended(id); got.Status != state.Done || got.Attempt != 1 || got.Agent != "demo" {
				t.Errorf("%s (%s) with %s after %d attempts", got.Status, got.Reason, got.Agent, got.Attempt)
			}
		}
		if took := time.Since(back); took > 6*time.Second {
			t.Errorf("it went on %s after the program was back", took)
		}
		for _, a := range w.c.Accounts() {
			if a.Hold || a.Reason != "" {
				t.Errorf("%+v", a)
			}
		}
	})
}

// TestMissingInOnePath: a task whose own PATH has no program fails, and the others go on.
func TestMissingInOnePath(t *testing.T) {
	t.Parallel()
	inMissing(t, func(w *missingWorld) {
		lacks := []string{"PATH=/nothing"}
		w.cfg.AgentFound = func(_ string, env []string) bool { return !slices.Equal(env, lacks) }
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			if slices.Equal(turn.Env, lacks) {
				return task.Outcome{Class: state.ClassAgentMissing, ExitCode: -1, Error: "demo: not found in PATH"}
			}
			return task.Outcome{Result: "fine"}
		}
		w.close()
		w.openUnwatched()
		got := w.ended(w.submit(task.TaskSpec{Prompt: "p", Environment: lacks}).ID)
		if w.expect(got, state.Failed, state.ClassAgentMissing); !strings.HasPrefix(got.Error, "demo: not found in PATH; other tasks find it") || len(w.controls()) > 0 {
			t.Errorf("error %q, controls %q", got.Error, w.controls())
		}
		w.expect(w.ended(w.submit(task.TaskSpec{Prompt: "p"}).ID), state.Done, "")
	})
}

// TestMissingAgainAndAgain: a program that seems to be there, and that no run finds, does
// not go on for ever. A retry begins anew.
func TestMissingAgainAndAgain(t *testing.T) {
	t.Parallel()
	inMissing(t, func(w *missingWorld) {
		w.cfg.AgentFound = nil
		w.close()
		w.openUnwatched()
		w.away.Store(true)
		id := w.submit(task.TaskSpec{Prompt: "p"}).ID
		got := w.ended(id)
		if w.expect(got, state.Dead, state.ClassAgentMissing); got.Attempt != 0 || w.runs.Load() != int32(2*(w.cfg.MaxRetries+1)) {
			t.Errorf("attempt %d, %d runs", got.Attempt, w.runs.Load())
		}
		w.away.Store(false)
		w.retry(id)
		w.expect(w.ended(id), state.Done, "")
	})
}

// TestOtherHoldsStay: a hold by a person or for a login is not ended because the program is there.
func TestOtherHoldsStay(t *testing.T) {
	t.Parallel()
	inMissing(t, func(w *missingWorld) {
		for _, reason := range []string{"", "my own, agent-missing or not", "not logged in; met by task 1"} {
			rec := &ledger.Record{Kind: ledger.KindControl, ID: state.ControlAccount + "demo"}
			check(t, w.c.Append(rec.Add(state.KeyHold, "true").Add(state.KeyReason, reason)))
			id := w.submit(task.TaskSpec{Prompt: "p"}).ID
			time.Sleep(time.Hour)
			if why := w.why(id); !strings.HasPrefix(why, "account demo is on hold") || !strings.Contains(why, "stint account enable demo") {
				t.Errorf("why: %s", why)
			}
			w.cancel(id)
		}
	})
}

// TestMissingAndCanceled: a task is canceled while it waits to look again, and a shutdown
// does not wait for it.
func TestMissingAndCanceled(t *testing.T) {
	t.Parallel()
	inMissing(t, func(w *missingWorld) {
		w.away.Store(true)
		canceled := w.submit(task.TaskSpec{Prompt: "p"}).ID
		time.Sleep(time.Second)
		w.cancel(canceled)
		w.expect(w.task(canceled), state.Canceled, state.ClassCanceled)
		next := w.submit(task.TaskSpec{Prompt: "p"}).ID
		time.Sleep(time.Second)
		w.close()
		w.away.Store(false)
		w.openUnwatched()
		if got := w.ended(next); got.Status != state.Done || got.Retries != 1 {
			t.Errorf("%s (%s), retries %d", got.Status, got.Reason, got.Retries)
		}
	})
}

// TestMissingProgramThatHangs: while a program is looked for that is there and does not
// answer, tasks of other agents start at once.
func TestMissingProgramThatHangs(t *testing.T) {
	t.Parallel()
	inMissing(t, func(w *missingWorld) {
		w.cfg.Agents["other"] = &fakeAgent{do: answer("fine")}
		w.cfg.AgentFound = func(string, []string) bool { time.Sleep(11 * time.Second); return !w.away.Load() }
		w.close()
		w.openUnwatched()
		w.away.Store(true)
		id := w.submit(task.TaskSpec{Prompt: "p", Parallel: true}).ID
		time.Sleep(10 * time.Second)
		for range 20 {
			begun := time.Now()
			w.ended(w.submit(task.TaskSpec{Prompt: "p", Agent: "other", Parallel: true}).ID)
			if took := time.Since(begun); took > time.Second {
				t.Fatalf("a task of another agent took %s", took)
			}
			time.Sleep(700 * time.Millisecond)
		}
		w.away.Store(false)
		w.expect(w.ended(id), state.Done, "")
	})
}
