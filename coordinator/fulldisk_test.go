package coordinator_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator"
	"stint/coordinator/attempt"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// fullDisk is the machine's file system, on which the journal finds no room while
// full is set, but for the next few writes.
type fullDisk struct {
	durable.FS
	full    atomic.Bool
	left    atomic.Int64 // writes for which there is still room
	refused atomic.Int64
	frees   atomic.Bool // there is room again when one write was refused
}

type fullFile struct {
	durable.File
	disk *fullDisk
}

func (d *fullDisk) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, "journal.md") {
		f = fullFile{f, d}
	}
	return f, err
}

func (f fullFile) Write(p []byte) (int, error) {
	if !f.disk.full.Load() || f.disk.left.Add(-1) >= 0 {
		return f.File.Write(p)
	}
	f.disk.refused.Add(1)
	f.disk.full.Store(!f.disk.frees.Load())
	n, _ := f.File.Write(p[:len(p)/2]) // as much as there is room for
	return n, syscall.ENOSPC
}

// openOn is openUnwatched on that disk.
func (w *world) openOn(d *fullDisk) {
	w.t.Helper()
	w.start(coordinator.OpenOn(w.cfg, d))
}

// TestDiskIsFullForAWhile: the disk fills up at each step of a task's life, and
// minutes later there is room again. Nobody does anything else; every task goes on. However
// long it lasts, that is one line of the log, and why and Health tell of it meanwhile.
func TestDiskIsFullForAWhile(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   func(w *world, d *fullDisk) (id string, want state.Status) // fills the disk
	}{
		{"before it is started", func(w *world, d *fullDisk) (string, state.Status) {
			id := w.submit(task.TaskSpec{Prompt: "p", NotBefore: time.Now().Add(time.Minute)}).ID
			d.full.Store(true)
			return id, state.Done
		}},
		{"while it runs", func(w *world, d *fullDisk) (string, state.Status) {
			w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
				d.full.Store(true)
				return task.Outcome{Result: "fine"}
			}
			return w.submit(task.TaskSpec{Prompt: "p"}).ID, state.Done
		}},
		{"before one that can never run is ended", func(w *world, d *fullDisk) (string, state.Status) {
			w.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
				<-ctx.Done()
				return task.Outcome{Class: state.ClassCanceled, ExitCode: -1}
			}
			first := w.submit(task.TaskSpec{Prompt: "p"}).ID
			id := w.submit(task.TaskSpec{Prompt: "then", After: []string{first}}).ID
			synctest.Wait() // until first is at work
			d.left.Store(1) // its end
			d.full.Store(true)
			w.cancel(first)
			return id, state.Failed
		}},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w, d := newWorld(t), &fullDisk{FS: durable.OS}
			w.cfg.HeartbeatInterval = 10 * time.Second
			log := w.logs()
			w.openOn(d)
			id, want := tc.at(w, d)
			time.Sleep(10 * time.Minute)
			got := w.task(id)
			if got.Status.Terminal() || d.refused.Load() == 0 || d.refused.Load() > 1300 {
				t.Errorf("the task is %s on a full disk, which has refused %d times", got.Status, d.refused.Load())
			}
			if log, _ := os.ReadFile(filepath.Join(w.dir, "runs", got.RunID, "events.jsonl")); strings.Contains(string(log), `"kind":"end"`) {
				t.Errorf("its log has an end that is not recorded: %s", log)
			}
			const what = "no room is left on the disk of "
			why, h := w.why(id), w.c.Health()
			waits := got.Status == state.Queued && want == state.Done
			if h.Status != task.HealthFailing || waits && (h.Shortage == nil || !strings.HasPrefix(why, what+w.dir+"; one task is ")) {
				t.Errorf("why: %s; health: %+v", why, h)
			}
			d.full.Store(false)
			begun := time.Now()
			if got = w.ended(id); got.Status != want || time.Since(begun) > 3*time.Second || w.c.Health().Shortage != nil {
				t.Errorf("the task is %s, %s after there was room; health: %+v", got.Status, time.Since(begun), w.c.Health())
			}
			w.close()
			if said := log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, what) || !strings.Contains(said, "the shortage is over") {
				t.Errorf("log:\n%s", said)
			}
		})
	}
}

// TestAnswerIsWrittenLater: a file of which there was no room for all has the whole answer in the end, and
// never a part of it; also where the answer is verified before the task ends.
func TestAnswerIsWrittenLater(t *testing.T) {
	for _, command := range []string{"", "make test"} {
		t.Run(command, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.Shell, w.cfg.MaxIterations = passes{}, 3
			long := strings.Repeat("long ", attempt.MaxResult)
			w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
				check(t, os.Symlink("/dev/full", filepath.Join(turn.RunDir, "answer")))
				return task.Outcome{Result: long}
			}
			w.open()
			got := w.wait(w.submit(task.TaskSpec{Prompt: "p", VerifyCommand: command}).ID)
			w.close()
			answer := filepath.Join(w.c.RunDir(got.RunID), "answer")
			if fi, err := os.Lstat(answer); err != nil || !fi.Mode().IsRegular() { // /dev/full has no end
				t.Fatal(fi, err)
			}
			if text := read(t, answer); text != long {
				t.Errorf("%d bytes", len(text))
			}
		})
	}
}

// TestDiskIsFullAtARestart: what was running when the last master was killed cannot
// be put back into the queue at once.
func TestDiskIsFullAtARestart(t *testing.T) {
	t.Parallel()
	next, id := interrupted(t)
	d := &fullDisk{FS: durable.OS}
	d.frees.Store(true)
	next.cfg.Recover = func(context.Context, string, string) error {
		d.full.Store(true)
		return nil
	}
	next.openOn(d)
	got := next.wait(id)
	next.close()
	next.expect(got, state.Done, "")
	if got.Retries != 1 || d.refused.Load() == 0 {
		t.Errorf("%d retries, and the disk has refused %d times", got.Retries, d.refused.Load())
	}
}

// TestMasterEndsBesideWhatDoesNot: a run that does not end (the kernel does not let
// go of its process) and a result for which there is no room keep no master from
// ending. The next one holds the task if the old run is not proved dead.
func TestMasterEndsBesideWhatDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d := newWorld(t), &fullDisk{FS: durable.OS}
		stuck, stuckRun := make(chan struct{}), ""
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			if turn.Model == "stuck" {
				stuckRun = turn.RunID
				<-stuck
			}
			d.full.Store(true)
			return task.Outcome{Result: "fine"}
		}
		w.openOn(d)
		id := w.submit(task.TaskSpec{Prompt: "p", Model: "stuck"}).ID
		full := w.submit(task.TaskSpec{Prompt: "p", Parallel: true}).ID
		time.Sleep(time.Second)
		begun := time.Now()
		if err := w.quit(); err != nil || time.Since(begun) > time.Minute {
			t.Errorf("the master ended after %s: %v", time.Since(begun), err)
		}
		close(stuck)
		synctest.Wait()
		w.cfg.Recover = func(_ context.Context, _, run string) error {
			if run == stuckRun {
				return errors.New("process 42 is still there")
			}
			return nil
		}
		w.agent.do = answer("again")
		w.openUnwatched()
		w.expect(w.ended(full), state.Done, "")
		if got := w.task(id); got.Status != state.Queued || !got.Hold {
			t.Errorf("the task is %s, held %v", got.Status, got.Hold)
		}
	})
}
