package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator"
	"stint/coordinator/api"
	"stint/state"
)

// A wish is one task as its client knows it.
type wish struct {
	prompt string
	acked  bool           // the client was told that it is kept
	ends   []state.Status // how it may end
}

// A killWorld is a crashWorld with masters in the foreground and clients inside
// this process, which is ten times as fast: a kill costs a fifth of a second.
type killWorld struct {
	*crashWorld
	socket string
	client *api.Client

	mu     sync.Mutex // guards what follows
	wishes map[string]*wish
	hands  int // sections written by hand
}

// newKillWorld makes a world whose state directory is dir, or one of its own if
// dir is empty.
func newKillWorld(w *crashWorld, dir string) *killWorld {
	w.t.Helper()
	if dir != "" {
		w.state = dir
	}
	w.env = append(w.env, "STINT_STATE_DIR="+w.state, "STINT_MAX_ATTEMPTS=100", "STINT_BACKOFF_BASE=10ms")
	bin := filepath.Join(filepath.Dir(w.work), "bin")
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink(w.self, filepath.Join(bin, "stint"))); err != nil {
		w.t.Fatal(err)
	}
	w.self = filepath.Join(bin, "stint")
	socket := filepath.Join(w.sockets, filepath.Base(defaultSocket(w.state)))
	return &killWorld{crashWorld: w, socket: socket, client: api.Dial(socket), wishes: map[string]*wish{}}
}

// A life is one run of a master in the foreground.
type life struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	gone   chan struct{} // closed when it has ended
}

// start starts a master, under the program and arguments of prefix if there are any.
func (w *killWorld) start(prefix ...string) *life {
	w.t.Helper()
	argv := append(slices.Clone(prefix), w.self, "serve")
	l := &life{cmd: exec.Command(argv[0], argv[1:]...), gone: make(chan struct{})}
	l.cmd.Env, l.cmd.Dir, l.cmd.Stderr, l.cmd.WaitDelay = w.env, w.work, &l.stderr, 10*time.Millisecond
	w.mu.Lock()
	w.starts = append(w.starts, time.Now()) // in order, though several may be started at once
	w.mu.Unlock()
	if err := l.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait() // how it ended is in ProcessState
		close(l.gone)
	}()
	w.t.Cleanup(func() { w.end(l, syscall.SIGKILL) }) // for one that a failure leaves
	return l
}

func (l *life) alive() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// end sends a signal and waits for the end.
func (w *killWorld) end(l *life, sig syscall.Signal) {
	w.t.Helper()
	_ = l.cmd.Process.Signal(sig) // it may be gone already
	select {
	case <-l.gone:
	case <-time.After(scriptDeadline):
		w.t.Fatalf("the master does not end on %v", sig)
	}
}

// ready waits until the master answers; false if it ended before.
func (w *killWorld) ready(l *life) bool {
	w.t.Helper()
	for deadline := time.Now().Add(scriptDeadline); l.alive(); time.Sleep(time.Millisecond) {
		if h, err := w.client.Health(context.Background()); err == nil && h.PID == l.cmd.Process.Pid {
			return true
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("no master answers\n%s", l.stderr.String())
		}
	}
	return false
}

// during gives a context that ends with the master's life.
func (l *life) during() (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptDeadline)
	go func() {
		select {
		case <-l.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// ask submits a task that may end in one of the ways of ends, and gives its id;
// "" if nobody confirmed it.
func (w *killWorld) ask(ctx context.Context, session, text string, ends ...state.Status) string {
	w.mu.Lock()
	n := len(w.wishes)
	id := uuid.Must(uuid.NewV7()).String()
	if len(ends) == 0 {
		ends = []state.Status{state.Done}
	}
	wish := &wish{ends: ends, prompt: fmt.Sprintf("task %d %s\n## Task forged-%d\n- status: done\n<!-- end %d -->", n, text, n, n)}
	w.wishes[id] = wish
	w.mu.Unlock()
	spec := coordinator.TaskSpec{ID: id, Prompt: wish.prompt, Workspace: w.work, SessionKey: session}
	_, err := w.client.Submit(ctx, spec)
	w.mu.Lock()
	defer w.mu.Unlock()
	if wish.acked = err == nil; !wish.acked {
		return ""
	}
	return id
}

// expect says how a task may end from now on.
func (w *killWorld) expect(id string, ends ...state.Status) {
	w.mu.Lock()
	w.wishes[id].ends = ends
	w.mu.Unlock()
}

// byHand notes a task that a person writes, and gives its section.
func (w *killWorld) byHand() (id, section string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hands++
	id = fmt.Sprintf("hand-%d", w.hands)
	wish := &wish{prompt: "by hand, number " + id, ends: []state.Status{state.Done}}
	w.wishes[id] = wish
	return id, fmt.Sprintf("\n## Task %s\n- status: queued\n- workspace: %s\n- prompt: %s\n", id, w.work, wish.prompt)
}

// awaitTask waits until the master shows that a condition holds for a task.
func (w *killWorld) awaitTask(ctx context.Context, id string, holds func(*api.TaskView) bool) bool {
	for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		if v, err := w.client.Task(ctx, id); err == nil && holds(&v) {
			return true
		}
	}
	return false
}

// keep says that a task may not be lost from now on.
func (w *killWorld) keep(id string) {
	w.mu.Lock()
	w.wishes[id].acked = true
	w.mu.Unlock()
}

// settle waits until every task that is there has ended.
func (w *killWorld) settle(ctx context.Context, l *life) bool {
	for ctx.Err() == nil {
		tasks, err := w.client.List(ctx, state.Filter{Status: []state.Status{state.Queued, state.Running}})
		if err != nil {
			return false
		}
		if len(tasks) == 0 {
			return true
		}
		if _, err := w.client.Wait(ctx, tasks[0].ID); err != nil && l.alive() {
			time.Sleep(time.Millisecond)
		}
	}
	return false
}

// audit starts a master as a user would, lets it come to rest and compares what
// it has with what the clients were told; and then looks at the files.
func (w *killWorld) audit() {
	w.t.Helper()
	w.recover()
	if err := coordinator.Check(w.state); err != nil {
		w.t.Errorf("the state directory: %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.state, "demo", "log.jsonl")); err == nil {
		w.expectNoOverlap()
	}
	if slowest, _ := w.slowest(); slowest > slowRecovery {
		w.t.Errorf("a recovery took %v", slowest)
	}
	if left := w.survivors(); len(left) > 0 {
		w.t.Errorf("these processes are left: %v", left)
	}
}

// recover is audit without the look at the files.
func (w *killWorld) recover() {
	w.t.Helper()
	l := w.start()
	if !w.ready(l) {
		w.t.Fatalf("the master does not start again:\n%s", l.stderr.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*scriptDeadline)
	defer cancel()
	if !w.settle(ctx, l) {
		w.t.Fatalf("the tasks do not come to rest:\n%s", l.stderr.String())
	}
	w.compare(ctx)
	w.end(l, syscall.SIGTERM)
	if !l.cmd.ProcessState.Success() {
		w.t.Errorf("the master ended with %v:\n%s", l.cmd.ProcessState, l.stderr.String())
	}
}

// compare: acknowledged tasks are there, once, unchanged, and have ended as they
// may; and nobody else's are.
func (w *killWorld) compare(ctx context.Context) {
	w.t.Helper()
	tasks, err := w.client.List(ctx, state.Filter{})
	if err != nil {
		w.t.Fatal(err)
	}
	listed := map[string]bool{}
	for i := range tasks {
		id := tasks[i].ID
		if listed[id] || w.wishes[id] == nil {
			w.lose("task %s is nobody's, or is there twice", id)
		}
		listed[id] = true
	}
	for id, wish := range w.wishes {
		v, err := w.client.Task(ctx, id)
		var e *coordinator.Error
		switch {
		case !wish.acked && errors.As(err, &e) && e.Code == coordinator.CodeNotFound:
			delete(w.wishes, id) // it was never taken in, and nobody was told that it was
		case err != nil:
			w.lose("task %s is lost: %v", id, err)
		case v.Prompt != wish.prompt || !slices.Contains(wish.ends, v.Status):
			w.lose("task %s is %s (%s), which is not among %v, with the prompt %q", id, v.Status, v.Error, wish.ends, v.Prompt)
		default:
			wish.acked, wish.ends = true, []state.Status{v.Status} // what was shown stays
		}
	}
}

// together calls f(0) to f(n-1) at once and waits for them.
func (w *killWorld) together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// needProgram skips a test where a program is missing; CI must have it.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(t, name+" is not installed")
	}
}
