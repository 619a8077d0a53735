package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/api/wire"
	"stint/ledger/durable"
	"stint/state"
)

// damages are what another hand does to a name below the state directory.
var damages = []struct {
	name string
	do   func(path string) error
}{
	{"removed", os.RemoveAll},
	{"moved away", func(p string) error { return os.Rename(p, p+".away") }},
	{"replaced by a copy", func(p string) error {
		data, err := os.ReadFile(p)
		if err != nil {
			return errNotHere // a directory
		}
		return errors.Join(os.WriteFile(p+".copy", data[:len(data)/2], 0o600), os.Rename(p+".copy", p))
	}},
	{"truncated", func(p string) error { return onFile(p, func() error { return os.Truncate(p, 0) }) }},
	{"extended", func(p string) error {
		return onFile(p, func() error {
			f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("x")
			return errors.Join(err, f.Close())
		})
	}},
	{"exchanged with tasks.md", func(p string) error { return durable.OS.Exchange(p, filepath.Join(stateAbove(p), "tasks.md")) }},
	{"a FIFO", func(p string) error { return errors.Join(os.Rename(p, p+".away"), syscall.Mkfifo(p, 0o600)) }},
	{"a symbolic link", func(p string) error {
		canary := filepath.Join(stateAbove(p), "..", "canary")
		return errors.Join(os.WriteFile(canary, []byte("untouched\n"), 0o600), os.Rename(p, p+".away"), os.Symlink(canary, p))
	}},
	{"a directory", func(p string) error {
		return onFile(p, func() error { return errors.Join(os.Rename(p, p+".away"), os.Mkdir(p, 0o700)) })
	}},
	{"a file", func(p string) error {
		if fi, err := os.Lstat(p); err == nil && !fi.IsDir() {
			return errNotHere
		}
		return errors.Join(os.Rename(p, p+".away"), os.WriteFile(p, []byte("x\n"), 0o600))
	}},
	{"unreadable", func(p string) error { return os.Chmod(p, 0) }},
}

// errNotHere: what has that name cannot be damaged so.
var errNotHere = errors.New("not here")

func onFile(path string, do func() error) error {
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		return errNotHere
	}
	return do()
}

// stateAbove returns the state directory that a path lies in.
func stateAbove(path string) string {
	for filepath.Base(path) != "state" {
		path = filepath.Dir(path)
	}
	return path
}

// noHang is how long anything may take.
const noHang = 10 * time.Second

// TestPromise1ForeignHands damages every name below the state directory in every way, with
// a master that runs and one that does not, while one task runs and another waits. What
// was acknowledged is there afterwards, once and unchanged; nothing takes longer than
// noHang; what cannot go on says why and names the file; and nothing is written through a
// link. STINT_TEST_FOREIGN sets how many cases are tried, 0: all; STINT_TEST_SEED which.
func TestPromise1ForeignHands(t *testing.T) {
	t.Parallel()
	most := envInt(t, "STINT_TEST_FOREIGN", 6)
	seed := envInt(t, "STINT_TEST_SEED", int(time.Now().UnixNano()))
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	type foreignCase struct {
		name   string
		damage int
		live   bool
	}
	var cases []foreignCase
	for _, name := range newForeignWorld(t).names() {
		for d := range damages {
			cases = append(cases, foreignCase{name, d, true}, foreignCase{name, d, false})
		}
	}
	r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	all := len(cases)
	if most > 0 {
		cases = cases[:min(most, len(cases))]
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %s live=%v", strings.ReplaceAll(c.name, "/", "|"), damages[c.damage].name, c.live), func(t *testing.T) {
			t.Parallel()
			w := newForeignWorld(t)
			w.try(c.name, damages[c.damage].do, c.live)
		})
	}
	t.Logf("foreign: cases=%d of=%d seed=%d", len(cases), all, seed)
}

// A foreignWorld has a master with a finished task, one that runs and one that waits.
type foreignWorld struct {
	*world
	l                     *life
	finished, runs, waits string
}

func newForeignWorld(t *testing.T) *foreignWorld {
	w := &foreignWorld{world: newWorld(t, 1, "STINT_GRACE=1s", "STINT_IDLE_TIMEOUT=20s", "STINT_MAX_RETRIES=3")}
	t.Cleanup(func() { // what nobody can read, nobody can remove
		_ = filepath.WalkDir(w.state, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				err = os.Chmod(path, 0o700)
			}
			return err
		})
	})
	w.l = w.serve()
	ctx, cancel := w.l.during()
	defer cancel()
	w.finished = w.ask(ctx, "first", "demo:say=well")
	if _, err := w.client.Wait(ctx, w.finished); err != nil {
		t.Fatal(err)
	}
	w.runs = w.ask(ctx, "s", "demo:sleep=60", anyEnd...)
	if !w.awaitTask(ctx, w.runs, func(v *wire.TaskView) bool { return v.Status == state.Running && v.AgentSession != "" }) {
		t.Fatal("it does not run")
	}
	w.waits = w.ask(ctx, "s", "waits")
	return w
}

// anyEnd is how a task may end whose agent, or whose session, finds its own files damaged: it says so.
var anyEnd = []state.Status{state.Done, state.Failed, state.Canceled, state.Dead}

// mayFail says so of all tasks but the one that has ended.
func (w *foreignWorld) mayFail(name string) {
	if !strings.HasPrefix(name, "demo") && !strings.HasPrefix(name, "sessions") {
		return
	}
	for id := range w.wishes {
		if id != w.finished {
			w.expect(id, anyEnd...)
		}
	}
}

// idsIn are ids in the names of files.
var idsIn = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// names returns the names below the state directory, with ID for what differs from run to run, each once.
func (w *foreignWorld) names() (list []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == w.state {
			return err
		}
		rel, err := filepath.Rel(w.state, path)
		if name := idsIn.ReplaceAllString(rel, "ID"); !slices.Contains(list, name) {
			list = append(list, name)
		}
		return err
	})
	must(w.t, err)
	return list
}

// find returns the path of such a name: that of the task that runs, if there are several.
func (w *foreignWorld) find(name string) (found string) {
	_ = filepath.WalkDir(w.state, func(path string, _ fs.DirEntry, err error) error {
		if rel, rerr := filepath.Rel(w.state, path); err == nil && rerr == nil && idsIn.ReplaceAllString(rel, "ID") == name {
			found = path // the last one: ids grow
		}
		return nil
	})
	return found
}

// try damages one name and looks what comes of it.
func (w *foreignWorld) try(name string, damage func(string) error, live bool) {
	w.t.Helper()
	if !live {
		w.end(w.l, syscall.SIGTERM)
	}
	path := w.find(name)
	if path == "" {
		return // only a master at work has it
	}
	if err := damage(path); errors.Is(err, errNotHere) {
		return
	} else if err != nil {
		w.t.Fatal(err)
	}
	if !live {
		w.l = w.start()
	}
	w.use(name, live)
	w.within("end on SIGTERM", func() { w.end(w.l, syscall.SIGTERM) })
	for tries := 1; ; tries++ {
		if w.l = w.start(); w.ready(w.l) {
			break
		}
		w.explained(w.l, name)
		if tries == 4 {
			w.t.Fatalf("the master does not start:\n%s", w.l.said())
		}
		for i, p := range []string{path, filepath.Join(w.state, "tasks.md")} { // which was exchanged with it
			if strings.Contains(w.l.said(), p) {
				_ = os.Rename(p, filepath.Join(filepath.Dir(w.state), fmt.Sprint("aside", tries, i)))
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*noHang)
	defer cancel()
	_, _ = w.client.Act(ctx, w.runs, "cancel") // it may have ended
	if !w.settle(ctx, w.l) {
		w.t.Fatalf("the tasks do not come to rest:\n%s", w.l.said())
	}
	w.mayFail(name)
	w.compare(ctx)
	w.end(w.l, syscall.SIGTERM)
	if canary, err := os.ReadFile(filepath.Join(filepath.Dir(w.state), "canary")); err == nil && string(canary) != "untouched\n" {
		w.t.Errorf("something was written through the link: %q", canary)
	}
}

// use does what users do. While the master says that something is wrong, they try again.
func (w *foreignWorld) use(name string, live bool) {
	w.t.Helper()
	if !live && !w.ready(w.l) {
		w.explained(w.l, name)
		return
	}
	ctx, cancel := w.l.during()
	defer cancel()
	w.within("submit", func() { w.ask(ctx, "other", "after the damage") })
	w.within("list", func() {
		for end := time.Now().Add(noHang / 2); w.l.alive(); {
			if _, err := w.client.List(ctx, state.Filter{}); err == nil {
				return
			} else if time.Now().After(end) {
				w.t.Errorf("list: %v", err)
				return
			}
		}
	})
	w.within("show", func() { _, _ = w.client.Task(ctx, w.finished) })
	w.within("cancel", func() { _, _ = w.client.Act(ctx, w.runs, "cancel") })
	if !w.l.alive() {
		w.explained(w.l, name)
	}
}

// explained: a master that does not go on has said why.
func (w *foreignWorld) explained(l *life, name string) {
	w.t.Helper()
	var said string
	for line := range strings.Lines(l.said()) {
		if !strings.Contains(line, "level=INFO") { // which names the directory whatever happens
			said += line
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.Contains(said, part) || strings.Contains(said, w.state) {
			return
		}
	}
	w.t.Errorf("the master ended, and says nothing of %s:\n%s", name, said)
}

// within fails if f takes longer than noHang.
func (w *foreignWorld) within(what string, f func()) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(noHang):
		w.t.Errorf("%s hangs", what)
		_ = w.l.cmd.Process.Kill()
		<-done
	}
}
