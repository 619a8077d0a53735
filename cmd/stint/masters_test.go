package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/client"
	"stint/state"
)

// TestPromise2OneMaster starts 50 masters at once, again and again: exactly one stays. In every second round
// somebody removes or replaces the lock file meanwhile; then there may be none, but never two.
// STINT_TEST_STARTS sets the number of rounds.
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
	check(t, errors.Join(w.script().end(syscall.SIGTERM, scriptDeadline), fsckIsClean(w.state)))
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
		must(w.t, err)
		have[task.Prompt] = append(have[task.Prompt], id)
	}
	for i, id := range ids {
		got := have[fmt.Sprint("submit ", i)]
		if len(got) > 1 || id != "" && (len(got) == 0 || got[0] != id) {
			w.lose("command %d printed %q; its tasks are %v", i, id, got)
		}
	}
}

// TestPromise7NothingIsAcknowledgedAfterAFailedSync lets an fdatasync of the journal fail with EIO: the
// master acknowledges nothing from then on, says why and ends; a new one finds what was acknowledged before.
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
	text := get(t, log)
	if !strings.Contains(string(text), "(INJECTED)") || !failed {
		t.Fatalf("no fault was injected:\n%s", text)
	}
	if code := l.cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(l.said(), "input/output error") {
		t.Errorf("the master ended with %d:\n%s", code, l.said())
	}
	w.audit()
}

// TestPromise1And2KillsAtRandomTimes kills the master with SIGKILL at random moments, sometimes together with
// the gates of its runs, while clients submit and agents work that leave processes behind. In the end every
// acknowledged task is there, unchanged, once, and done; nobody else's is; no task has had two agents at
// once, nothing of any of them lives, and no master took longer than slowRecovery to queue again what was
// interrupted. STINT_TEST_KILLS sets the number of kills, STINT_TEST_SEED repeats a run.
func TestPromise1And2KillsAtRandomTimes(t *testing.T) {
	t.Parallel()
	kills := envInt(t, "STINT_TEST_KILLS", 6)
	seed := envInt(t, "STINT_TEST_SEED", int(time.Now().UnixNano()))
	t.Logf("seed %d, %d kills", seed, kills)
	w := newWorld(t, uint64(seed))
	for range kills {
		l := w.start()
		ctx, stop := l.during()
		prompts := make([]string, 1+w.rand.IntN(3))
		for i := range prompts { // two orphans are left, some of them after they were told in vain to end
			prompts[i] = []string{"", "demo:ignore-term "}[w.rand.IntN(2)] + fmt.Sprintf("demo:orphan demo:sleep=%dms demo:orphan", 20+w.rand.IntN(400))
		}
		moment, gates := time.Duration(w.rand.IntN(400))*time.Millisecond, w.rand.IntN(3) == 0
		if w.rand.IntN(4) > 0 && !w.ready(l) { // else it is killed while it starts, perhaps
			t.Fatalf("the master has ended:\n%s", l.said())
		}
		w.together(len(prompts)+1, func(i int) {
			switch {
			case i < len(prompts):
				if w.ready(l) {
					w.ask(ctx, fmt.Sprint("s", i), prompts[i], state.Done)
				}
			case gates:
				time.Sleep(moment) // the random moment
				check(t, w.killTree(l.cmd.Process.Pid))
			default:
				time.Sleep(moment)
				w.end(l, syscall.SIGKILL)
			}
		})
		w.end(l, syscall.SIGKILL)
		stop()
	}
	w.audit()
	slowest, requeued := w.slowest()
	t.Logf("kills: random=%d strace=0 lost=%d overlapping=%d survivors=%d requeued=%d slowest recovery=%v seed=%d",
		kills, w.lost, w.overlapping, len(w.survivors()), requeued, slowest, seed)
	if requeued == 0 {
		t.Error("no agent was at work when its master was killed")
	}
}

// onceHanging is a verify command that hangs the first time, and leaves a daemon
// behind; the second time it passes.
const onceHanging = "echo x >>marks; [ $(wc -l <marks) -ge 2 ] || { setsid sleep 1000 & sleep 1000; }"

// marks returns how often the command was run.
func (w *world) marks() int {
	data, _ := os.ReadFile(filepath.Join(w.work, "marks")) // not there: never
	return strings.Count(string(data), "x")
}

// killWhileVerifying kills the master as soon as the command is at work, with its gates or without them.
func (w *world) killWhileVerifying(l *life, gates bool) {
	w.t.Helper()
	if !poll(scriptDeadline, func() bool { return w.marks() == 1 }) {
		w.t.Fatal("the verify command was not run")
	}
	if gates {
		must(w.t, w.killTree(l.cmd.Process.Pid))
	}
	w.end(l, syscall.SIGKILL)
}

// TestPromise3KilledWhileVerifying: the next master runs the verify command again,
// and the agent not; nothing of the first run of the command lives.
func TestPromise3KilledWhileVerifying(t *testing.T) {
	t.Parallel()
	for name, gates := range map[string]bool{"the master": false, "the master and the gate": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			l := w.serve()
			id := w.run("task", "-d", "--verify", onceHanging, "do it")
			w.killWhileVerifying(l, gates)
			l = w.serve()
			task, err := w.client.Wait(t.Context(), id)
			must(t, err)
			if task.Attempt != 1 || task.Retries != 1 || task.Iteration != 1 || task.VerifyExitCode == nil || *task.VerifyExitCode != 0 || w.marks() != 2 {
				t.Errorf("the command was run %d times: %+v", w.marks(), task)
			}
			log, err := os.ReadFile(filepath.Join(w.state, "demo", "log.jsonl"))
			if n := strings.Count(string(log), `"event":"start"`); err != nil || n != 1 {
				t.Errorf("the agent was run %d times, %v:\n%s", n, err, log)
			}
			w.endAndCheck(l)
		})
	}
}

// workers returns the processes that work in the workspace.
func (w *world) workers() (found []string) {
	w.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	must(w.t, err)
	for _, link := range links {
		if dir, err := os.Readlink(link); err == nil && dir == w.work {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline")) // it may be gone
			found = append(found, fmt.Sprintf("%q", cmd))
		}
	}
	return found
}

// endAndCheck ends the master: nothing of any run lives, and the files are whole.
func (w *world) endAndCheck(l *life) {
	w.t.Helper()
	w.end(l, syscall.SIGTERM)
	if left := append(w.survivors(), w.workers()...); len(left) > 0 {
		w.t.Errorf("processes are left: %v", left)
	}
	check(w.t, fsckIsClean(w.state))
}

// TestLogCannotBeRotated: the error says what could not be done, and what helps.
func TestLogCannotBeRotated(t *testing.T) {
	state := t.TempDir()
	put(t, filepath.Join(state, "master.log"), strings.Repeat("\n", maxLog+1))
	must(t, os.Mkdir(filepath.Join(state, "master.log.1"), 0o700))
	_, err := (&app{}).spawnMaster(t.Context(), state)
	if message, try := explain(err); !strings.HasPrefix(message, "cannot start a master: ") || try != "stint doctor" {
		t.Errorf("%q, try %q", message, try)
	}
}

// TestSilentMaster: what a person reads when the master was stopped.
func TestSilentMaster(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "lock"), "4711\n")
	err := (&app{stateOption: dir}).silent(fmt.Errorf("%w at /run/s", client.ErrSilent))
	if exitCode(err) != exitBusy || isPassing(err) {
		t.Errorf("code %d, passing %v", exitCode(err), isPassing(err))
	}
	var text bytes.Buffer
	printError(&text, err)
	for _, want := range []string{"process 4711", "stopped, has no more open files, or hangs: the master does not answer at /run/s", "kill -CONT 4711", "kill -9 4711"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %q", want, text.String())
		}
	}
}

// TestHTTPIsTriedAgain: where the port is taken, or cannot be accepted from any more, it is
// opened again as soon as that is possible. In fake time.
func TestHTTPIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var tries []int
		var log bytes.Buffer
		last, ended, failures := time.Now(), false, 0
		answer := func(context.Context) error { return errors.New("cannot be accepted from") }
		m := &master{log: slog.New(slog.NewTextHandler(&log, nil)), cfg: &Config{}}
		open := func() func(context.Context) error {
			tries = append(tries, int(time.Since(last).Seconds()))
			last = time.Now()
			if len(tries) == 8 {
				m.noteHTTP(nil)
				return answer
			}
			m.noteHTTP(errors.New("taken"))
			return nil
		}
		go func() {
			serveHTTP(ctx, answer, open, func(err error) { failures++; m.noteHTTP(err) })
			ended = true
		}()
		time.Sleep(52 * time.Second)
		synctest.Wait()
		if want := "[5 5 5 5 5 5 5 5 5 5]"; fmt.Sprint(tries) != want || ended {
			t.Errorf("tried after %v seconds, want %s; it has ended: %v", tries, want, ended)
		}
		if text := log.String(); failures != 2 || strings.Count(text, "level=WARN") != 4 || strings.Count(text, "taken") != 2 || strings.Count(text, "the HTTP interface is open") != 1 {
			t.Errorf("%s", text)
		}
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("it does not end with the master")
		}
	})
}
