package coordinator_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"stint/coordinator"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// inOneBatch makes changes that the log's goroutine finds waiting at the same time, in
// that order.
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
	text, err := os.ReadFile(filepath.Join(w.dir, ledger.JournalName))
	check(w.t, err)
	return ledger.Parse(text).Sections
}

// startsOf returns the predicate that finds the start of an agent's turn for a task.
func startsOf(id string) func(*ledger.Section) bool {
	return func(s *ledger.Section) bool {
		return string(s.ID) == id && s.Value(state.KeyStatus) == string(state.Running) && s.Value(state.KeyRunID) != "" && s.Value(state.KeyPhase) == ""
	}
}

// TestNothingStartsAgainstAChangeOfItsBatch: whatever forbids a start and waits for the
// log beside it, in either order: no start has its record behind that of the change.
// Task 0 is at work, or between the turns of a verify loop, the others are ready.
func TestNothingStartsAgainstAChangeOfItsBatch(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ok := func(w *world, err error) {
		if err != nil {
			w.t.Error(err)
		}
	}
	names := func(id, key, value string) func(*ledger.Section) bool {
		return func(s *ledger.Section) bool { return string(s.ID) == id && s.Value(key) == value }
	}
	ends := func(class state.Class) func(*batchWorld) {
		return func(w *batchWorld) {
			w.outcome <- task.Outcome{Class: class, ExitCode: 1, Error: "no"}
			<-w.ended
		}
	}
	account := state.ControlAccount + "demo"
	for _, tc := range []struct {
		name    string
		workers int // 0: 4
		lane    string
		loop    bool // what starts is the next turn of task 0
		change  func(*batchWorld)
		closes  func(*ledger.Section) bool
		task    int // that is not to start
	}{
		{name: "pause", task: 1, closes: names(state.ControlDispatch, state.KeyPaused, "true"), change: func(w *batchWorld) {
			ok(w.world, w.c.Pause(context.Background(), "", "client"))
		}},
		{name: "hold", task: 1, closes: names(taskID(1), state.KeyHold, "true"), change: func(w *batchWorld) {
			_, err := w.c.Hold(context.Background(), taskID(1), "client")
			if err != nil && code(err) != task.CodeConflict { // it may run already
				w.t.Error(err)
			}
		}},
		{name: "limit", task: 1, closes: names(account, state.KeyReason, string(state.ClassRateLimited)), change: ends(state.ClassRateLimited)},
		{name: "auth", task: 1, closes: names(account, state.KeyHold, "true"), change: ends(state.ClassAuth)},
		{name: "move", task: 1, lane: "web", closes: func(s *ledger.Section) bool { return s.Get(state.KeyOrder) != nil }, change: func(w *batchWorld) {
			_, err := w.c.Move(context.Background(), taskID(2), task.Place{First: true}, "client")
			ok(w.world, err)
		}},
		{name: "edit", task: 1, workers: 2, closes: names(taskID(2), state.KeyPriority, "9"), change: func(w *batchWorld) {
			_, err := w.patch(taskID(2), `{"priority":9}`)
			ok(w.world, err)
		}},
		{name: "cancel", task: 1, closes: names(taskID(1), state.KeyStatus, string(state.Canceled)), change: func(w *batchWorld) {
			_, err := w.c.Cancel(context.Background(), taskID(1), "client")
			ok(w.world, err)
		}},
		{name: "a turn of a verify loop and auth", task: 0, loop: true, closes: names(account, state.KeyHold, "true"), change: ends(state.ClassAuth)},
	} {
		for _, order := range []string{"first", "last"} {
			bubble(t, tc.name+" "+order, func(t *testing.T) {
				w := newBatchWorld(t, tc.loop)
				if tc.workers > 0 {
					w.cfg.MaxWorkers = tc.workers
				}
				w.begin(tc.lane, tc.loop)
				start := func() { w.c.Dispatch() }
				if tc.loop {
					start = func() { w.verdict <- 1; <-w.verified }
				}
				changes := []func(){func() { tc.change(w) }, start}
				if order == "last" {
					changes[0], changes[1] = changes[1], changes[0]
				}
				before := len(w.sections())
				w.inOneBatch(changes...)
				closed, started := false, false
				for _, s := range w.sections()[before:] {
					is := startsOf(taskID(tc.task))(&s)
					if closed && is {
						t.Errorf("task %d starts behind the change that forbids it", tc.task)
					}
					closed, started = closed || tc.closes(&s), started || is
				}
				if order == "first" && !closed || order == "last" && !started {
					t.Errorf("the change was made: %v; the task was started: %v", closed, started)
				}
				w.end()
			})
		}
	}
}

// A batchWorld has a master whose dispatcher a test calls.
type batchWorld struct {
	*world
	outcome  chan task.Outcome // of the first task's agent
	ended    chan struct{}     // that was taken
	verdict  chan int          // of the verify command
	verified chan struct{}
}

func newBatchWorld(t *testing.T, loop bool) *batchWorld {
	w := &batchWorld{world: newWorld(t), outcome: make(chan task.Outcome), ended: make(chan struct{}, 9), verdict: make(chan int), verified: make(chan struct{}, 9)}
	interrupted := task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
	asked := taskID(0)
	if loop {
		asked = taskID(1)
	}
	turns := 0
	w.agent.do = func(ctx context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		if loop && turn.TaskID == taskID(0) {
			if turns++; turns == 1 {
				return task.Outcome{Result: "a first try"}
			}
		}
		outcome := w.outcome
		if turn.TaskID != asked {
			outcome = nil
		}
		select {
		case <-ctx.Done():
			return interrupted
		case out := <-outcome:
			w.ended <- struct{}{}
			return out
		}
	}
	w.cfg.MaxIterations = 3
	w.cfg.Shell = &fakeShell{do: func(ctx context.Context, _ task.VerifyRun) task.VerifyResult {
		select {
		case <-ctx.Done():
			return task.VerifyResult{Class: state.ClassInterrupted, ExitCode: -1}
		case exit := <-w.verdict:
			w.verified <- struct{}{}
			return task.VerifyResult{ExitCode: exit, Error: "it failed"}
		}
	}}
	return w
}

// begin opens a master, puts task 0 to work (and task 1, which ends, if the former is in
// a loop), and queues two more.
func (w *batchWorld) begin(lane string, loop bool) {
	w.t.Helper()
	c, err := coordinator.OpenUnwatched(w.cfg)
	check(w.t, err)
	w.c = c
	spec := task.TaskSpec{ID: taskID(0), Prompt: "p", Parallel: true}
	if loop {
		spec.VerifyCommand = "make test"
	}
	w.submit(spec)
	w.c.Dispatch()
	synctest.Wait()
	for i := 1; i < 3; i++ {
		w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", SessionKey: lane, Parallel: lane == ""})
	}
	if loop {
		w.c.Dispatch()
		synctest.Wait()
	}
}

// end lets the master run and end, with the checks of every world.
func (w *batchWorld) end() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.ran = cancel, make(chan error, 1)
	go func() { w.ran <- w.c.Run(ctx) }()
	w.close()
}
