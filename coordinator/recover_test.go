package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"stint/coordinator/task"
	"stint/state"
)

// interrupted returns a world whose state directory is what a kill -9 leaves while
// the task with that id runs.
func interrupted(t *testing.T) (next *world, id string) {
	t.Helper()
	return interruptedIn(t, "")
}

// interruptedIn is interrupted in a session of the agent's.
func interruptedIn(t *testing.T, session string) (next *world, id string) {
	t.Helper()
	w := newWorld(t)
	begun := make(chan struct{})
	w.agent.do = func(ctx context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
		report(task.Event{Session: session})
		close(begun)
		<-ctx.Done()
		return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
	}
	w.open()
	id = w.submit(task.TaskSpec{Prompt: "long"}).ID
	<-begun
	next = newWorld(t)
	next.copies(w)
	w.close()
	return next, id
}

// copies makes the state directory of w what a kill -9 of other's master leaves at
// this moment. Files that come and go meanwhile make it begin again.
func (w *world) copies(other *world) {
	w.t.Helper()
	err := fs.ErrNotExist
	for errors.Is(err, fs.ErrNotExist) {
		if err = os.RemoveAll(w.dir); err == nil {
			err = os.CopyFS(w.dir, os.DirFS(other.dir))
		}
	}
	check(w.t, err)
}

// edit appends a section to tasks.md, as a person would who sees all that was
// acknowledged. A master that is closed has written that already.
func (w *world) edit(format string, args ...any) {
	w.t.Helper()
	if w.live {
		_, _ = w.c.Reconcile(context.Background(), false)
	}
	f, err := os.OpenFile(filepath.Join(w.dir, "tasks.md"), os.O_APPEND|os.O_WRONLY, 0)
	check(w.t, err)
	_, err = fmt.Fprintf(f, format, args...)
	check(w.t, errors.Join(err, f.Close()))
}

// TestEditedWhileItsMasterWasDead: a person requeues or cancels a task whose
// master was killed. Its old run is proved dead before anything else.
func TestEditedWhileItsMasterWasDead(t *testing.T) {
	t.Parallel()
	for _, status := range []state.Status{state.Queued, state.Canceled} {
		next, id := interrupted(t)
		next.edit("\n## Task %s\n- status: %s\n", id, status)
		proofs := 0
		next.cfg.Recover = func(context.Context, string, string) error {
			proofs++
			if len(next.agent.turns) > 0 {
				t.Error("the task was started again before its old run was proved dead")
			}
			return errors.New("pid 42 is still there")
		}
		next.open()
		next.expect(next.wait(next.submit(task.TaskSpec{Prompt: "another", SessionKey: "s"}).ID), state.Done, "")
		got, err := next.c.Task(context.Background(), id)
		if err != nil || proofs != 1 || got.Status != status || got.Hold != (status == state.Queued) {
			t.Errorf("%d proofs, and the task is %s, held %v, %v", proofs, got.Status, got.Hold, err)
		}
		next.close()
	}
}

// TestEditWhileRecovering: what a person says while the old run is being proved dead counts.
func TestEditWhileRecovering(t *testing.T) {
	t.Parallel()
	next, id := interrupted(t)
	next.cfg.Recover = func(context.Context, string, string) error {
		next.edit("\n## Task %s\n- status: canceled\n", id)
		got, err := next.c.Wait(context.Background(), id)
		next.expect(got, state.Canceled, "")
		return err
	}
	next.open()
	next.expect(next.wait(next.submit(task.TaskSpec{Prompt: "another", SessionKey: "s"}).ID), state.Done, "")
	next.expect(next.wait(id), state.Canceled, "")
	next.close()
}

// TestShutdownWhileRecovering leaves the task to the next master.
func TestShutdownWhileRecovering(t *testing.T) {
	t.Parallel()
	next, id := interrupted(t)
	next.cfg.Recover = func(ctx context.Context, _, _ string) error {
		next.stop()
		<-ctx.Done()
		return ctx.Err()
	}
	next.open()
	check(t, <-next.ran)
	next.ran <- nil
	next.close()
	next.cfg.Recover = nil
	next.open()
	got := next.wait(id)
	next.close()
	next.expect(got, state.Done, "")
	if got.Retries != 1 || got.Hold {
		t.Errorf("%d retries, held %v", got.Retries, got.Hold)
	}
}
