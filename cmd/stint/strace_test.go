package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/api/wire"
	"stint/state"
)

// A target is a system call on a file of the state directory at which the master
// is killed. strace counts the calls of each thread apart.
type target struct{ call, file string }

func (k target) String() string { return k.call + " " + k.file }

// anyFile stands for all files, also those whose names nobody knows beforehand.
const anyFile = "*"

// A killScenario is what clients and people do while the master is killed.
type killScenario struct {
	name   string
	fresh  bool           // each kill is in a new state directory
	calls  string         // "CALL FILE, ...": where it is killed
	before func(w *world) // done while no master runs; nil: nothing
	play   func(ctx context.Context, w *world, l *life)
}

// Calls that scenarios share.
const (
	appends   = "write journal.md, fdatasync journal.md, openat tasks.md, write tasks.md"
	everyFile = "fsync *, fdatasync *, renameat *"
)

var killScenarios = []killScenario{
	{name: "first start", fresh: true, calls: replaces("journal.md") + replaces("tasks.md") + replaces("format") + "openat journal.md, openat tasks.md", play: playSubmit},
	{name: "submit", calls: appends + ", openat journal.md, " + everyFile, play: playSubmit},
	{name: "start and finish", calls: appends + ", " + everyFile, play: playFinish},
	{name: "retry", calls: appends + ", " + everyFile, play: playRetry},
	{name: "cancel", calls: appends + ", " + everyFile, play: playCancel},
	{name: "session update", calls: replaces("sessions.json") + "openat sessions.json, fdatasync tasks.md", play: playSession},
	{name: "hand edit", calls: appends + ", fdatasync tasks.md, " + everyFile, play: playHandEdit},
	{name: "recovery", calls: appends + ", openat journal.md, fsync journal.md, ftruncate journal.md, " + everyFile, before: tearTail, play: playSubmit},
	{name: "compact", calls: compactCalls(), play: playCompact},
	{name: "foreign hands", calls: appends + ", openat journal.md.new, write journal.md.new, fsync journal.md.new, renameat journal.md.new, renameat2 journal.md.new, fsync .", play: playForeign},
}

// compactCalls returns the calls of a compaction.
func compactCalls() string {
	list := appends + ", " + everyFile + ", mkdirat archive, openat archive, fsync archive, openat ., fsync ., renameat journal.md.new, fdatasync journal.md.new, renameat2 tasks.md.compacted, unlinkat tasks.md.compacted"
	month := time.Now().UTC().Format("archive/tasks-2006-01.md")
	for _, file := range []string{month, "archive/index", "journal.md.new", "tasks.md.compacted"} {
		list += strings.ReplaceAll(", openat F, write F, fsync F", "F", file)
	}
	return list
}

// replaces returns the calls by which a file is replaced, but for those on its temporary
// file, which has a random name and which nobody reads.
func replaces(file string) string { return "renameat " + file + ", openat ., fsync ., " }

// TestPromise1And2KillsAtSystemCalls kills the master with SIGKILL at the N-th write, fsync, rename and so on
// of each file of the state directory, N = 1, 2 and so on until it is not reached any more, while clients and
// a person work with it and agents run. After each kill a new master must find everything that was
// acknowledged. STINT_TEST_STRACE sets the number of kills, STINT_TEST_SCENARIO takes one scenario only,
// STINT_TEST_SEED repeats the choice of the moments.
func TestPromise1And2KillsAtSystemCalls(t *testing.T) {
	t.Parallel()
	notShort(t)
	needProgram(t, "strace")
	kills := envInt(t, "STINT_TEST_STRACE", 4)
	seed := envInt(t, "STINT_TEST_SEED", int(time.Now().UnixNano()))
	t.Logf("seed %d, %d kills", seed, kills)
	s := &siege{t: t, seed: uint64(seed), at: map[string]int{}}
	for round := 0; s.kills < kills; round++ {
		if round > 20+20*kills {
			t.Fatalf("only %d of %d rounds ended with a kill: %v", s.kills, round, s.at)
		}
		if !t.Run(fmt.Sprint(round), func(t *testing.T) { s.lay(t, round, kills) }) {
			t.Fatalf("kills: strace=%d lost=%d overlapping=%d seed=%d; the state directory was %s", s.kills, s.lost, s.overlapping, seed, s.where)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.at)) {
		t.Logf("%4d kills at %s", s.at[k], k)
	}
	t.Logf("kills: random=0 strace=%d lost=%d overlapping=%d slowest recovery=%v seed=%d", s.kills, s.lost, s.overlapping, s.slowest, seed)
}

// A siege counts over all worlds.
type siege struct {
	t     *testing.T
	seed  uint64
	kills int
	at    map[string]int // kills by call and file
	where string         // the last world's state directory

	lost, overlapping int
	slowest           time.Duration
}

// perWorld is how many kills one state directory goes through: enough for a
// history, few enough to look at all of it after each.
const perWorld = 12

// lay plays one scenario in one new world.
func (s *siege) lay(t *testing.T, round, limit int) {
	w := newWorld(t, s.seed+uint64(round))
	s.where = w.state
	defer func() {
		s.lost += w.lost
		s.overlapping += w.overlapping
	}()
	only := os.Getenv("STINT_TEST_SCENARIO")
	scenarios := slices.DeleteFunc(slices.Clone(killScenarios), func(k killScenario) bool { return only != "" && only != k.name })
	scenario := scenarios[(int(s.seed%1024)+round)%len(scenarios)]
	if !scenario.fresh {
		w.prepare()
	}
	targets := scenario.targets()
	w.rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	most := min(perWorld, 1+limit/10) // a few kills are spread over the scenarios
	for n, missed := 0, 0; n < most && missed < most && s.kills < limit; {
		k, nth := targets[(n+missed)%len(targets)], 1+n%2*w.rand.IntN(4)
		if !w.strike(scenario, k, nth) {
			missed++
			continue
		}
		n++
		s.kills++
		s.at[k.String()]++
		w.audit()
		slowest, _ := w.slowest()
		s.slowest = max(s.slowest, slowest)
		if t.Failed() {
			t.Logf("scenario %s, killed at call %d of %s", scenario.name, nth, k)
		}
		if t.Failed() || scenario.fresh {
			return
		}
	}
}

func (k *killScenario) targets() (list []target) {
	for _, at := range strings.Split(k.calls, ", ") {
		call, file, _ := strings.Cut(at, " ")
		list = append(list, target{call, file})
	}
	return list
}

// prepare makes a first task in the world, so that all files and directories exist.
func (w *world) prepare() {
	w.t.Helper()
	l := w.serve()
	ctx, stop := l.during()
	defer stop()
	if w.ask(ctx, "s0", "") == "" || !w.settle(ctx, l) {
		w.t.Fatalf("the first task does not end:\n%s", l.said())
	}
	w.end(l, syscall.SIGTERM)
}

// strike runs a scenario with a master that is killed at the nth call of a target. It
// reports whether it was: some calls are not reached.
func (w *world) strike(s killScenario, k target, nth int) (killed bool) {
	w.t.Helper()
	log := filepath.Join(w.dir, "strace.log")
	if s.before != nil {
		s.before(w)
	}
	l := w.startUnder(w.strace(log, k, fmt.Sprintf("%s:signal=KILL:when=%d", k.call, nth)))
	if w.ready(l) {
		ctx, stop := l.during()
		s.play(ctx, w, l)
		stop()
	}
	if w.answers(l) {
		w.end(l, syscall.SIGKILL)
		return false
	}
	switch status := l.cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return true
	case status.Exited() && status.ExitStatus() == 0:
		return false // the scenario has ended it
	}
	w.t.Fatalf("the master ended by itself (%v):\n%s", l.cmd.ProcessState, l.said())
	return false
}

// answers reports whether the master lives; if not, its end has been seen.
func (w *world) answers(l *life) bool {
	w.t.Helper()
	ctx, stop := l.during()
	defer stop()
	if l.alive() {
		if _, err := w.client.Health(ctx); err == nil {
			return true
		}
	}
	select {
	case <-l.gone:
	case <-time.After(scriptDeadline):
		w.t.Fatal("the master lives and does not answer")
	}
	return false
}

// strace returns the command line that injects a fault. It traces from a process of its own (-D), so that the
// master is our child. With --seccomp-bpf it would be faster, but strace 6.1 then forgets to inject.
func (w *world) strace(log string, k target, inject string) []string {
	argv := []string{"strace", "-D", "-f", "-qq", "-y", "-e", "signal=none", "-e", "trace=" + k.call, "-o", log, "-e", "inject=" + inject}
	if k.file != anyFile {
		argv = append(argv, "-P", filepath.Join(w.state, k.file))
	}
	return append(argv, "--")
}

// tearTail leaves what a power cut leaves of a record that nobody was told of.
func tearTail(w *world) {
	must(w.t, appendTo(filepath.Join(w.state, "journal.md"), "## Task torn\n- seq: 99999\n- status: que"))
}

// playSubmit: clients submit at once.
func playSubmit(ctx context.Context, w *world, l *life) {
	w.together(4, func(i int) { w.ask(ctx, fmt.Sprint("s", i%2), "") })
	w.settle(ctx, l)
}

// playForeign: another hand replaces the journal by a half of it, then adds to it, and
// then cuts it, while the master lives. One that was killed just before it has written its
// last records into tasks.md has them in the journal alone: that is left as it is.
func playForeign(ctx context.Context, w *world, l *life) {
	journal := filepath.Join(w.state, "journal.md")
	for _, hand := range []func(data []byte) error{
		func(data []byte) error {
			return errors.Join(os.WriteFile(journal+".half", data[:len(data)/2], 0o600), os.Rename(journal+".half", journal))
		},
		func(data []byte) error { return os.WriteFile(journal, append(data, 'x'), 0o600) },
		func([]byte) error { return os.Truncate(journal, 10) },
	} {
		w.together(4, func(i int) { w.ask(ctx, fmt.Sprint("s", i%2), "") })
		if !w.settle(ctx, l) {
			return
		}
		if data, err := os.ReadFile(journal); err == nil {
			_ = hand(data) // it may be renamed just now
		}
	}
	playSubmit(ctx, w, l)
}

// playFinish: runs of various lengths, one of which leaves a process behind.
func playFinish(ctx context.Context, w *world, l *life) {
	w.together(3, func(i int) { w.ask(ctx, fmt.Sprint("s", i), fmt.Sprintf("demo:sleep=%dms demo:orphan", 30*i)) })
	w.settle(ctx, l)
}

// playRetry: a task that fails at first, and one that is tried again by hand.
func playRetry(ctx context.Context, w *world, l *life) {
	w.ask(ctx, "s0", "demo:500-first")
	if id := w.ask(ctx, "s1", "demo:sleep=40ms", state.Done); id != "" {
		w.cancel(ctx, id)
		w.expect(id, state.Done, state.Canceled)
		if _, err := w.client.Act(ctx, id, "retry"); err == nil {
			w.expect(id, state.Done)
		}
	}
	w.settle(ctx, l)
}

// playCancel: one task is canceled while it runs, one while it waits.
func playCancel(ctx context.Context, w *world, l *life) {
	running, waiting := w.ask(ctx, "s0", "demo:sleep=200ms"), w.ask(ctx, "s0", "demo:sleep=1ms")
	w.together(2, func(i int) { w.cancel(ctx, []string{running, waiting}[i]) })
	w.settle(ctx, l)
}

// cancel cancels a task and notes what is known of it then.
func (w *world) cancel(ctx context.Context, id string) {
	if id == "" {
		return // its submit was not confirmed
	}
	w.expect(id, state.Done, state.Canceled)
	if v, err := w.client.Act(ctx, id, "cancel"); err == nil {
		w.expect(id, v.Status)
	}
}

// playSession: a session goes on, and the master is ended, which writes sessions.json.
func playSession(ctx context.Context, w *world, l *life) {
	w.ask(ctx, "s0", "")
	w.ask(ctx, "s0", "")
	w.settle(ctx, l)
	_ = l.cmd.Process.Signal(syscall.SIGTERM) // it may be dead already
	<-l.gone
}

// playHandEdit: a person appends a task in place, and cancels one by a file of the
// same name, while a client submits.
func playHandEdit(ctx context.Context, w *world, l *life) {
	path := filepath.Join(w.state, "tasks.md")
	first, section := w.byHand()
	if appendTo(path, section) == nil {
		w.keep(first)
	}
	slow := w.ask(ctx, "s0", "demo:sleep=200ms")
	text := get(w.t, path)
	w.ask(ctx, "s1", "") // what is saved next does not have it
	second, section := w.byHand()
	if slow != "" {
		w.expect(slow, state.Done, state.Canceled)
		section += fmt.Sprintf("\n## Task %s\n- status: canceled\n", slow)
	}
	must(w.t, os.WriteFile(path+"~", append(text, section...), 0o600))
	must(w.t, os.Rename(path+"~", path))
	w.keep(second)
	w.awaitTask(ctx, second, func(v *wire.TaskView) bool { return v.Status.Terminal() })
	w.settle(ctx, l)
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

// playCompact: the ledger is compacted while tasks run.
func playCompact(ctx context.Context, w *world, l *life) {
	w.together(2, func(i int) { w.ask(ctx, fmt.Sprint("s", i), "demo:sleep=5ms") })
	w.settle(ctx, l)
	w.together(3, func(i int) {
		if i == 0 {
			w.compact(ctx)
		} else {
			w.ask(ctx, fmt.Sprint("s", i), "demo:sleep=10ms")
		}
	})
	w.settle(ctx, l)
}

// compact runs `stint compact-tasks`; it may fail, because its master is killed.
func (w *world) compact(ctx context.Context) {
	w.mu.Lock()
	older := []string{"0s", "1h"}[len(w.wishes)%2]
	w.mu.Unlock()
	cmd := exec.CommandContext(ctx, w.self, "compact-tasks", "--older-than", older)
	cmd.Env, cmd.Dir = append(slices.Clone(w.env), "STINT_AUTO_START=false"), w.work
	_ = cmd.Run()
}
