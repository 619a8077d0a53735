package dispatch_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/dispatch"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/journal"
	"stint/state"
	"stint/state/fold"
)

// A world is a dispatcher over the store of a new directory, in a bubble of synctest. A
// run ends when its test says so.
type world struct {
	*queue.Store
	*admission.Admission
	*dispatch.Dispatcher
	t    *testing.T
	runs sync.Map // at work: from the name of the task, and "@" and of its agent if that is not demo, to chan task.Outcome
}

// An agent is one of the agents of a world, by its name. Agent deaf ignores who cancels it.
type agent struct {
	*world
	name string
}

func (a agent) Run(ctx context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
	t, err := a.Peek(turn.TaskID)
	must(a.t, err)
	name, end := strings.TrimSuffix(t.Label+"@"+a.name, "@demo"), make(chan task.Outcome)
	a.runs.Store(name, end)
	defer a.runs.Delete(name)
	if a.name == "deaf" {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case out := <-end:
		return out
	case <-ctx.Done():
		return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
	}
}

var alone = task.TaskSpec{Parallel: true} // in a lane of its own

// in runs a test in a bubble, with a world whose configuration set may change.
func in(t *testing.T, set func(*queue.Config), test func(*testing.T, *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		cfg := queue.Config{
			StateDir: t.TempDir(), WorkspaceRoot: t.TempDir(), DefaultAgent: func([]string) string { return "demo" }, Unwatched: true,
			Agents:            map[string]task.Agent{"demo": agent{w, "demo"}, "other": agent{w, "other"}, "deaf": agent{w, "deaf"}},
			WorkspaceSettings: queue.WorkspaceSettings{MaxAttempts: 1, ResumePolicy: "auto"},
			MaxWorkers:        8, MaxRetries: 2, BackoffBase: time.Minute, BackoffMax: time.Hour, MaxLimitWait: 24 * time.Hour,
			Grace: time.Second, SessionLockTimeout: time.Second, ResumeMissing: "new", CrashLoop: 3,
		}
		set(&cfg)
		s, err := queue.Open(cfg)
		must(t, err)
		w.Store = s
		w.master()
		s.Listen(queue.Hooks{Committed: func(*journal.Commit) {}, Taken: w.EndTaken, Changed: func(_, _ *state.Task) {}, Wake: w.Dispatcher.Wake})
		t.Cleanup(func() {
			synctest.Wait()
			w.Shutdown()
			must(t, s.Close())
		})
		test(t, w)
	})
}

// master begins anew with a dispatcher of the same store.
func (w *world) master() {
	w.Dispatcher = dispatch.New(w.Store)
	w.Admission = w.Dispatcher.Admission
}

func (w *world) submit(name string, spec task.TaskSpec) (id string) {
	spec.Prompt, spec.Label = name, name
	t, err := w.Submit(w.t.Context(), spec)
	must(w.t, err)
	return t.ID
}

// record writes a record of a task, as another hand would.
func (w *world) record(id string, fields ...string) {
	must(w.t, w.Update(w.t.Context(), func(_ *fold.State, tx *ledger.Tx) error {
		r := &ledger.Record{Kind: ledger.KindTask, ID: id}
		for pair := range slices.Chunk(fields, 2) {
			r.Add(pair[0], pair[1])
		}
		tx.Append(r)
		return nil
	}))
}

// expect checks what is at work when nothing more happens.
func (w *world) expect(want ...string) {
	w.t.Helper()
	synctest.Wait()
	var got []string
	w.runs.Range(func(name, _ any) bool { got = append(got, name.(string)); return true })
	if slices.Sort(got); !slices.Equal(got, want) {
		w.t.Errorf("at work: %q, want %q", got, want)
	}
}

// end ends the run of a task.
func (w *world) end(name string, out task.Outcome) {
	synctest.Wait()
	end, ok := w.runs.Load(name)
	if !ok {
		w.t.Fatal(name + " is not at work")
	}
	end.(chan task.Outcome) <- out
	synctest.Wait()
}

// is returns a task as it is when nothing more happens.
func (w *world) is(id string) state.Task {
	synctest.Wait()
	t, err := w.Whole(id)
	must(w.t, err)
	return t
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFullPool: while the pool is full nothing begins; then the highest priority, and among
// equals the oldest.
func TestFullPool(t *testing.T) {
	in(t, func(c *queue.Config) { c.MaxWorkers = 2 }, func(t *testing.T, w *world) {
		w.submit("old", alone)
		w.submit("young", alone)
		w.submit("urgent", task.TaskSpec{Parallel: true, Priority: 9})
		go w.DispatchUntil(t.Context())
		w.expect("old", "urgent")
		w.end("old", task.Outcome{})
		w.submit("normal", alone)
		w.submit("high", task.TaskSpec{Parallel: true, Priority: 8})
		w.expect("urgent", "young")
		w.end("urgent", task.Outcome{})
		w.expect("high", "young")
	})
}

// TestRunThatDoesNotEnd: a person has taken a task out of its run, whose agent goes on. Its
// worker and its lane are taken until that has ended.
func TestRunThatDoesNotEnd(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		next    task.TaskSpec
	}{"worker": {1, alone}, "lane": {8, task.TaskSpec{SessionKey: "web", Agent: "demo"}}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(cfg *queue.Config) { cfg.MaxWorkers = c.workers }, func(t *testing.T, w *world) {
				a := w.submit("a", task.TaskSpec{SessionKey: "web", Agent: "deaf"})
				w.submit("b", c.next)
				go w.DispatchUntil(t.Context())
				w.expect("a@deaf")
				w.record(a, state.KeyStatus, string(state.Canceled))
				w.expect("a@deaf")
				w.end("a@deaf", task.Outcome{})
				w.expect("b")
			})
		})
	}
}

// TestAccountCoolsDown: nothing of a limited account begins before its time, then one task
// until one got through, then all. Other accounts go on.
func TestAccountCoolsDown(t *testing.T) {
	in(t, func(*queue.Config) {}, func(t *testing.T, w *world) {
		a := w.submit("a", alone)
		go w.DispatchUntil(t.Context())
		w.end("a", task.Outcome{Class: state.ClassRateLimited, RetryAt: time.Now().Add(time.Hour)})
		w.submit("b", alone)
		w.submit("c", alone)
		w.submit("x", task.TaskSpec{Parallel: true, Agent: "other"})
		w.expect("x@other")
		if got := w.is(a); got.Status != state.Queued || got.Attempt != 0 || got.LimitWaits != 1 {
			t.Errorf("the limited task is %s, attempt %d, waits %d", got.Status, got.Attempt, got.LimitWaits)
		}
		time.Sleep(59 * time.Minute)
		w.expect("x@other")
		time.Sleep(time.Minute)
		w.expect("a", "x@other")
		w.end("a", task.Outcome{})
		w.expect("b", "c", "x@other")
	})
}

// TestFallback: a task of a limited account goes to the first other agent that is logged in,
// in a session of its own.
func TestFallback(t *testing.T) {
	loggedIn := false
	ready := func(agent string, _ []string) bool { return agent == "other" && loggedIn }
	in(t, func(c *queue.Config) { c.AgentReady = ready }, func(t *testing.T, w *world) {
		a := w.submit("a", task.TaskSpec{SessionKey: "web", Agent: "demo", Fallback: []string{"deaf", "other"}})
		before := w.is(a).SessionID
		go w.DispatchUntil(t.Context())
		w.end("a", task.Outcome{Class: state.ClassRateLimited, ExitCode: 1, Error: "429"})
		w.expect()
		loggedIn = true
		w.Dispatcher.Wake()
		w.expect("a@other")
		if got := w.is(a); got.SessionID == before || strings.Join(got.Fallback, " ") != "deaf" {
			t.Errorf("session %s, before %s; fallback %v", got.SessionID, before, got.Fallback)
		}
	})
}

// TestDependants: what comes after a failed task fails with its reason, and what comes after
// that; what waits only for its end runs.
func TestDependants(t *testing.T) {
	in(t, func(*queue.Config) {}, func(t *testing.T, w *world) {
		a := w.submit("a", alone)
		b := w.submit("b", task.TaskSpec{Parallel: true, After: []string{a}})
		c := w.submit("c", task.TaskSpec{Parallel: true, After: []string{b}})
		w.submit("any", task.TaskSpec{Parallel: true, After: []string{a}, AfterPolicy: "any"})
		go w.DispatchUntil(t.Context())
		w.expect("a")
		w.end("a", task.Outcome{Class: state.ClassExit, ExitCode: 1, Error: "no such file"})
		w.expect("any")
		for id, want := range map[string]string{
			b: "it comes after " + state.ShortID(a) + ", which ended failed (exit): no such file",
			c: "it comes after " + state.ShortID(b) + ", which ended failed (exit): it comes after " + state.ShortID(a),
		} {
			if got := w.is(id); got.Status != state.Failed || got.Reason != state.ClassExit || !strings.HasPrefix(got.Error, want) || got.Attempt != 0 {
				t.Errorf("%s is %s (%s): %s", got.Label, got.Status, got.Reason, got.Error)
			}
		}
	})
}

// TestRecover: what a killed master has left running goes back into the queue if its
// processes are proved dead. Else it is held, and so is its lane, until a later master
// has proved that. Only what is dead can be a dead letter.
func TestRecover(t *testing.T) {
	for name, c := range map[string]struct {
		alive   error
		retries string // before
		status  state.Status
		begins  string // then
	}{
		"dead":                     {nil, "1", state.Queued, "a"},
		"dead, retries used up":    {nil, "2", state.Dead, "b"},
		"not proved":               {context.DeadlineExceeded, "1", state.Queued, ""},
		"not proved, retries used": {context.DeadlineExceeded, "2", state.Queued, ""},
	} {
		t.Run(name, func(t *testing.T) {
			alive := c.alive
			in(t, func(cfg *queue.Config) { cfg.Recover = func(context.Context, string, string) error { return alive } }, func(t *testing.T, w *world) {
				a := w.submit("a", task.TaskSpec{SessionKey: "web"})
				w.submit("b", task.TaskSpec{SessionKey: "web"})
				w.record(a, state.KeyStatus, string(state.Running), state.KeyRunID, w.Config.ID(), state.KeyAttempt, "1", state.KeyRetries, c.retries)
				w.Recover(t.Context())
				got := w.is(a)
				if got.Status != c.status || got.Hold != (alive != nil) || got.Orphaned() != (alive != nil) || got.Attempt != 0 || got.Retries != int(c.retries[0]-'0')+1 {
					t.Errorf("it is %s (%s), held %v, attempt %d, retries %d", got.Status, got.Reason, got.Hold, got.Attempt, got.Retries)
				}
				w.StartReady()
				if w.expect(strings.Fields(c.begins)...); alive != nil {
					alive = nil
					w.Recover(t.Context()) // as the next master does, which does not wait for it
					synctest.Wait()
					w.StartReady()
					w.expect("a")
				}
			})
		})
	}
}

// TestSafeMode: when three masters have died within a minute, each soon after it had begun a
// run, nothing begins until a person says so. A clean end is not counted.
func TestSafeMode(t *testing.T) {
	in(t, func(*queue.Config) {}, func(t *testing.T, w *world) {
		starts := w.Config.StateDir + "/starts"
		at := func(ago time.Duration) string { return time.Now().Add(-ago).UTC().Format(time.RFC3339Nano) + "\n" }
		must(t, os.WriteFile(starts, []byte(at(0)+at(time.Second)+at(2*time.Minute)), 0o600))
		w.submit("a", alone)
		w.Recover(t.Context())
		w.StartReady()
		w.expect("a")
		w.end("a", task.Outcome{})
		w.submit("b", alone)
		w.Config.CrashLoop = 0 // turned off
		w.Recover(t.Context())
		if paused, _ := w.Paused(); paused {
			t.Error("it is turned off and has paused")
		}
		w.Config.CrashLoop = 3
		w.master() // as the next one, which finds three notes
		w.Recover(t.Context())
		w.StartReady()
		w.expect()
		if paused, why := w.Paused(); !paused || !strings.HasPrefix(why, "safe mode: 3 masters died within a minute") {
			t.Errorf("paused %v: %s", paused, why)
		}
		must(t, w.Resume(t.Context(), "user"))
		w.StartReady()
		w.expect("b")
		w.Shutdown()
		if _, err := os.Stat(starts); err == nil {
			t.Error("a clean end has left the notes")
		}
	})
}
