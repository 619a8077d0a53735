package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// A wish is one task as its client knows it.
type wish struct {
	prompt string
	acked  bool           // the client was told that it is kept
	ends   []state.Status // how it may end
}

// A world is a state directory of its own, whose masters are started in the foreground,
// and what its clients were told. All tests that need a whole stint begin with one; only
// scripts have their masters in the background.
type world struct {
	t           testing.TB
	rand        *rand.Rand
	self        string // the program
	dir         string // what it has of the disk, but for the sockets
	state, work string
	sockets     string // directory of the masters' sockets
	socket      string
	env         []string
	client      *client.Client

	mu     sync.Mutex // guards what follows
	wishes map[string]*wish
	hands  int         // sections written by hand
	starts []time.Time // of the masters, in order

	lost, overlapping int // what broke the promises
}

// newWorld returns a world without a master. settings are further variables for all its
// processes; STINT_STATE_DIR among them moves the state directory.
func newWorld(t testing.TB, seed uint64, settings ...string) *world {
	t.Helper()
	notShort(t)
	dir := t.TempDir()
	run, err := os.MkdirTemp("", "s") // short, as a socket's path must be
	must(t, err)
	t.Cleanup(func() {
		check(t, os.RemoveAll(run))
	})
	program, err := os.Executable()
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), self: filepath.Join(dir, "bin", "stint"), dir: dir, state: filepath.Join(dir, "state"),
		work: filepath.Join(dir, "ws"), sockets: filepath.Join(run, "stint"), wishes: map[string]*wish{},
	}
	must(t, errors.Join(err, os.Mkdir(w.work, 0o700), os.Mkdir(filepath.Dir(w.self), 0o700), os.Symlink(program, w.self)))
	for _, setting := range settings {
		if dir, ok := strings.CutPrefix(setting, "STINT_STATE_DIR="); ok {
			w.state = dir
		}
	}
	w.env = append(
		os.Environ(), "STINT_STATE_DIR="+w.state, "XDG_CONFIG_HOME="+dir, "XDG_RUNTIME_DIR="+run, "STINT_AGENT=demo",
		"STINT_MAX_RETRIES=1000", "STINT_MAX_ATTEMPTS=100", "STINT_BACKOFF_BASE=10ms", "STINT_CRASH_LOOP=0", "STINT_IDLE_EXIT=300s",
	)
	w.env = append(w.env, settings...)
	w.socket = filepath.Join(w.sockets, filepath.Base(defaultSocket(w.state)))
	w.client = client.Dial(w.socket)
	t.Cleanup(func() {
		w.client.Close()
		if h := w.script().master(); h.PID > 0 {
			_ = syscall.Kill(h.PID, syscall.SIGKILL) // left by a failure
		}
	})
	return w
}

// script returns the world as what scripts know of theirs.
func (w *world) script() *scriptState { return &scriptState{state: w.state, tests: w.t} }

// command makes a command of stint.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.self, args...)
	cmd.Env, cmd.Dir = w.env, w.work
	return cmd
}

// run carries out a command that must succeed and returns what it prints.
func (w *world) run(name string, args ...string) string {
	w.t.Helper()
	cmd := w.command(append([]string{name}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("stint %s %v: %v\n%s", name, args, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// write writes a file, by a path below the world's directory.
func (w *world) write(path, text string) {
	w.t.Helper()
	path = filepath.Join(w.dir, path)
	must(w.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
}

// lose reports a task that was lost, changed or doubled.
func (w *world) lose(format string, args ...any) {
	w.t.Helper()
	w.lost++
	w.t.Errorf(format, args...)
}

// A life is one run of a master in the foreground.
type life struct {
	cmd  *exec.Cmd
	log  string        // the file with what it says
	gone chan struct{} // closed when it has ended
}

// start starts a master, with further arguments of serve.
func (w *world) start(args ...string) *life {
	w.t.Helper()
	return w.startUnder(nil, args...)
}

// startUnder starts a master under the program and arguments of prefix.
func (w *world) startUnder(prefix []string, args ...string) *life {
	w.t.Helper()
	return w.launch(slices.Concat(prefix, []string{w.self, "serve"}, args))
}

// launch starts a master by a whole command line.
func (w *world) launch(argv []string) *life {
	w.t.Helper()
	log, err := os.CreateTemp(w.dir, "log")
	must(w.t, err)
	defer func() { _ = log.Close() }() // the master has it
	l := &life{cmd: exec.Command(argv[0], argv[1:]...), log: log.Name(), gone: make(chan struct{})}
	l.cmd.Env, l.cmd.Dir, l.cmd.Stderr = w.env, w.work, log
	w.mu.Lock()
	w.starts = append(w.starts, time.Now()) // in order, though several may be started at once
	w.mu.Unlock()
	must(w.t, l.cmd.Start())
	go func() {
		_ = l.cmd.Wait() // how it ended is in ProcessState
		close(l.gone)
	}()
	w.t.Cleanup(func() { w.end(l, syscall.SIGKILL) }) // for one that a failure leaves
	return l
}

// serve starts a master, and returns when it answers.
func (w *world) serve(args ...string) *life {
	w.t.Helper()
	l := w.start(args...)
	if !w.ready(l) {
		w.t.Fatalf("the master does not start:\n%s", l.said())
	}
	return l
}

// said returns what the master has written on stderr.
func (l *life) said() string {
	text, err := os.ReadFile(l.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
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
func (w *world) end(l *life, sig syscall.Signal) {
	w.t.Helper()
	_ = l.cmd.Process.Signal(sig) // it may be gone already
	select {
	case <-l.gone:
	case <-time.After(scriptDeadline):
		w.t.Fatalf("the master does not end on %v", sig)
	}
}

// ready waits until the master answers; false if it ended before.
func (w *world) ready(l *life) bool {
	w.t.Helper()
	answers := false
	if !poll(scriptDeadline, func() bool {
		h, err := w.client.Health(context.Background())
		answers = err == nil && h.PID == l.cmd.Process.Pid
		return answers || !l.alive()
	}) {
		w.t.Fatalf("no master answers\n%s", l.said())
	}
	return answers
}

// during returns a context that ends with the master's life.
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

// ask submits a task that may end in one of the ways of ends, and gives its id; "" if nobody confirmed it.
func (w *world) ask(ctx context.Context, session, text string, ends ...state.Status) string {
	w.mu.Lock()
	n := len(w.wishes)
	id := uuid.Must(uuid.NewV7()).String()
	if len(ends) == 0 {
		ends = []state.Status{state.Done}
	}
	wish := &wish{ends: ends, prompt: fmt.Sprintf("task %d %s\n## Task forged-%d\n- status: done\n<!-- end %d -->", n, text, n, n)}
	w.wishes[id] = wish
	w.mu.Unlock()
	spec := task.TaskSpec{ID: id, Prompt: wish.prompt, Workspace: w.work, SessionKey: session}
	_, err := w.client.Submit(ctx, spec)
	w.mu.Lock()
	defer w.mu.Unlock()
	if wish.acked = err == nil; !wish.acked {
		return ""
	}
	return id
}

// expect says how a task may end from now on.
func (w *world) expect(id string, ends ...state.Status) {
	w.mu.Lock()
	w.wishes[id].ends = ends
	w.mu.Unlock()
}

// byHand notes a task that a person writes, and gives its section.
func (w *world) byHand() (id, section string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hands++
	id = fmt.Sprintf("hand-%d", w.hands)
	wish := &wish{prompt: "by hand, number " + id, ends: []state.Status{state.Done}}
	w.wishes[id] = wish
	return id, fmt.Sprintf("\n## Task %s\n- status: queued\n- workspace: %s\n- prompt: %s\n", id, w.work, wish.prompt)
}

// awaitTask waits until the master shows that a condition holds for a task.
func (w *world) awaitTask(ctx context.Context, id string, holds func(*wire.TaskView) bool) bool {
	is := false
	poll(scriptDeadline, func() bool {
		v, err := w.client.Task(ctx, id)
		is = err == nil && holds(&v)
		return is || ctx.Err() != nil
	})
	return is
}

// keep says that a task may not be lost from now on.
func (w *world) keep(id string) {
	w.mu.Lock()
	w.wishes[id].acked = true
	w.mu.Unlock()
}

// settle waits until every task that is there has ended.
func (w *world) settle(ctx context.Context, l *life) bool {
	for ctx.Err() == nil && l.alive() {
		tasks, err := w.client.List(ctx, state.Filter{Status: []state.Status{state.Queued, state.Running}})
		if err != nil {
			return false
		}
		if len(tasks) == 0 {
			return true
		}
		_, _ = w.client.Wait(ctx, tasks[0].ID) // another hand may have taken it out
	}
	return false
}

// audit starts a master as a user would, lets it come to rest and compares what
// it has with what the clients were told; and then looks at the files.
func (w *world) audit() {
	w.t.Helper()
	w.recover()
	if err := fsckIsClean(w.state); err != nil {
		w.t.Error(err)
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
func (w *world) recover() {
	w.t.Helper()
	l := w.serve()
	enough := 2*scriptDeadline + time.Duration(len(w.wishes))*time.Second/2 // most may still have to run
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	if !w.settle(ctx, l) {
		w.t.Fatalf("the tasks do not come to rest:\n%s", l.said())
	}
	w.compare(ctx)
	w.end(l, syscall.SIGTERM)
	if !l.cmd.ProcessState.Success() {
		w.t.Errorf("the master ended with %v:\n%s", l.cmd.ProcessState, l.said())
	}
}

// compare: acknowledged tasks are there, once, unchanged, and have ended as they may; and nobody else's are.
func (w *world) compare(ctx context.Context) {
	w.t.Helper()
	tasks, err := w.client.List(ctx, state.Filter{})
	must(w.t, err)
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
		var e *task.Error
		switch {
		case !wish.acked && errors.As(err, &e) && e.Code == task.CodeNotFound:
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
func (w *world) together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// slowRecovery is more than a master may take from its start until a task whose
// run was interrupted is queued again. It takes one or two seconds; this finds one
// that waits for something, also on a machine that has much else to do.
const slowRecovery = 20 * time.Second

// killTree kills a master, which is stopped first, and before it the gates of its
// runs: then the agents and what they have left behind are on their own. While
// the master is stopped nobody else can have the number of one of its children.
func (w *world) killTree(master int) error {
	w.t.Helper()
	if err := syscall.Kill(master, syscall.SIGSTOP); err != nil {
		return err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(w.t, err)
	for _, name := range stats {
		text, _ := os.ReadFile(name) // it may be gone
		_, fields, _ := strings.Cut(string(text), ") ")
		var ppid int
		if _, err := fmt.Sscanf(fields, "%1s %d", new(string), &ppid); err != nil || ppid != master {
			continue
		}
		gate, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		_ = syscall.Kill(gate, syscall.SIGKILL) // it may have ended: then it is a zombie
	}
	return syscall.Kill(master, syscall.SIGKILL)
}

// slowest returns the longest time from the start of a master until it has queued a
// task again that was running when the one before was killed, and how often that
// happened, as the journal has it. w.starts are the masters' starts.
func (w *world) slowest() (longest time.Duration, requeued int) {
	w.t.Helper()
	text := get(w.t, filepath.Join(w.state, "journal.md"))
	doc := ledger.Parse(text)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Value(state.KeyReason) != string(state.ClassInterrupted) || s.Value(state.KeyRetries) == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, s.Value(state.KeyUpdatedAt))
		must(w.t, err)
		requeued++
		longest = max(longest, at.Sub(w.startBefore(at)))
	}
	return longest.Round(time.Millisecond), requeued
}

// startBefore returns the start of the master that wrote a record then.
func (w *world) startBefore(at time.Time) time.Time {
	w.t.Helper()
	i, _ := slices.BinarySearchFunc(w.starts, at.Add(time.Millisecond), time.Time.Compare) // records have no more digits
	if i == 0 {
		w.t.Fatalf("no master was there at %v: %v", at, w.starts)
	}
	return w.starts[i-1]
}

// survivors returns the processes whose environment names the state directory, as
// those of all its agents does.
func (w *world) survivors() (found []string) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	must(w.t, err)
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && pid != os.Getpid() && bytes.Contains(env, []byte(w.state+"/")) {
			cmd, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may be gone
			found = append(found, fmt.Sprintf("%d %q", pid, cmd))
		}
	}
	return found
}

// expectNoOverlap reads the agents' own log: no run says that it has stopped
// after the next run of its task has begun.
func (w *world) expectNoOverlap() {
	w.t.Helper()
	f, err := os.Open(filepath.Join(w.state, "demo", "log.jsonl"))
	must(w.t, err)
	defer func() { _ = f.Close() }() // only read from
	last := map[string]demoRun{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r demoRun
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // cut off by a SIGKILL
		}
		before, again := last[r.Task]
		switch {
		case r.Event == "stop" && before.Run != r.Run:
			w.overlapping++
			w.t.Errorf("run %s of task %s still worked when run %s had begun", r.Run, r.Task, before.Run)
		case r.Event == "start" && again && before.Run == r.Run:
			w.overlapping++
			w.t.Errorf("run %s of task %s began twice", r.Run, r.Task)
		case r.Event == "start":
			last[r.Task] = r
		}
	}
}

// notShort skips what takes seconds, or needs masters of its own, with -short.
func notShort(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("not with -short")
	}
}

// needProgram skips a test where a program is missing; CI must have it.
func needProgram(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(t, name+" is not installed")
	}
}

// envInt returns the number of a variable.
func envInt(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}
