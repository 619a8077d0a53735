package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A master has all rooms but the due jobs in one value.
type master interface {
	Master
	Schedules
}

func newServer(m master, opts Options) *Server {
	if opts.Line == nil {
		opts.Line = func(v wire.TaskView, _ wire.Look) []byte { return []byte(v.ID) }
		opts.Table = func(w io.Writer, lines []byte, _ wire.Look) error { _, err := w.Write(lines); return err }
	}
	return NewServer(*roomsOf(m), opts)
}

func roomsOf(m master) *Rooms { return &Rooms{m, m, fakeJobs{}, fakeFleet{}, nil} }

// fakeMaster is a master in memory. Only what the server can see of a coordinator is real.
type fakeMaster struct {
	runs string        // directory of the runs
	held chan struct{} // Submit sends to it and then waits, if it is there,
	hold chan struct{} // for this to be closed
	err  error         // what every call that can fail returns, if set
	now  func() time.Time

	mu    sync.Mutex
	tasks []state.Task
	keys  map[string]string // idempotency key to id
	subs  map[chan *task.Change]bool
	said  []*task.Change // to subscribers, the first with the number 1
	by    string         // of the last Cancel or Retry
	run   string         // of the last Submit
	env   []string       // likewise
	waits int            // begun by runs, and not over
	over  bool           // Handover was called

	paused string // why, after a Pause

	findings []task.Finding // what is wrong in its ledger
	metrics  task.Metrics
	health   task.Health // what Health says beside the counts
}

func newFake(t testing.TB) *fakeMaster {
	f := &fakeMaster{runs: t.TempDir(), now: time.Now, keys: map[string]string{}, subs: map[chan *task.Change]bool{}}
	f.health.HTTP = ourAddr
	none := task.NewHistogram(nil)
	f.metrics.Append, f.metrics.Sync, f.metrics.Commits = none, none, none
	return f
}

func (f *fakeMaster) Submit(ctx context.Context, spec task.TaskSpec) (state.Task, error) {
	if f.held != nil {
		f.held <- struct{}{}
		select {
		case <-f.hold:
		case <-ctx.Done():
			return state.Task{}, context.Cause(ctx)
		}
	}
	if f.err != nil {
		return state.Task{}, f.err
	}
	if spec.Prompt == "" {
		return state.Task{}, task.Invalid("stint task PROMPT", "the prompt is empty")
	}
	if spec.NotBefore = spec.NotBefore.UTC(); spec.NotBefore.Year() < 1 || spec.NotBefore.Year() > 9999 {
		return state.Task{}, task.Invalid("", "the time is out of range")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.env = spec.FromRun, spec.Environment
	if id, ok := f.keys[spec.IdempotencyKey]; ok && spec.IdempotencyKey != "" {
		return f.find(id)
	}
	if t, err := f.find(spec.ID); err == nil {
		return t, nil
	}
	t := state.Task{
		ID: spec.ID, Status: state.Queued, Prompt: spec.Prompt, Agent: spec.Agent, SessionKey: spec.SessionKey, Label: spec.Label,
		IdempotencyKey: state.GivenKey(spec.IdempotencyKey), NotBefore: spec.NotBefore, CreatedAt: f.now().Truncate(time.Millisecond),
		TenantID: spec.TenantID, Queue: spec.Queue, After: spec.After, InputFiles: spec.InputFiles,
	}
	f.tasks = append(f.tasks, t)
	if spec.IdempotencyKey != "" {
		f.keys[spec.IdempotencyKey] = t.ID
	}
	f.publish(t)
	return t, nil
}

// find resolves a reference; f.mu is held.
func (f *fakeMaster) find(ref string) (state.Task, error) {
	if ref == "@last" && len(f.tasks) > 0 {
		return f.tasks[len(f.tasks)-1], nil
	}
	var hits []state.Task
	for _, t := range f.tasks {
		if t.ID == ref {
			return t, nil
		}
		if strings.Contains(t.ID, ref) {
			hits = append(hits, t)
		}
	}
	switch len(hits) {
	case 0:
		return state.Task{}, &task.Error{Code: task.CodeNotFound, Message: "no task " + ref, Hint: "stint ls"}
	case 1:
		return hits[0], nil
	}
	return state.Task{}, &task.Error{Code: task.CodeAmbiguous, Message: ref + " fits more than one task"}
}

// publish tells the subscribers; f.mu is held.
func (f *fakeMaster) publish(t state.Task) {
	change := &task.Change{Seq: uint64(len(f.said)) + 1, Task: t}
	f.said = append(f.said, change)
	for ch := range f.subs {
		select {
		case ch <- change:
		default:
			delete(f.subs, ch)
			close(ch)
		}
	}
}

// set changes a task and tells the subscribers.
func (f *fakeMaster) set(id string, change func(*state.Task)) state.Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.tasks, func(t state.Task) bool { return t.ID == id })
	change(&f.tasks[i])
	f.publish(f.tasks[i])
	return f.tasks[i]
}

// add puts a task there.
func (f *fakeMaster) add(t state.Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks = append(f.tasks, t)
}

// dropSubscribers closes all subscriptions, as if they had lagged.
func (f *fakeMaster) dropSubscribers() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.subs {
		delete(f.subs, ch)
		close(ch)
	}
}

func (f *fakeMaster) subscribers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs)
}

func (f *fakeMaster) Task(_ context.Context, ref string) (state.Task, error) {
	if f.err != nil {
		return state.Task{}, f.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(ref)
}

func (f *fakeMaster) List(flt state.Filter) []state.Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []state.Task
	for i, t := range slices.Backward(f.tasks) {
		if flt.Before > 0 && uint64(i) >= flt.Before-1 || !flt.Match(&t) {
			continue
		}
		t.Prompt, t.Result = "", ""
		if out = append(out, t); len(out) == flt.Limit {
			break
		}
	}
	return out
}

// change does to a task what a call asks for.
func (f *fakeMaster) change(ref, by string, do func(*state.Task)) (state.Task, error) {
	if f.err != nil {
		return state.Task{}, f.err
	}
	f.mu.Lock()
	t, err := f.find(ref)
	f.by = by
	f.mu.Unlock()
	if err != nil {
		return t, err
	}
	return f.set(t.ID, do), nil
}

func (f *fakeMaster) Cancel(_ context.Context, ref, by string) (state.Task, error) {
	return f.change(ref, by, func(t *state.Task) { t.Status = state.Canceled })
}

func (f *fakeMaster) Remove(_ context.Context, ref, by string) (state.Task, error) {
	return f.change(ref, by, func(t *state.Task) { t.Status = state.Canceled })
}

func (f *fakeMaster) Retry(_ context.Context, ref, by string) (state.Task, error) {
	return f.change(ref, by, func(t *state.Task) { t.Status = state.Queued })
}

func (f *fakeMaster) Why(ref string) (string, error) {
	if f.err != nil {
		return "", f.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t, err := f.find(ref)
	return "it is " + string(t.Status), err
}

func (f *fakeMaster) Waits(id string) (short, why string) {
	why, _ = f.Why(id)
	return "", why
}

func (f *fakeMaster) BeginWait(run, ref string) (done func(), err error) {
	if t, err := f.Task(context.Background(), ref); err == nil && t.RunID == run {
		return nil, &task.Error{Code: task.CodeConflict, Message: "not its own"}
	}
	f.waits++
	return func() { f.waits-- }, nil
}

func (f *fakeMaster) Wait(ctx context.Context, ref string) (state.Task, error) {
	changes, cancel := f.Subscribe(64)
	defer cancel()
	for {
		t, err := f.Task(ctx, ref)
		if err != nil || t.Status.Terminal() {
			return t, err
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return state.Task{}, ctx.Err()
		}
	}
}

func (f *fakeMaster) Dump(w io.Writer) error {
	_, err := io.WriteString(w, "the whole state\n")
	return err
}

func (f *fakeMaster) Raw(ctx context.Context, ref string) ([]byte, error) {
	t, err := f.Task(ctx, ref)
	return fmt.Appendf(nil, "## Task %s\n", t.ID), err
}

func (f *fakeMaster) RunDir(runID string) string { return filepath.Join(f.runs, runID) }

func (f *fakeMaster) Seq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.said))
}

func (f *fakeMaster) Subscribe(buffer int) (<-chan *task.Change, func()) {
	_, changes, cancel := f.SubscribeAfter(math.MaxUint64, buffer)
	return changes, cancel
}

// SubscribeAfter returns three changes that were missed at a time.
func (f *fakeMaster) SubscribeAfter(after uint64, buffer int) ([]*task.Change, <-chan *task.Change, func()) {
	ch := make(chan *task.Change, buffer)
	f.mu.Lock()
	defer f.mu.Unlock()
	missed := []*task.Change{{Seq: uint64(len(f.said)), Resync: true}}
	if after <= uint64(len(f.said)) {
		missed = f.said[after:]
	}
	if len(missed) > 3 {
		return missed[:3], nil, func() {}
	}
	f.subs[ch] = true
	return missed, ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.subs[ch] {
			delete(f.subs, ch)
			close(ch)
		}
	}
}

// first returns the number of a task's first record: its place among all.
func (f *fakeMaster) first(id string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(slices.IndexFunc(f.tasks, func(t state.Task) bool { return t.ID == id }) + 1)
}

func (f *fakeMaster) Rows(flt state.Filter, encode func(*state.Task) ([]byte, error)) (rows []state.Row, err error) {
	if flt.Before > uint64(len(f.tasks)) {
		return nil, task.BadCursor("it is from another list")
	}
	for _, t := range f.List(flt) {
		r := state.Row{Task: &t, First: f.first(t.ID)}
		if t.Status.Terminal() {
			r.Task = nil
			if r.Encoded, err = encode(&t); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (f *fakeMaster) Shortage() *task.Shortage { return f.health.Shortage }

func (f *fakeMaster) Paused() (paused bool, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused != "", f.paused
}

func (f *fakeMaster) Health() task.Health {
	h := f.health
	h.PID, h.Counts = 7, map[state.Status]int{state.Queued: len(f.List(state.Filter{}))}
	return h
}

func (f *fakeMaster) Unready() error { return f.err }

func (f *fakeMaster) Metrics() task.Metrics { return f.metrics }

func (f *fakeMaster) Sessions() []state.Session {
	return []state.Session{{Key: "web", ID: "s1"}, {Key: "dir:/home/ana/shop", ID: "s2"}}
}

func (f *fakeMaster) Handover(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	return f.err
}

// write adds to a file of a run.
func (f *fakeMaster) write(t testing.TB, runID, name, text string) {
	t.Helper()
	dir := f.RunDir(runID)
	must(t, os.MkdirAll(dir, 0o700))
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = file.WriteString(text)
	must(t, errors.Join(err, file.Close()))
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
