package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/statedir"
	"stint/state"
)

// TestPromise2OneMaster starts 50 masters at once, again and again: exactly one
// stays. In every second round somebody removes or replaces the lock file
// meanwhile; then there may be none, but never two. STINT_TEST_STARTS sets the
// number of rounds.
func TestPromise2OneMaster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.prepare()
	for round := range envInt(t, "STINT_TEST_STARTS", 2) {
		var lives [50]*life
		stop := w.spoilLock(round)
		w.together(len(lives), func(i int) { lives[i] = w.start() })
		left := w.theOnes(lives[:])
		stop()
		if len(left) > 1 || len(left) == 0 && round%2 == 0 {
			t.Errorf("round %d: %d masters", round, len(left))
		}
		for _, l := range left {
			w.end(l, syscall.SIGKILL)
		}
		w.audit()
	}
}

// spoilLock removes and replaces the lock file in odd rounds until stop is called.
func (w *world) spoilLock(round int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		path := filepath.Join(w.state, "lock")
		often := time.NewTicker(3 * time.Millisecond)
		defer often.Stop()
		for n := 0; round%2 == 1 && ctx.Err() == nil; n++ {
			<-often.C
			if n%2 == 0 {
				_ = os.Remove(path) // it may be gone
			} else if os.WriteFile(path+"~", []byte("1\n"), 0o600) == nil {
				_ = os.Rename(path+"~", path) // somebody may have made a new one
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// theOnes waits until all masters but one have ended, and gives those that stay.
func (w *world) theOnes(lives []*life) (left []*life) {
	w.t.Helper()
	poll(scriptDeadline, func() bool {
		left = left[:0]
		for _, l := range lives {
			if l.alive() {
				left = append(left, l)
			}
		}
		return len(left) <= 1
	})
	for _, l := range lives {
		if l.alive() {
			continue
		}
		replaced := strings.Contains(l.said(), "was replaced while it was being locked")
		if code := l.cmd.ProcessState.ExitCode(); code != exitBusy && !replaced {
			w.t.Errorf("a second master ends with %d:\n%s", code, l.said())
		}
	}
	if len(left) == 1 && !w.ready(left[0]) {
		return nil
	}
	return left
}

// TestPromise1SubmitsWhileMastersDie: 64 commands submit while the master is killed
// and started again 20 times. Every one that exits 0 has its task, once.
func TestPromise1SubmitsWhileMastersDie(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	const submits, kills = 64, 20
	var ids [submits]string
	var killed, ended atomic.Int64
	var all sync.WaitGroup
	for i := range submits {
		all.Go(func() {
			defer ended.Add(1)
			poll(scriptDeadline, func() bool { return killed.Load() >= int64(i*kills/submits) }) // the last ones before each kill go together
			if out, err := w.command("task", "-d", "--parallel", fmt.Sprint("submit ", i)).Output(); err == nil {
				ids[i] = strings.TrimSpace(string(out))
			}
		})
	}
	for killed.Load() < kills && ended.Load() < submits {
		time.Sleep(time.Duration(w.rand.IntN(40)) * time.Millisecond) // the random moment
		if h := w.script().master(); h.PID > 0 && syscall.Kill(h.PID, syscall.SIGKILL) == nil {
			killed.Add(1)
		}
	}
	all.Wait()
	w.run("wait", append([]string{"--all", "--timeout", "120s"}, told(ids[:])...)...)
	w.expectOnce(ids[:])
	if err := errors.Join(w.script().end(syscall.SIGTERM, scriptDeadline), statedir.Check(w.state)); err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d commands exited 0, %d masters killed meanwhile", len(told(ids[:])), submits, killed.Load())
}

func told(ids []string) (list []string) {
	for _, id := range ids {
		if id != "" {
			list = append(list, id)
		}
	}
	return list
}

// expectOnce: command i has the one task with its prompt, which has the id that
// it printed; one that failed may have one, too.
func (w *world) expectOnce(ids []string) {
	w.t.Helper()
	have := map[string][]string{} // ids by prompt
	for id := range strings.Lines(w.run("ls", "-q", "-n", "0")) {
		id = strings.TrimSpace(id)
		task, err := w.client.Task(w.t.Context(), id)
		if err != nil {
			w.t.Fatal(err)
		}
		have[task.Prompt] = append(have[task.Prompt], id)
	}
	for i, id := range ids {
		got := have[fmt.Sprint("submit ", i)]
		if len(got) > 1 || id != "" && (len(got) == 0 || got[0] != id) {
			w.lose("command %d printed %q; its tasks are %v", i, id, got)
		}
	}
}

// TestPromise7NothingIsAcknowledgedAfterAFailedSync lets an fdatasync of the
// journal fail with EIO: the master acknowledges nothing from then on, says why
// and ends; a new one finds what was acknowledged before.
func TestPromise7NothingIsAcknowledgedAfterAFailedSync(t *testing.T) {
	t.Parallel()
	needProgram(t, "strace")
	w := newWorld(t, 1)
	w.prepare()
	log := filepath.Join(filepath.Dir(w.state), "strace.log")
	at := target{"fdatasync", "journal.md"}
	l := w.startUnder(w.strace(log, at, "fdatasync:error=EIO:when=2+"))
	if !w.ready(l) {
		t.Fatal(l.said())
	}
	ctx, stop := l.during()
	defer stop()
	failed := false
	for n := 0; n < 200 && l.alive(); n++ {
		id := w.ask(ctx, fmt.Sprint("s", n), "")
		if failed && id != "" {
			t.Errorf("task %s was acknowledged after a failed sync", id)
		}
		failed = failed || id == ""
	}
	w.end(l, syscall.Signal(0))
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "(INJECTED)") || !failed {
		t.Fatalf("no fault was injected:\n%s", text)
	}
	if code := l.cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(l.said(), "input/output error") {
		t.Errorf("the master ended with %d:\n%s", code, l.said())
	}
	w.audit()
}

// TestAgentsInheritNoLock: no process of a run holds the lock of the state
// directory or its journal open; else an agent left behind would keep the next
// master out.
func TestAgentsInheritNoLock(t *testing.T) {
	t.Parallel()
	if !hasProc() {
		missing(t, "there is no /proc to look into")
	}
	w := newWorld(t, 1)
	w.prepare()
	l := w.serve()
	ctx, stop := l.during()
	defer stop()
	id := w.ask(ctx, "s0", "demo:orphan demo:sleep=30s")
	s := w.script()
	var agents []string
	if !poll(scriptDeadline, func() bool { agents = s.agents(); return len(agents) >= 2 }) {
		t.Fatal("no agent runs")
	}
	looked := 0
	for _, line := range agents {
		pid, _, _ := strings.Cut(line, " ")
		for _, path := range openFiles(t, pid) {
			looked++
			if path == w.state || filepath.Dir(path) == w.state {
				t.Errorf("process %s holds %s open", line, path)
			}
		}
	}
	if looked < 3*len(agents) {
		t.Errorf("only %d descriptors of %d processes were seen", looked, len(agents))
	}
	w.cancel(ctx, id)
	w.end(l, syscall.SIGKILL)
	w.audit()
}

// openFiles returns the paths that a process has open; none if it has just ended.
func openFiles(t testing.TB, pid string) (paths []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/" + pid + "/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		path, err := os.Readlink(link)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// TestSecondSignal: it ends the master although a run does not end, and the next master
// looks after that.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, "STINT_GRACE=10m")
	l := w.serve()
	id := w.run("task", "-d", "--verify", `[ -e late ] && exit 0; trap '' TERM; : >begun; while :; do sleep 1; done`, "demo:say=well")
	if !poll(scriptDeadline, func() bool { _, err := os.Stat(filepath.Join(w.work, "begun")); return err == nil }) {
		t.Fatal("the command does not begin")
	}
	if err := l.cmd.Process.Signal(syscall.SIGHUP); err != nil { // another signal: two equal ones may become one
		t.Fatal(err)
	}
	w.end(l, syscall.SIGTERM)
	if code := l.cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	w.write("ws/late", "")
	l = w.serve()
	if v, err := w.client.Wait(t.Context(), id); err != nil || v.Status != state.Done {
		t.Errorf("the task is %s, %v", v.Status, err)
	}
	w.end(l, syscall.SIGTERM)
}
