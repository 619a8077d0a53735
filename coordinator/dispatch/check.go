package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// Verify runs the verify command of a task now, by itself, and records how it ended;
// the task's status stays. Its lane is taken meanwhile. One that waits for a round and
// passes ends without it. The error has CodeBusy if a run is at work there, CodeInvalid
// if there is no command. When ctx ends, so does the command. by is who asks.
func (d *Dispatcher) Verify(ctx context.Context, ref, by string) (task.CheckResult, error) {
	defer d.Call()()
	if d.IsShut() {
		return task.CheckResult{}, d.StoppedError()
	}
	id, err := d.Find(ref)
	if err != nil {
		return task.CheckResult{}, err
	}
	t, err := d.Whole(id)
	if err != nil {
		return task.CheckResult{}, err
	}
	if err := d.checkable(&t); err != nil {
		return task.CheckResult{}, err
	}
	r, err := d.takeLane(ctx, &t)
	if err != nil {
		return task.CheckResult{}, err
	}
	defer d.leaveLane(r)
	defer context.AfterFunc(ctx, func() { r.Cancel(task.ErrCanceled) })()
	return d.check(r, &t, by)
}

// checkable returns why there is nothing to run for a task, and completes its command
// and where it runs.
func (d *Dispatcher) checkable(t *state.Task) error {
	t.VerifyCommand = cmp.Or(t.VerifyCommand, d.Workspace(t.Workspace).VerifyCommand)
	switch {
	case t.Archived != "":
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s was archived", t.ID), Hint: "to bring it back: stint retry " + t.ID}
	case !task.HasVerify(t):
		return task.Invalid("give it one (verifyCommand: go test ./...) with: stint edit "+t.ID, "task %s has no verify command", t.ID)
	case t.Hold && t.Trigger == state.ByAgent:
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is held because an agent asked for it", t.ID), Hint: "look at its verify command in stint show " + t.ID + ", then: stint release " + t.ID}
	}
	if wrong := d.Misplaced(t); wrong != "" {
		return task.Invalid("name another workspace with: stint edit "+t.ID, "%s", wrong)
	}
	if fi, err := os.Stat(t.Workspace); err != nil || !fi.IsDir() {
		return task.Invalid("stint show "+t.ID, "the directory %q of task %s is not there", t.Workspace, t.ID)
	}
	return nil
}

// takeLane registers a run that no record tells of. While it is on the list nothing
// else is started in its lane. A run there whose end is recorded is waited for.
func (d *Dispatcher) takeLane(ctx context.Context, t *state.Task) (*attempt.Run, error) {
	r := &attempt.Run{ID: d.Config.ID(), Task: *t, Begun: d.Config.Now()}
	r.Task.SessionKey = t.Lane()
	r.Ctx, r.Cancel = context.WithCancelCause(context.Background())
	for {
		taken, err := d.tryLane(r)
		if taken || err != nil {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(laneCheck):
		}
	}
}

// laneCheck is how often it is looked whether a run that has ended is off the list.
const laneCheck = 5 * time.Millisecond

// tryLane registers a run. It gives false if the lane is free in a moment.
func (d *Dispatcher) tryLane(r *attempt.Run) (taken bool, err error) {
	id, most := r.Task.ID, max(1, d.Config.MaxWorkers)
	busy := func(format string, args ...any) error {
		return &task.Error{Code: task.CodeBusy, Message: fmt.Sprintf(format, args...), Hint: "once that has ended: stint verify " + id}
	}
	other, occupied := "", false
	d.View(func(st *fold.State) { other, occupied = st.Occupant(&r.Task) })
	return d.runs.takeLane(r, func(what string, checks int) error {
		switch {
		case d.IsShut():
			return d.StoppedError()
		case occupied:
			return busy("the lane of task %s is busy: task %s is at work", id, other)
		case what != "":
			return busy("the lane of task %s is busy: in it is %s", id, what)
		case checks >= most:
			return busy("%d verify commands run by themselves, and no more may (max_workers)", checks)
		}
		return nil
	})
}

func (d *Dispatcher) leaveLane(r *attempt.Run) {
	d.NoteUse()
	d.runs.remove(checkPrefix+r.Task.ID, r)
}

// check runs the command and records what it told.
func (d *Dispatcher) check(r *attempt.Run, t *state.Task, by string) (task.CheckResult, error) {
	done, err := d.noteCheck(r)
	if err != nil {
		return task.CheckResult{}, err
	}
	defer done()
	res := d.Config.Shell.Verify(r.Ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.ID, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: d.RunDir(r.ID),
		Workspace: t.Workspace, Command: t.VerifyCommand, Timeout: d.VerifyTimeout(t), Grace: d.Config.Grace,
	})
	switch {
	case errors.Is(context.Cause(r.Ctx), task.ErrShutdown):
		return task.CheckResult{}, d.StoppedError()
	case !res.Conclusive():
		return task.CheckResult{}, errors.New(res.Error)
	}
	d.Config.Log.Info("verify command ended", "task", t.ID, "run", r.ID, "exit", res.ExitCode)
	err = d.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		if !attempt.InJournal(st, t.ID) {
			return nil
		}
		rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
		attempt.AddCheck(rec, &res)
		if now, err := queue.PeekIn(st, t.ID); err == nil && res.Passed() && awaitsRound(&now) {
			rec.Add(state.KeyPhase, string(state.PhaseVerify)).Add(state.KeyIteration, strconv.Itoa(now.Iteration-1))
			task.Unset(rec, state.KeyNotBefore, isOfTurn(now.Reason) && now.By != ledger.ByHand && !now.NotBefore.IsZero()) // no person's
		}
		tx.Append(rec.Add(state.KeyBy, by))
		return nil
	})
	return task.CheckResult{
		TaskID: t.ID, RunID: r.ID, RunDir: d.RunDir(r.ID), Command: t.VerifyCommand, Passed: res.Passed(), ExitCode: res.ExitCode,
		Duration: res.Duration.Round(time.Millisecond).String(), Output: res.Output, Cut: res.Cut, Error: res.Error,
	}, err
}

// awaitsRound reports whether a task waits for a turn in which its agent is to mend what
// did not pass. If it passes now, its answer is verified instead.
func awaitsRound(t *state.Task) bool {
	return t.Status == state.Queued && t.Phase == "" && t.Iteration > 1
}

// isOfTurn reports whether what such a run waits for is needed by an agent's turn alone.
func isOfTurn(reason state.Class) bool {
	return reason == state.ClassNetwork || reason == state.ClassStalled || reason == state.ClassSessionBusy
}

// checksName is the directory with a file for each verify command that runs by
// itself: it is named by the run, and has the task and its lane, one a line. No record
// tells the next master of it.
const checksName = "checks"

// noteCheck makes the directory of a run, and notes that it is at work until done is
// called.
func (d *Dispatcher) noteCheck(r *attempt.Run) (done func(), err error) {
	dir := filepath.Join(d.Config.StateDir, checksName)
	note := filepath.Join(dir, r.ID)
	for _, made := range []string{dir, d.RunDir(r.ID)} {
		if err := rundir.Make(d.Store, made); err != nil {
			return nil, err
		}
	}
	if err := durable.PutFile(note, []byte(r.Task.ID+"\n"+r.Task.SessionKey+"\n")); err != nil {
		return nil, err
	}
	return func() {
		if err := os.Remove(note); err != nil {
			d.Trouble("a verify command that has ended is still noted", err)
		}
	}, nil
}

// recoverChecks ends what is left of verify commands that ran by themselves when the
// last master ended. Where that cannot be proved, nothing is started in the lane until
// it is, or until ctx ends.
func (d *Dispatcher) recoverChecks(ctx context.Context) {
	list, err := os.ReadDir(filepath.Join(d.Config.StateDir, checksName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Trouble("verify commands of the last master could not be looked for", err)
	}
	var wg sync.WaitGroup
	for _, e := range list {
		if durable.IsTemp(e.Name()) {
			continue // a note that is just being written, or that a kill has left so
		}
		wg.Go(func() {
			if d.recoverCheck(ctx, e.Name()) {
				return
			}
			done := d.noteLeftover(e.Name())
			d.running.Go(func() {
				for !d.recoverCheck(ctx, e.Name()) {
					select {
					case <-ctx.Done():
						return // its lane stays taken until we have ended
					case <-time.After(queue.RecoverTimeout):
					}
				}
				done()
			})
		})
	}
	wg.Wait()
}

// recoverCheck proves that nothing is left of such a run, and takes its note away.
func (d *Dispatcher) recoverCheck(ctx context.Context, id string) (dead bool) {
	var err error
	if d.Config.Recover != nil {
		limited, stop := context.WithTimeout(ctx, queue.RecoverTimeout)
		err = d.Config.Recover(limited, d.RunDir(id), id)
		stop()
	}
	if err == nil {
		err = os.Remove(filepath.Join(d.Config.StateDir, checksName, id))
	}
	if err != nil && ctx.Err() == nil {
		d.Trouble("a verify command of the last master may still be alive", err)
	}
	return err == nil
}

// noteLeftover notes that a run of the last master may still be alive in its lane,
// until done is called.
func (d *Dispatcher) noteLeftover(id string) (done func()) {
	note, _ := durable.ReadFile(durable.OS, filepath.Join(d.Config.StateDir, checksName, id)) // without: there is no lane to take
	task, lane, _ := strings.Cut(strings.TrimSuffix(string(note), "\n"), "\n")
	end := d.runs.addLeftover(id, state.Task{ID: task, SessionKey: lane})
	return func() {
		end()
		d.Wake()
	}
}
