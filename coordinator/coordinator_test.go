package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"stint/coordinator"
	"stint/coordinator/queue"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// TestMain has more tests run at once than there are processors, because they mostly wait;
// -parallel still counts. Where there is a directory in memory, state directories are made
// there: each record is synced, and no test here cuts the power.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // it is there
	remove := func() {}
	if dir, err := os.MkdirTemp("/dev/shm", "stint-coordinator-"); err == nil {
		_ = os.Setenv("TMPDIR", dir)
		remove = func() { _ = os.RemoveAll(dir) }
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// fakeAgent answers with what do says, and remembers its turns.
type fakeAgent struct {
	do func(ctx context.Context, t task.Turn, report func(task.Event)) task.Outcome

	mu    sync.Mutex
	turns []task.Turn
	alive map[string]int // by task: executions at work
	most  int            // executions at the same time
	now   int
	twice bool // a task had two executions at once
}

func (f *fakeAgent) Run(ctx context.Context, t task.Turn, report func(task.Event)) task.Outcome {
	f.mu.Lock()
	f.turns = append(f.turns, t)
	if f.alive == nil {
		f.alive = map[string]int{}
	}
	f.alive[t.TaskID]++
	f.twice = f.twice || f.alive[t.TaskID] > 1
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.alive[t.TaskID]--
		f.now--
		f.mu.Unlock()
	}()
	return f.do(ctx, t, report)
}

// world is a master with a fake agent in a directory that outlives it. One that is still
// open at the end of its test is closed then.
type world struct {
	t         *testing.T
	dir, work string
	cfg       queue.Config
	agent     *fakeAgent
	c         *coordinator.Coordinator
	stop      context.CancelFunc
	ran       chan error
	live      bool          // opened and not closed
	patience  time.Duration // how long a task may take, which in a bubble is short
}

func answer(text string) func(context.Context, task.Turn, func(task.Event)) task.Outcome {
	return func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		return task.Outcome{Result: text, Session: "native-1"}
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "state"), work: t.TempDir(), agent: &fakeAgent{do: answer("fine")}}
	w.cfg = queue.Config{
		StateDir: w.dir, WorkspaceRoot: w.work, Agents: map[string]task.Agent{"demo": w.agent}, DefaultAgent: func([]string) string { return "demo" },
		WorkspaceSettings: queue.WorkspaceSettings{MaxAttempts: 3, Timeout: time.Minute, ResumePolicy: "auto"},
		MaxWorkers:        4, MaxRetries: 5, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond,
		MaxLimitWait: time.Minute, Grace: 50 * time.Millisecond, SessionLockTimeout: time.Second,
		HeartbeatInterval: time.Hour, ResumeMissing: "new",
	}
	t.Cleanup(func() {
		if w.live {
			w.close()
		}
	})
	return w
}

// openWorld is a new world whose master is at work.
func openWorld(t *testing.T) *world {
	w := newWorld(t)
	w.open()
	return w
}

// restart ends the master and starts the next one.
func (w *world) restart() {
	w.t.Helper()
	w.close()
	w.open()
}

// notShort skips what takes seconds with -short, but not in CI.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds: go test without -short runs it")
	}
}

func (w *world) open() {
	w.t.Helper()
	w.start(coordinator.Open(w.cfg))
}

// openUnwatched is open within a bubble of synctest.
func (w *world) openUnwatched() {
	w.t.Helper()
	w.start(coordinator.OpenUnwatched(w.cfg))
	w.patience = 100 * time.Hour
}

func (w *world) start(c *coordinator.Coordinator, err error) {
	w.t.Helper()
	fatal(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w.c, w.stop, w.ran, w.live, w.patience = c, cancel, make(chan error, 1), true, 2*time.Minute
	go func() { w.ran <- c.Run(ctx) }()
}

// check fails the test where something that must work does not. It does not end it, so that
// an agent may call it, too.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// read returns the text of a file.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	fatal(t, err)
	return string(text)
}

// write writes the text of a file, whose directory need not be there.
func write(t *testing.T, path, text string) {
	t.Helper()
	check(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
}

// bubble runs f as a subtest in a bubble of synctest.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// quit ends the master as it is.
func (w *world) quit() error {
	w.stop()
	w.live = false
	return errors.Join(<-w.ran, w.c.Close())
}

// close shuts the master down, and expects that its state was the fold of its
// files and that tasks.md alone has the same.
func (w *world) close() {
	w.t.Helper()
	w.stop()
	w.live = false
	check(w.t, <-w.ran)
	var live, refold bytes.Buffer
	check(w.t, errors.Join(w.c.Dump(&live), coordinator.DumpJournal(w.dir, &refold), w.c.Close()))
	if live.String() != refold.String() {
		w.t.Errorf("the live state is\n%s\nand the fold of the journal\n%s", live.String(), refold.String())
	}
	report, err := statedir.Fsck(context.Background(), w.dir, "", func() bool { return false })
	check(w.t, err)
	for _, f := range report.Faults {
		if f.Kind != statedir.KindSection && f.Kind != statedir.KindWaits { // what a person has written there
			w.t.Errorf("fsck: %s (%s)", f, f.Kind)
		}
	}
}

func (w *world) submit(spec task.TaskSpec) state.Task {
	w.t.Helper()
	t, err := w.try(spec)
	fatal(w.t, err)
	return t
}

func (w *world) try(spec task.TaskSpec) (state.Task, error) {
	if spec.Workspace == "" {
		spec.Workspace = w.work
	}
	return w.c.Submit(context.Background(), spec)
}

func (w *world) wait(id string) state.Task {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.patience)
	defer cancel()
	t, err := w.c.Wait(ctx, id)
	if err != nil {
		why, _ := w.c.Why(id)
		w.t.Fatalf("%v; why: %s", err, why)
	}
	return t
}

func (w *world) cancel(id string)  { w.by(id, w.c.Cancel) }
func (w *world) retry(id string)   { w.by(id, w.c.Retry) }
func (w *world) release(id string) { w.by(id, w.c.Release) }
func (w *world) hold(id string)    { w.by(id, w.c.Hold) }

// by does something to a task as a client does.
func (w *world) by(id string, do func(ctx context.Context, id, by string) (state.Task, error)) {
	w.t.Helper()
	_, err := do(w.t.Context(), id, ledger.ByClient)
	check(w.t, err)
}

// done lets a task run, which must end well.
func (w *world) done(spec task.TaskSpec) state.Task {
	w.t.Helper()
	return w.endsAs(w.submit(spec).ID, state.Done, "")
}

// endsAs waits for a task, which must end so.
func (w *world) endsAs(id string, status state.Status, reason state.Class) state.Task {
	w.t.Helper()
	t := w.wait(id)
	w.expect(t, status, reason)
	return t
}

func (w *world) expect(t state.Task, status state.Status, reason state.Class) {
	w.t.Helper()
	if t.Status != status || t.Reason != reason {
		w.t.Errorf("the task ended as %s (%s), want %s (%s): %s", t.Status, t.Reason, status, reason, t.Error)
	}
}

// TestLaneOfADirectory: the lane is the checkout's, and an empty .git, as a
// sandbox leaves it behind, makes no checkout.
func TestLaneOfADirectory(t *testing.T) {
	w := openWorld(t)
	check(t, os.MkdirAll(filepath.Join(w.work, "empty/.git"), 0o700))
	for _, file := range []string{"empty/sub/x", "repo/.git/HEAD", "repo/sub/x", "tree/.git", "tree/sub/x"} {
		write(t, filepath.Join(w.work, file), "")
	}
	for dir, want := range map[string]string{"empty/sub": "empty/sub", "repo/sub": "repo", "repo": "repo", "tree/sub": "tree"} {
		got := w.submit(task.TaskSpec{Prompt: "p", Workspace: filepath.Join(w.work, dir)}).SessionKey
		if got != "dir:"+filepath.Join(w.work, want) {
			t.Errorf("a task in %s is in lane %s", dir, got)
		}
	}
}

// TestPromise1AcknowledgedMeansKept: what was acknowledged is there when the
// master is opened again without ever having been closed, unchanged and once.
func TestPromise1AcknowledgedMeansKept(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0 // nothing is to run
	w.open()
	prompts := map[string]string{}
	for i, p := range []string{"plain", "## Task forged\n- status: done\n<!-- end 3 -->", "```\n", "a\r\nb \x0b", strings.Repeat("x", 1<<20)} {
		prompts[w.submit(task.TaskSpec{Prompt: p, IdempotencyKey: fmt.Sprint(i)}).ID] = p
	}
	copied := newWorld(t)
	copied.cfg.MaxWorkers = 0
	copied.copies(w)
	w.close()
	copied.open()
	for id, p := range prompts {
		if got := copied.task(id); got.Prompt != p {
			t.Errorf("%s came back as %.50q", id, got.Prompt)
		}
	}
	if n := len(copied.c.List(state.Filter{})); n != len(prompts) {
		t.Errorf("%d tasks, want %d", n, len(prompts))
	}
}

// TestPromise3AtLeastOnceAndCounted: a task that was running when the master
// died runs again with its own number and the session that it had begun, and
// only after the old run was proved dead.
func TestPromise3AtLeastOnceAndCounted(t *testing.T) {
	next, id := interruptedIn(t, "thread-7")
	var proved []string
	next.cfg.Recover = func(_ context.Context, dir, run string) error {
		if len(next.agent.turns) > 0 {
			t.Error("the agent was started before the old run was proved dead")
		}
		proved = append(proved, run)
		return nil
	}
	next.open()
	got := next.endsAs(id, state.Done, "")
	if got.Retries != 1 || got.Attempt != 1 || len(proved) != 1 {
		t.Errorf("retries %d, attempt %d, proved %v", got.Retries, got.Attempt, proved)
	}
	turn := next.agent.turns[0]
	if turn.Session != "thread-7" || turn.RunID == proved[0] || !strings.Contains(read(t, turn.Prompt), "cut off") {
		t.Errorf("the second run, whose agent is told that the first was interrupted: %+v", turn)
	}
}

// stillThere proves no run dead.
func stillThere(context.Context, string, string) error { return errors.New("pid 42 is still there") }

// TestPromise2OneAtATime: where the old run cannot be proved dead, the task is
// held and shown, and not started.
func TestPromise2OneAtATime(t *testing.T) {
	next, id := interrupted(t)
	next.cfg.Recover = stillThere
	next.open()
	next.done(task.TaskSpec{Prompt: "another", SessionKey: "other"})
	got := next.task(id)
	if why, _ := next.c.Why(id); got.Status != state.Queued || !got.Hold || !strings.Contains(got.Note, "pid 42") || !strings.Contains(why, "held") {
		t.Errorf("%+v; why: %s", got, why)
	}
	behind := next.submit(task.TaskSpec{Prompt: "in the same lane", Workspace: got.Workspace})
	next.done(task.TaskSpec{Prompt: "a third", SessionKey: "other"})
	if why, _ := next.c.Why(behind.ID); !strings.Contains(why, "may still be alive") {
		t.Errorf("why behind it: %s", why)
	}
	if len(next.agent.turns) != 2 {
		t.Errorf("%d runs, want those of the other lane only", len(next.agent.turns))
	}
	next.retry(id)
	next.expect(next.wait(id), state.Done, "")
	next.expect(next.wait(behind.ID), state.Done, "")
}

// TestOrphanIsProvedDeadLater: a task that was held because its agent might be alive
// goes on by itself under the first master that can prove it dead, and as soon as a
// person releases it. No master waits for the proof.
func TestOrphanIsProvedDeadLater(t *testing.T) {
	t.Parallel()
	for _, byPerson := range []bool{false, true} {
		w, id := interrupted(t)
		w.cfg.MaxRetries = 0 // that it is dead would free its lane
		w.cfg.Recover = stillThere
		w.open()
		w.until(id, (*state.Task).Orphaned)
		w.close()
		w.cfg.Recover = func(ctx context.Context, _, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		w.open()
		w.done(task.TaskSpec{Prompt: "another", SessionKey: "other"})
		if byPerson {
			w.release(id)
		} else {
			w.close()
			w.cfg.Recover = nil
			w.open()
		}
		w.expect(w.wait(id), state.Done, "")
	}
}

// TestReleaseStands: what a person says of a task whose agent may be alive is not
// undone by the proof that this master still waits for, nor is a later hold by that of
// the next one.
func TestReleaseStands(t *testing.T) {
	w, id := interrupted(t)
	w.cfg.Recover = stillThere
	w.open()
	w.until(id, (*state.Task).Orphaned)
	check(t, w.c.Pause(t.Context(), "", "client"))
	w.close()
	asked, fail := make(chan struct{}), make(chan struct{})
	w.cfg.Recover = func(ctx context.Context, dir, run string) error {
		close(asked)
		<-fail
		return stillThere(ctx, dir, run)
	}
	looked := make(chan struct{})
	w.cfg.Log = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) {
		if bytes.Contains(line, []byte("looked after an interrupted run")) {
			close(looked)
		}
	}), nil))
	w.open()
	<-asked
	w.release(id)
	close(fail)
	<-looked
	w.close()
	w.cfg.Recover, w.cfg.Log = nil, nil
	w.open()
	if got := w.task(id); got.Hold || got.Reason != state.ClassInterrupted {
		t.Errorf("held again: %v, %s, %s", got.Hold, got.Reason, got.Note)
	}
	w.hold(id)
	w.restart()
	w.restart()
	if got := w.task(id); !got.Hold || got.Orphaned() {
		t.Errorf("the hold of a person: %v, %s", got.Hold, got.Reason)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// TestJudgement runs a task through outcomes and looks where it ends.
func TestJudgement(t *testing.T) {
	fail := func(class state.Class) task.Outcome {
		return task.Outcome{Class: class, ExitCode: 1, Error: "no"}
	}
	good := task.Outcome{Result: "ok"}
	net, limit, full, cut := fail(state.ClassNetwork), fail(state.ClassRateLimited), fail(state.ClassContextFull), fail(state.ClassInterrupted)
	for name, tc := range map[string]struct {
		outcomes []task.Outcome // of as many runs
		spec     task.TaskSpec
		status   state.Status
		reason   state.Class
		attempt  int
	}{
		"success":                     {[]task.Outcome{good}, task.TaskSpec{}, state.Done, "", 1},
		"exit":                        {[]task.Outcome{fail(state.ClassExit)}, task.TaskSpec{}, state.Failed, state.ClassExit, 1},
		"exit, told to try twice":     {[]task.Outcome{fail(state.ClassExit), good}, task.TaskSpec{MaxAttempts: 2}, state.Done, "", 2},
		"network, then fine":          {[]task.Outcome{net, net, good}, task.TaskSpec{}, state.Done, "", 3},
		"network for ever":            {[]task.Outcome{net, net, net}, task.TaskSpec{}, state.Dead, state.ClassNetwork, 3},
		"network, one try":            {[]task.Outcome{net}, task.TaskSpec{MaxAttempts: 1}, state.Failed, state.ClassNetwork, 1},
		"rate limit spends nothing":   {[]task.Outcome{limit, limit, good}, task.TaskSpec{}, state.Done, "", 1},
		"rate limit, not to wait for": {[]task.Outcome{limit}, task.TaskSpec{NoWaitLimit: true}, state.Failed, state.ClassRateLimited, 1},
		"interrupted too often":       {[]task.Outcome{cut, cut, cut, cut, cut, cut}, task.TaskSpec{}, state.Dead, state.ClassInterrupted, 0},
		"auth":                        {[]task.Outcome{fail(state.ClassAuth)}, task.TaskSpec{}, state.Failed, state.ClassAuth, 1},
		"agent missing":               {[]task.Outcome{fail(state.ClassAgentMissing)}, task.TaskSpec{}, state.Failed, state.ClassAgentMissing, 1},
		"session lost":                {[]task.Outcome{fail(state.ClassSessionLost), good}, task.TaskSpec{AgentSession: "gone"}, state.Done, "", 1},
		"conversation full":           {[]task.Outcome{full, good}, task.TaskSpec{AgentSession: "long"}, state.Done, "", 1},
		"the next one is full too": {
			[]task.Outcome{full, {Class: state.ClassContextFull, Session: "new", Kept: true}},
			task.TaskSpec{AgentSession: "long", MaxAttempts: 5},
			state.Failed, state.ClassContextFull, 1,
		},
		"the prompt alone is too much": {[]task.Outcome{full}, task.TaskSpec{}, state.Failed, state.ClassContextFull, 1},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.outcomes(tc.outcomes...)
			w.openUnwatched()
			tc.spec.Prompt = "p"
			got := w.endsAs(w.submit(tc.spec).ID, tc.status, tc.reason)
			if got.Attempt != tc.attempt || len(w.agent.turns) != len(tc.outcomes) {
				t.Errorf("attempt %d after %d runs, want %d after %d", got.Attempt, len(w.agent.turns), tc.attempt, len(tc.outcomes))
			}
			if name == "session lost" && (w.agent.turns[0].Session != "gone" || w.agent.turns[1].Session != "" || got.Note == "") {
				t.Errorf("a lost session was asked for again, or nothing is said about it: %q", got.Note)
			}
			if tc.reason == state.ClassContextFull && !strings.Contains(got.Error, "make it smaller") {
				t.Errorf("the error is %q", got.Error)
			}
		})
	}
}

// TestSessionSeenWhileStopping: an id that comes when the run is being ended is
// recorded, so that the next run can resume it.
func TestSessionSeenWhileStopping(t *testing.T) {
	w := newWorld(t)
	begun := make(chan struct{})
	w.agent.do = func(ctx context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
		close(begun)
		<-ctx.Done()
		report(task.Event{Session: "late"})
		return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Session: "late"}
	}
	w.open()
	id := w.submit(task.TaskSpec{Prompt: "p"}).ID
	<-begun
	w.close()
	w.agent.do = answer("fine")
	w.open()
	w.wait(id)
	w.close()
	if got := w.agent.turns[1].Session; got != "late" {
		t.Errorf("the second run resumed %q", got)
	}
}

// TestHandEditEndsARun: a person sets a running task to canceled in tasks.md.
func TestHandEditEndsARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ended := make(chan error, 1)
	begun := make(chan struct{})
	w.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
		close(begun)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return task.Outcome{Result: "late"}
	}
	w.open()
	id := w.submit(task.TaskSpec{Prompt: "a"}).ID
	<-begun
	w.edit("\n## Task %s\n- status: canceled\n", id)
	if cause := <-ended; !errors.Is(cause, task.ErrCanceled) {
		t.Errorf("the run was ended by %v", cause)
	}
	got := w.wait(id)
	w.close() // waits for the run, whose result comes too late to count
	if got.Status != state.Canceled || got.By != ledger.ByHand || strings.Contains(read(t, w.dir, ledger.JournalName), "late") {
		t.Errorf("a run had a say in a task that a person had ended: %+v", got)
	}
}

// TestIdempotency: of many who submit one key in the same moment, all get one task.
// The task before them holds the ledger until they have all been given an id.
func TestIdempotency(t *testing.T) {
	w := newWorld(t)
	ids := make([]string, 64)
	var given atomic.Int64
	all, holding := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(holding); <-all })
	w.cfg.Workspace = func(string) queue.WorkspaceSettings { hold(); return w.cfg.WorkspaceSettings }
	w.cfg.ID = func() string {
		if given.Add(1) == int64(1+len(ids)) {
			close(all)
		}
		return uuid.NewString()
	}
	w.open()
	var wg sync.WaitGroup
	wg.Go(func() { w.submit(task.TaskSpec{Prompt: "before"}) })
	<-holding
	for i := range ids {
		wg.Go(func() { ids[i] = w.submit(task.TaskSpec{Prompt: "once", IdempotencyKey: "k"}).ID })
	}
	wg.Wait()
	if given := slices.Compact(ids); len(given) != 1 || w.submit(task.TaskSpec{ID: given[0], Prompt: "once"}).ID != given[0] {
		t.Errorf("one key gave %s", given)
	}
}

// TestHandover: a master that hands over starts nothing, and takes no word for what it
// would not run.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.openUnwatched()
		w.done(task.TaskSpec{Prompt: "p"})
		held := w.submit(task.TaskSpec{Prompt: "p", Hold: true}).ID
		check(t, w.c.Handover(t.Context()))
		check(t, <-w.ran) // by itself
		if _, err := w.c.Release(t.Context(), held, "client"); code(err) != task.CodeStopped {
			t.Errorf("a task is released although nobody would run it: %v", err)
		}
		w.ran <- nil
	})
}
