package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

// TestPromise2OneMaster starts 50 masters at once, again and again: exactly one
// stays. In every second round somebody removes or replaces the lock file
// meanwhile; then there may be none, but never two. STINT_TEST_STARTS sets the
// number of rounds.
func TestPromise2OneMaster(t *testing.T) {
	w := newKillWorld(newCrashWorld(t, 1), "")
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
func (w *killWorld) spoilLock(round int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		path := filepath.Join(w.state, "lock")
		for n := 0; round%2 == 1 && ctx.Err() == nil; n++ {
			time.Sleep(3 * time.Millisecond)
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
func (w *killWorld) theOnes(lives []*life) (left []*life) {
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
		replaced := strings.Contains(l.stderr.String(), "was replaced while it was being locked")
		if code := l.cmd.ProcessState.ExitCode(); code != exitBusy && !replaced {
			w.t.Errorf("a second master ends with %d:\n%s", code, l.stderr.String())
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
	w := newCrashWorld(t, 1)
	const submits, kills = 64, 20
	var ids [submits]string
	var killed, ended atomic.Int64
	var all sync.WaitGroup
	for i := range submits {
		all.Go(func() {
			defer ended.Add(1)
			poll(scriptDeadline, func() bool { return killed.Load() >= int64(i*kills/submits) }) // the last ones before each kill go together
			cmd := &exec.Cmd{Path: w.self, Args: []string{"stint", "task", "-d", "--parallel", fmt.Sprint("submit ", i)}, Env: w.env, Dir: w.work}
			if out, err := cmd.Output(); err == nil {
				ids[i] = strings.TrimSpace(string(out))
			}
		})
	}
	for killed.Load() < kills && ended.Load() < submits {
		time.Sleep(time.Duration(w.rand.IntN(40)) * time.Millisecond) // the random moment
		if w.kill() {
			killed.Add(1)
		}
	}
	all.Wait()
	w.run("wait", append([]string{"--all", "--timeout", "120s"}, told(ids[:])...)...)
	w.expectOnce(ids[:])
	w.stop()
	if err := coordinator.Check(w.state); err != nil {
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
func (w *crashWorld) expectOnce(ids []string) {
	w.t.Helper()
	have := map[string][]string{} // ids by prompt
	for id := range strings.Lines(w.run("ls", "-q", "-n", "0")) {
		id = strings.TrimSpace(id)
		var task state.Task
		w.show(id, &task)
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
	needProgram(t, "strace")
	w := newKillWorld(newCrashWorld(t, 1), "")
	w.prepare()
	log := filepath.Join(filepath.Dir(w.state), "strace.log")
	at := target{"fdatasync", "journal.md"}
	l := w.start(w.strace(log, at, "fdatasync:error=EIO:when=2+")...)
	if !w.ready(l) {
		t.Fatal(l.stderr.String())
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
	if code := l.cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(l.stderr.String(), "input/output error") {
		t.Errorf("the master ended with %d:\n%s", code, l.stderr.String())
	}
	w.audit()
}

// TestAgentsInheritNoLock: no process of a run holds the lock of the state
// directory or its journal open; else an agent left behind would keep the next
// master out.
func TestAgentsInheritNoLock(t *testing.T) {
	if !hasProc() {
		missing(t, "there is no /proc to look into")
	}
	w := newKillWorld(newCrashWorld(t, 1), "")
	w.prepare()
	l := w.start()
	if !w.ready(l) {
		t.Fatal(l.stderr.String())
	}
	ctx, stop := l.during()
	defer stop()
	w.ask(ctx, "s0", "demo:sleep=2s demo:orphan")
	s := &scriptState{state: w.state}
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
	w.end(l, syscall.SIGKILL)
	w.audit()
}

// openFiles gives the paths that a process has open; none if it has just ended.
func openFiles(t *testing.T, pid string) (paths []string) {
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
