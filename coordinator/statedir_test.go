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

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/state"
)

// TestStuckRun: a run that does not end, whatever it is told, keeps neither a cancel nor a
// shutdown from its end, and the next master is left what a kill leaves.
func TestStuckRun(t *testing.T) {
	t.Parallel()
	inLoop(t, func(w *loopWorld) {
		limit := queue.EndLimit(w.cfg.Grace)
		begun, let := make(chan struct{}), make(chan struct{})
		w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
			close(begun)
			<-let
			return task.Outcome{Class: state.ClassCanceled, ExitCode: -1}
		}
		id := w.submit(task.TaskSpec{Prompt: "p"}).ID
		<-begun
		start := time.Now()
		_, err := w.c.Cancel(w.t.Context(), id, "client")
		if took := time.Since(start); !errors.Is(err, &task.Error{Code: task.CodeBusy}) || took != limit || !strings.Contains(err.Error(), "has not ended for 40s") {
			w.t.Errorf("cancel: %v after %v", err, took)
		}
		start = time.Now()
		w.close()
		if took := time.Since(start); took != limit {
			w.t.Errorf("the shutdown took %v", took)
		}
		close(let)
		synctest.Wait()
		w.agent.do = answer("fine")
		w.openUnwatched()
		if got := w.ended(id); got.Status != state.Done || got.Retries != 1 {
			w.t.Errorf("%s, %d retries", got.Status, got.Retries)
		}
	})
}

// TestRunsIsNoDirectory: what a run has put in the place of all runs, or made of it, keeps
// no task from its own.
func TestRunsIsNoDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var now atomic.Int64 // no two are moved aside in the same millisecond
	w.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(now.Add(1)) * time.Millisecond) }
	w.open()
	path := filepath.Join(w.dir, "runs")
	for _, put := range []func() error{
		func() error { return os.WriteFile(path, []byte("words"), 0o600) },
		func() error { return syscall.Mkfifo(path, 0o600) },
		func() error { return os.Mkdir(path, 0) }, // which root may use
	} {
		check(t, errors.Join(os.RemoveAll(path), put()))
		if got := w.wait(w.submit(task.TaskSpec{Prompt: "p"}).ID); got.Status != state.Done || got.Retries > 0 {
			t.Errorf("%s, %d retries", got.Status, got.Retries)
		}
	}
	if aside, err := filepath.Glob(path + ".foreign-*"); len(aside) != 2 || err != nil {
		t.Errorf("moved aside are %q, %v", aside, err)
	}
}

// TestPromise7TheStateDirectoryIsGone: a master whose directory somebody has moved
// away ends, and does not go on to acknowledge what nobody would find. The end of a run
// does not make the directory again, and writes nothing into another one that has its name.
func TestPromise7TheStateDirectoryIsGone(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"idle", "running", "running, taken"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			begun := make(chan struct{})
			w.agent.do = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
				report(task.Event{Started: true})
				close(begun)
				<-ctx.Done()
				return task.Outcome{Result: strings.Repeat("long ", 20_000)} // it has just done it
			}
			if how == "idle" {
				w.cfg.HeartbeatInterval = time.Millisecond
				close(begun)
			}
			w.open()
			if how != "idle" {
				w.submit(task.TaskSpec{Prompt: "p", SessionKey: "s", OutputSpec: []string{"out"}})
			}
			<-begun
			check(t, os.Rename(w.dir, w.dir+".away"))
			taken := how == "running, taken"
			if taken {
				check(t, os.Mkdir(w.dir, 0o700))
			}
			if err := <-w.ran; !errors.Is(err, journal.ErrGone) || !strings.Contains(err.Error(), w.dir) {
				t.Errorf("the master ended with %v", err)
			}
			w.ran <- nil
			_ = w.quit() // which says it again
			names, _ := filepath.Glob(w.dir + "/*")
			if _, err := os.Stat(w.dir); taken == errors.Is(err, fs.ErrNotExist) || len(names) > 0 {
				t.Errorf("afterwards there is %v, %v", names, err)
			}
		})
	}
}

// TestOpenRemovesOldTemps: what killed writers have left goes with the next master, but not
// what a command may be writing just now.
func TestOpenRemovesOldTemps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.HeartbeatPath = filepath.Join(t.TempDir(), "beat.json")
	check(t, os.Mkdir(w.dir, 0o700))
	young := durable.TempName(filepath.Join(w.dir, "token"))
	old := []string{durable.TempName(filepath.Join(w.dir, "token")), durable.TempName(w.cfg.HeartbeatPath)}
	for _, name := range append(old, young) {
		check(t, os.WriteFile(name, nil, 0o600))
		if long := time.Now().Add(-2 * time.Hour); name != young {
			check(t, os.Chtimes(name, long, long))
		}
	}
	w.open()
	for _, name := range append(old, young) {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) != (name != young) {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}

// TestPrunesByItself: a master looks for what may go when it starts, and every hour.
func TestPrunesByItself(t *testing.T) {
	t.Parallel()
	inLoop(t, func(w *loopWorld) {
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			write(w.t, filepath.Join(turn.RunDir, "run.json"), `{"taskId":"`+turn.TaskID+`"}`)
			return task.Outcome{Result: "fine"}
		}
		w.cfg.RetentionSize = 1
		w.reopen()
		for when, wait := range map[string]func(){"at the start": w.reopen, "after an hour": func() { time.Sleep(time.Hour) }} {
			dir := filepath.Join(w.dir, "runs", w.ended(w.submit(task.TaskSpec{Prompt: "p"}).ID).RunID)
			if _, err := os.Lstat(dir); err != nil {
				w.t.Errorf("before: %v", err)
			}
			wait()
			synctest.Wait()
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				w.t.Errorf("%s: %v", when, err)
			}
		}
	})
}
