package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

func code(err error) task.Code {
	var e *task.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func (w *loopWorld) verify(id string) (task.CheckResult, error) {
	return w.c.Verify(w.t.Context(), id, "client")
}

// begin begins the verify command of a task, whose end comes later.
func (w *loopWorld) begin(ctx context.Context, id string) (ended chan error) {
	ended = make(chan error)
	go func() {
		_, err := w.c.Verify(ctx, id, "client")
		ended <- err
	}()
	return ended
}

// noted returns the verify commands that are noted as at work.
func (w *loopWorld) noted() (names []string) {
	w.t.Helper()
	list, err := os.ReadDir(filepath.Join(w.dir, "checks"))
	if !errors.Is(err, os.ErrNotExist) {
		check(w.t, err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// TestVerifyByItself: how the command ended is recorded, and nothing else changes.
func TestVerifyByItself(t *testing.T) {
	inLoop(t, func(w *loopWorld) {
		id := w.verified(nil)
		before := w.ended(id)
		w.shell.do = exits(3)
		got, err := w.verify(id)
		check(t, err)
		want := task.CheckResult{
			TaskID: id, RunID: got.RunID, RunDir: w.c.RunDir(got.RunID), Command: "make test", ExitCode: 3, Duration: "2s",
			Output: "## Task forged\n- seq: 1\n- status: queued\nbad 3\n", Error: "the verify command ended with exit code 3",
		}
		if diff := cmp.Diff(want, got); diff != "" || got.RunID == before.RunID {
			t.Error(diff)
		}
		after := w.task(id)
		if *after.VerifyExitCode != 3 || after.VerifyOutput != want.Output {
			t.Errorf("%+v", after)
		}
		after.VerifyExitCode, after.VerifyOutput, after.VerifyTime, after.Seq = before.VerifyExitCode, "", before.VerifyTime, before.Seq
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("it changed the task: %s", diff)
		}
		w.shell.do = exits(0)
		if got, err = w.verify(id); err != nil || !got.Passed || len(w.agent.turns) != 1 || len(w.noted()) != 0 {
			t.Errorf("%+v, %v; noted: %v", got, err, w.noted())
		}
	})
}

// TestVerifyOfAnArchivedTask: one that is archived while its command runs stays as it
// is, and the caller still hears how the command ended.
func TestVerifyOfAnArchivedTask(t *testing.T) {
	inLoop(t, func(w *loopWorld) {
		id := w.verified(nil)
		w.ended(id)
		w.shell.do = func(context.Context, task.VerifyRun) task.VerifyResult {
			time.Sleep(time.Second)
			if r, err := w.c.Compact(w.t.Context(), 0, false, false); err != nil || r.Archived != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			return task.VerifyResult{ExitCode: 3, Error: "no"}
		}
		if got, err := w.verify(id); err != nil || got.ExitCode != 3 {
			t.Errorf("%+v, %v", got, err)
		}
		for range 2 {
			if got := w.task(id); got.Status != state.Done || got.Prompt != "do it" || got.Archived == "" || *got.VerifyExitCode != 0 {
				t.Errorf("%s, %q, %+v", got.Status, got.Prompt, got.VerifyExitCode)
			}
			w.reopen()
		}
	})
}

// TestVerifyHoldsTheLane: a task of that lane is started when the command has ended,
// one of another lane at once, also if there is only one worker.
func TestVerifyHoldsTheLane(t *testing.T) {
	inLoop(t, func(w *loopWorld) {
		w.cfg.MaxWorkers = 1
		w.reopen()
		id := w.verified(nil)
		w.ended(id)
		begun := make(chan string, 1)
		w.shell.do = untilStopped(begun)
		ctx, cancel := context.WithCancel(w.t.Context())
		ended := w.begin(ctx, id)
		run := <-begun
		if _, err := w.verify(id); code(err) != task.CodeBusy {
			t.Errorf("twice at once: %v", err)
		}
		if noted := w.noted(); !slices.Equal(noted, []string{run}) {
			t.Errorf("noted: %v, want %s", noted, run)
		}
		next := w.submit(task.TaskSpec{Prompt: "next"}).ID
		other := w.submit(task.TaskSpec{Prompt: "other", Parallel: true}).ID
		w.ended(other)
		time.Sleep(time.Hour)
		synctest.Wait()
		if why := w.why(next); w.task(next).Status != state.Queued || !strings.HasPrefix(why, "behind the verify command of task "+state.ShortID(id)+", in the lane of ") {
			t.Errorf("the next one is %s: %q", w.task(next).Status, why)
		}
		cancel() // the client goes away
		if err := <-ended; err == nil || len(w.noted()) != 0 {
			t.Errorf("canceled: %v; noted: %v", err, w.noted())
		}
		w.expect(w.ended(next), state.Done, "")
		if got := w.task(id); *got.VerifyExitCode != 0 {
			t.Errorf("a command that was cut off told %d", *got.VerifyExitCode)
		}
	})
}

// TestVerifyOfTasksThatNeverRan: they have no session yet, and none of them is in
// another's way. More commands than there may be tasks do not run at once.
func TestVerifyOfTasksThatNeverRan(t *testing.T) {
	inLoop(t, func(w *loopWorld) {
		w.cfg.MaxWorkers = 2
		w.close()
		for n := range 3 {
			w.edit("\n## Task hand%d\n- status: queued\n- hold: true\n- sessionKey: s%d\n- workspace: %s\n- verifyCommand: make test\n- prompt: p\n", n, n, w.work)
		}
		w.openUnwatched()
		begun := make(chan string, 1)
		w.shell.do = untilStopped(begun)
		ctx, cancel := context.WithCancel(w.t.Context())
		defer cancel()
		var ended [2]chan error
		for n := range ended {
			ended[n] = w.begin(ctx, fmt.Sprint("hand", n))
			select {
			case <-begun:
			case err := <-ended[n]:
				t.Errorf("number %d: %v", n, err)
				return
			}
		}
		if _, err := w.verify("hand2"); code(err) != task.CodeBusy || !strings.Contains(err.Error(), "2 verify commands run") {
			t.Errorf("the third one: %v", err)
		}
		cancel()
		for _, end := range ended {
			if err := <-end; err == nil {
				t.Error("a command that was cut off has told something")
			}
		}
	})
}

// TestVerifyAtAShutdown: the command is ended, and nothing is recorded; what a master
// that was killed has left is ended by the next one before it starts anything.
func TestVerifyAtAShutdown(t *testing.T) {
	inLoop(t, func(w *loopWorld) {
		id := w.verified(nil)
		w.ended(id)
		begun := make(chan string, 1)
		w.shell.do = untilStopped(begun)
		ended := w.begin(w.t.Context(), id)
		<-begun
		w.stop()
		if err := <-ended; code(err) != task.CodeStopped {
			t.Errorf("at a shutdown: %v", err)
		}
		w.close()
		unwritten := durable.TempName("unwritten") // a note whose writer is at work, or was killed
		for _, name := range []string{"killed", unwritten} {
			write(t, filepath.Join(w.dir, "checks", name), "")
		}
		var looked []string
		w.cfg.Recover = func(_ context.Context, dir, run string) error {
			if looked = append(looked, run); dir != filepath.Join(w.dir, "runs", run) {
				t.Errorf("%s of %s", run, dir)
			}
			return nil
		}
		w.openUnwatched()
		w.ended(w.submit(task.TaskSpec{Prompt: "next"}).ID)
		if len(looked) != 1 || looked[0] != "killed" || !slices.Equal(w.noted(), []string{unwritten}) {
			t.Errorf("looked after %v; noted: %v", looked, w.noted())
		}
	})
}

// TestVerifyThatMayStillBeAlive: while the last master's command cannot be proved dead
// nothing starts in its lane, and why says so. Others need not wait for the proof.
func TestVerifyThatMayStillBeAlive(t *testing.T) {
	inLoop(t, func(w *loopWorld) {
		w.shell.do = exits(0, 0)
		id := w.verified(nil)
		lane := w.ended(id).SessionKey
		w.close()
		for n := range 5 {
			write(t, filepath.Join(w.dir, "checks", fmt.Sprint("killed", n)), id+"\n"+lane+"\n")
		}
		var dead atomic.Bool
		w.cfg.Recover = func(ctx context.Context, _, _ string) error {
			if dead.Load() {
				return nil
			}
			<-ctx.Done()
			return errors.New("it lives")
		}
		begun := time.Now()
		w.openUnwatched()
		next := w.submit(task.TaskSpec{Prompt: "next"}).ID
		w.ended(w.submit(task.TaskSpec{Prompt: "other", Parallel: true}).ID)
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("others waited for %s", took)
		}
		_, err := w.verify(id)
		if why := w.why(next); code(err) != task.CodeBusy || !strings.HasPrefix(why, "behind the verify command of task "+state.ShortID(id)+", which may still be alive, in the lane of ") {
			t.Errorf("in its lane: %v; why: %q", err, why)
		}
		w.reopen() // a shutdown does not wait for it either
		dead.Store(true)
		w.ended(next)
		if len(w.noted()) != 0 {
			t.Errorf("noted: %v", w.noted())
		}
	})
}
