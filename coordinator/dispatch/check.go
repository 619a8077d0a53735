package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// Verify runs the verify command of a task now, by itself, and records how it ended. Its lane is taken meanwhile.
// A task that waits for an iteration and passes ends without it. The error has CodeBusy if a run is at work
// there, CodeInvalid if there is no command. When ctx ends, so does the command. by is who asks.
func (d *Dispatcher) Verify(ctx context.Context, ref, by string) (task.CheckResult, error) {
	if d.tasks.IsShut() {
		return task.CheckResult{}, d.tasks.StoppedError()
	}
	id, err := d.tasks.Find(ref)
	if err != nil {
		return task.CheckResult{}, err
	}
	t, err := d.tasks.Whole(id)
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
	defer func() {
		d.tasks.NoteUse()
		d.runs.remove(checkPrefix+r.Task.ID, r)
	}()
	defer context.AfterFunc(ctx, func() { r.Cancel(task.ErrCanceled) })()
	return d.check(r, &t, by)
}

// checkable returns why there is nothing to run for a task, and completes its command and where it runs.
func (d *Dispatcher) checkable(t *state.Task) error {
	t.VerifyCommand = cmp.Or(t.VerifyCommand, d.tasks.Workspace(t.Workspace).VerifyCommand)
	switch {
	case t.Archived != "":
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s was archived", t.ID), Hint: "to bring it back: stint retry " + t.ID}
	case !task.HasVerify(t):
		return task.Invalid("give it one (verifyCommand: go test ./...) with: stint edit "+t.ID, "task %s has no verify command", t.ID)
	case t.Hold && t.Trigger == state.ByAgent:
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is held because an agent asked for it", t.ID), Hint: "look at its verify command in stint show " + t.ID + ", then: stint release " + t.ID}
	}
	if wrong := d.Admission.WorkspaceError(t); wrong != "" {
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
	const laneCheck = 5 * time.Millisecond // how often it is looked whether a run that has ended is off the list
	r, most := d.Attempts.Reserve(t), max(1, d.tasks.Config.MaxWorkers)
	busy := func(format string, args ...any) error {
		return &task.Error{Code: task.CodeBusy, Message: fmt.Sprintf(format, args...), Hint: "once that has ended: stint verify " + t.ID}
	}
	for {
		lim := d.Limits()
		other := queue.Read(d.tasks, func(st *fold.State) string { return st.Occupant(&r.Task, lim).Task })
		taken, err := d.runs.takeLane(r, func(what string, checks int) error {
			switch {
			case d.tasks.IsShut():
				return d.tasks.StoppedError()
			case other != "":
				return busy("the lane of task %s is busy: task %s is at work", t.ID, other)
			case what != "":
				return busy("the lane of task %s is busy: in it is %s", t.ID, what)
			case checks >= most:
				return busy("%d verify commands run by themselves, and no more may (max_workers)", checks)
			}
			return nil
		})
		if taken || err != nil {
			return r, err
		}
		if task.Sleep(ctx, laneCheck) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// checksName is the directory with a file for each verify command that runs by itself: it is named
// by the run, and has the task and its lane, one a line. No record tells the next master of it.
const checksName = "checks"

// check runs the command, which is noted meanwhile, and records how it ended.
func (d *Dispatcher) check(r *attempt.Run, t *state.Task, by string) (task.CheckResult, error) {
	dir := filepath.Join(d.tasks.Config.StateDir, checksName)
	for _, made := range []string{dir, d.tasks.RunDir(r.ID)} {
		if err := d.tasks.MakeDir(made); err != nil {
			return task.CheckResult{}, err
		}
	}
	note := filepath.Join(dir, r.ID)
	if err := durable.PutFile(note, []byte(r.Task.ID+"\n"+r.Task.SessionKey+"\n")); err != nil {
		return task.CheckResult{}, err
	}
	defer func() {
		d.tasks.TroubleUnlessStopped("a verify command that has ended is still noted", os.Remove(note))
	}()
	env, kept := d.tasks.Environment(t.Environment)
	res := d.tasks.Config.Shell.Verify(r.Ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.ID, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: d.tasks.RunDir(r.ID),
		Workspace: t.Workspace, Env: env, Command: t.VerifyCommand, Timeout: d.tasks.VerifyTimeout(t), Grace: d.tasks.Config.Grace,
	})
	switch {
	case errors.Is(context.Cause(r.Ctx), task.ErrShutdown):
		return task.CheckResult{}, d.tasks.StoppedError()
	case !res.Conclusive():
		return task.CheckResult{}, errors.New(res.Error)
	}
	d.tasks.Config.Log.Info("verify command ended", "task", t.ID, "run", r.ID, "exit", res.ExitCode)
	err := d.tasks.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		if !attempt.InJournal(st, t.ID) {
			return nil
		}
		rec := task.RecordOf(t.ID)
		attempt.AddCheck(rec, &res)
		rec.AddWhen(!kept, state.KeyNote, attempt.EnvironmentLost)
		now, err := queue.PeekIn(st, t.ID)
		// If the task waits for a turn in which its agent is to fix what did not pass, its answer
		// is verified instead. It waits no longer for what only that turn needed.
		if err == nil && res.Passed() && now.Status == state.Queued && now.Phase == "" && now.Iteration > 1 {
			rec.Add(state.KeyPhase, string(state.PhaseVerify)).Add(state.KeyIteration, strconv.Itoa(now.Iteration-1))
			isOfTurn := slices.Contains([]state.Class{state.ClassNetwork, state.ClassStalled, state.ClassSessionBusy}, now.Reason)
			rec.AddWhen(isOfTurn && now.By != ledger.ByHand && !now.NotBefore.IsZero(), state.KeyNotBefore, "")
		}
		tx.Append(rec.Add(state.KeyBy, by))
		return nil
	})
	return task.CheckResult{
		TaskID: t.ID, RunID: r.ID, RunDir: d.tasks.RunDir(r.ID), Command: t.VerifyCommand, Passed: res.Passed(), ExitCode: res.ExitCode,
		Duration: res.Duration.Round(time.Millisecond).String(), Output: res.Output, Cut: res.Cut, Error: res.Error,
	}, err
}

// recoverChecks ends what is left of verify commands that ran by themselves when the last master ended. Where
// that cannot be proved, nothing is started in the lane until it is, or until ctx ends.
func (d *Dispatcher) recoverChecks(ctx context.Context) {
	list, err := os.ReadDir(filepath.Join(d.tasks.Config.StateDir, checksName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.tasks.Trouble("verify commands of the last master could not be looked for", err)
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
			note, _ := durable.ReadFile(durable.OS, filepath.Join(d.tasks.Config.StateDir, checksName, e.Name())) // without: there is no lane to take
			id, lane, _ := strings.Cut(strings.TrimSuffix(string(note), "\n"), "\n")
			d.runs.leftovers.Store(e.Name(), state.Task{ID: id, SessionKey: lane})
			d.running.Go(func() {
				for !d.recoverCheck(ctx, e.Name()) {
					if task.Sleep(ctx, queue.RecoverTimeout) != nil {
						return // its lane stays taken until we have ended
					}
				}
				d.runs.leftovers.Delete(e.Name())
				d.tasks.Wake()
			})
		})
	}
	wg.Wait()
}

// recoverCheck proves that nothing is left of such a run, and takes its note away.
func (d *Dispatcher) recoverCheck(ctx context.Context, id string) (dead bool) {
	var err error
	if d.tasks.Config.Recover != nil {
		limited, stop := context.WithTimeout(ctx, queue.RecoverTimeout)
		err = d.tasks.Config.Recover(limited, d.tasks.RunDir(id), id)
		stop()
	}
	if err == nil {
		err = os.Remove(filepath.Join(d.tasks.Config.StateDir, checksName, id))
	}
	if err != nil && ctx.Err() == nil {
		d.tasks.Trouble("a verify command of the last master may still be alive", err)
	}
	return err == nil
}
