package coordinator_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"stint/coordinator"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// inOneBatch makes changes that the log's goroutine finds waiting at the same time, in that order.
func (w *world) inOneBatch(changes ...func()) {
	w.t.Helper()
	var wg sync.WaitGroup
	hold := make(chan struct{})
	wg.Go(func() {
		check(w.t, w.c.Occupy(func() { <-hold }))
	})
	synctest.Wait()
	for _, change := range changes {
		wg.Go(change)
		synctest.Wait()
	}
	close(hold)
	wg.Wait()
	synctest.Wait()
}

// sections returns the records of the journal.
func (w *world) sections() []ledger.Section {
	w.t.Helper()
	return ledger.Parse([]byte(read(w.t, w.dir, ledger.JournalName))).Sections
}

// TestNothingStartsAgainstAChangeOfItsBatch: whatever forbids the start of task 1 and waits
// for the log beside it, in either order: the start has no record behind that of the change.
// Task 0 is at work, the others are ready.
func TestNothingStartsAgainstAChangeOfItsBatch(t *testing.T) {
	t.Parallel()
	notShort(t)
	names := func(id, key, value string) func(*ledger.Section) bool {
		return func(s *ledger.Section) bool { return string(s.ID) == id && s.Value(key) == value }
	}
	ctx, account := context.Background(), state.ControlAccount+"demo"
	for name, tc := range map[string]struct {
		workers int // 0: 4
		lane    string
		change  func(*world) error
		ends    state.Class // without a change: how task 0 ends
		closes  func(*ledger.Section) bool
	}{
		"pause": {closes: names(state.ControlDispatch, state.KeyPaused, "true"), change: func(w *world) error { return w.c.Pause(ctx, "", "client") }},
		"hold": {closes: names(taskID(1), state.KeyHold, "true"), change: func(w *world) error {
			_, err := w.c.Hold(ctx, taskID(1), "client")
			if code(err) == task.CodeConflict { // it runs already
				err = nil
			}
			return err
		}},
		"limit": {closes: names(account, state.KeyReason, string(state.ClassRateLimited)), ends: state.ClassRateLimited},
		"auth":  {closes: names(account, state.KeyHold, "true"), ends: state.ClassAuth},
		"move": {lane: "web", closes: func(s *ledger.Section) bool { return s.Get(state.KeyOrder) != nil }, change: func(w *world) error {
			_, err := w.c.Move(ctx, taskID(2), task.Place{First: true}, "client")
			return err
		}},
		"edit": {workers: 2, closes: names(taskID(2), state.KeyPriority, "9"), change: func(w *world) error {
			_, err := w.patch(taskID(2), `{"priority":9}`)
			return err
		}},
		"cancel": {closes: names(taskID(1), state.KeyStatus, string(state.Canceled)), change: func(w *world) error {
			_, err := w.c.Cancel(ctx, taskID(1), "client")
			return err
		}},
	} {
		for _, order := range []string{"first", "last"} {
			bubble(t, name+" "+order, func(t *testing.T) {
				w, outcome := newWorld(t), make(chan task.Outcome)
				w.cfg.MaxWorkers = cmp.Or(tc.workers, 4)
				w.agent.do = func(ctx context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
					ends := outcome
					if turn.TaskID != taskID(0) {
						ends = nil
					}
					select {
					case <-ctx.Done():
						return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
					case out := <-ends:
						return out
					}
				}
				c, err := coordinator.OpenUnwatched(w.cfg)
				check(t, err)
				w.c = c
				w.submit(task.TaskSpec{ID: taskID(0), Prompt: "p", Parallel: true})
				c.Dispatch()
				synctest.Wait()
				for i := 1; i < 3; i++ {
					w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", SessionKey: tc.lane, Parallel: tc.lane == ""})
				}
				change := func() {
					if tc.change == nil {
						outcome <- task.Outcome{Class: tc.ends, ExitCode: 1, Error: "no"}
						return
					}
					check(t, tc.change(w))
				}
				before := len(w.sections())
				if order == "first" {
					w.inOneBatch(change, c.Dispatch)
				} else {
					w.inOneBatch(c.Dispatch, change)
				}
				closed, started := false, false
				for _, s := range w.sections()[before:] {
					starts := string(s.ID) == taskID(1) && s.Value(state.KeyStatus) == string(state.Running) && s.Value(state.KeyRunID) != ""
					if closed && starts {
						t.Error("it starts behind the change that forbids it")
					}
					closed, started = closed || tc.closes(&s), started || starts
				}
				if order == "first" && !closed || order == "last" && !started {
					t.Errorf("the change was made: %v; the task was started: %v", closed, started)
				}
				w.start(c, nil) // with the checks of its end
			})
		}
	}
}
