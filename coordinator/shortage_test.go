package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator"
	"stint/state"
)

// TestShortage: a run that cannot begin because the machine lacks something begins
// when that is back. It spends neither attempts nor retries, waits between two
// tries, and says what is lacking.
func TestShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		back := time.Now().Add(time.Hour)
		tries := 0
		w.agent.do = func(context.Context, coordinator.Turn, func(coordinator.Event)) coordinator.Outcome {
			if tries++; time.Now().After(back) {
				return coordinator.Outcome{Result: "fine"}
			}
			return coordinator.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Error: "too many open files", Shortage: true}
		}
		w.openUnwatched()
		id := w.submit(coordinator.TaskSpec{Prompt: "p"}).ID
		time.Sleep(time.Minute)
		if why, err := w.c.Why(id); err != nil || !strings.HasSuffix(why, ": too many open files") {
			t.Errorf("why: %s, %v", why, err)
		}
		got := w.ended(id)
		w.close()
		w.expect(got, state.Done, "")
		if late := time.Since(back); got.Attempt != 1 || got.Retries != 0 || tries > 250 || late > time.Minute {
			t.Errorf("attempt %d, %d retries, %d tries, begun %s after it was back", got.Attempt, got.Retries, tries, late)
		}
	})
}

// TestShortageOfAReleasedTask: also a task whose retries are used up waits, as one may
// that a person has released.
func TestShortageOfAReleasedTask(t *testing.T) {
	w, id := interrupted(t)
	w.cfg.MaxRetries = 0
	w.cfg.Recover = func(context.Context, string, string) error { return errors.New("pid 42 is still there") }
	w.outcomes(coordinator.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Shortage: true}, coordinator.Outcome{Result: "fine"})
	w.open()
	w.until(id, (*state.Task).Orphaned)
	if _, err := w.c.Release(t.Context(), id, "client"); err != nil {
		t.Fatal(err)
	}
	got := w.wait(id)
	w.close()
	w.expect(got, state.Done, "")
}

// TestInterruptedWhileWeGoOn: a run that ends through us, though we do not, is tried
// again after a wait, and not for ever.
func TestInterruptedWhileWeGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		w.agent.do = func(context.Context, coordinator.Turn, func(coordinator.Event)) coordinator.Outcome {
			return coordinator.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Error: "the gate was killed"}
		}
		w.openUnwatched()
		begun := time.Now()
		got := w.ended(w.submit(coordinator.TaskSpec{Prompt: "p"}).ID)
		w.close()
		w.expect(got, state.Dead, state.ClassInterrupted)
		if took := time.Since(begun); len(w.agent.turns) != 1+w.cfg.MaxRetries || took < 5*time.Minute {
			t.Errorf("%d runs in %s", len(w.agent.turns), took)
		}
	})
}

func TestIsShortage(t *testing.T) {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		if !coordinator.IsShortage(fmt.Errorf("mkdir: %w", e)) {
			t.Errorf("%v is no shortage", e)
		}
	}
	for _, e := range []error{nil, syscall.ENOENT, syscall.EIO, context.Canceled} {
		if coordinator.IsShortage(e) {
			t.Errorf("%v is a shortage", e)
		}
	}
}
