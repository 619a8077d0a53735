package attempt

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// The verify loop. A task with a verify command goes through iterations: an agent's turn, then the command; what a command that
// fails has printed goes back into the agent's session. Each of them is a run with an id of its own, and where one follows the
// other a record says so: state.Task.Phase is what the present run runs. After a crash the task goes on there: an answer that
// was verified when the master ended is verified again, and not asked for again.

// next returns phase and iteration of what follows a run; ok is false if the task's end does.
func (a *Attempts) next(r *Run, out *task.Outcome) (s state.Step, ok bool) {
	t := &r.Task
	if t.Phase == "" && out.Class == "" && task.HasVerify(a.asEdited(t)) {
		return state.Step{Phase: state.PhaseVerify, Iteration: max(1, t.Iteration)}, true
	}
	if t.Phase == state.PhaseVerify && out.Class == state.ClassVerify {
		now := a.asEdited(t)
		if out.Final {
			isEdited := task.HasVerify(now) && now.VerifyCommand != r.Task.VerifyCommand
			return state.Step{Phase: state.PhaseVerify, Iteration: t.Iteration}, isEdited
		}
		restarts := a.restartsLoop(now)
		if now.PromptChanged && !restarts {
			out.Note = "its prompt was changed too often while it ran: the agent was not told of the last change; queue it again to have that sent"
		}
		if restarts || t.Iteration < a.tasks.MaxIterations(now) {
			return state.Step{Phase: "", Iteration: t.Iteration + 1}, true
		}
	}
	hasAnswer := isFinal(out) && strings.TrimSpace(out.Result) != "" && r.Ctx.Err() == nil
	if t.Phase != state.PhaseEvaluate && hasAnswer && a.tasks.Workspace(t.Workspace).EvalPrompt != "" {
		return state.Step{Phase: state.PhaseEvaluate, Iteration: t.Iteration}, true
	}
	return s, false
}

// restartsLoop reports whether a task's next turn gets the prompt that a person has changed meanwhile, in a
// first iteration. It may be the verify command that does it: there is an end to it.
func (a *Attempts) restartsLoop(t *state.Task) bool {
	return t.PromptChanged && t.Requeues < a.tasks.Config.MaxRetries
}

// asEdited returns a task with what a person has changed since its run began.
func (a *Attempts) asEdited(t *state.Task) *state.Task {
	if now, err := a.tasks.Peek(t.ID); err == nil {
		return &now
	}
	return t
}

// nextStep records a step and returns its run; nil if the step waits in the queue, or a person has ended the run.
func (a *Attempts) nextStep(r *Run, out *task.Outcome, s state.Step) (*Run, error) {
	id := a.tasks.Config.ID()
	a.carrySnapshot(r.ID, id)
	goes, isTurn := false, s.Phase == "" // which looks at its account
	runs, err := a.recordEnd(r, out, a.admission.PlaceOf(r.Task.ID), "an iteration", isTurn, func(st *fold.State, tx *ledger.Tx, t *state.Task) {
		// The dispatcher begins the step if a person has given the task another agent or lane or no
		// workspace, if the account takes no turn now, or if a budget has to be looked at. A shared task has no next master.
		account := st.Account(t.AccountName())
		isElsewhere := t.Agent != r.Task.Agent || t.AccountName() != r.Task.AccountName() || t.Lane() != r.Task.Lane() || t.Workspace == ""
		goes = (t.SharedID != "" || !a.tasks.IsLeaving()) && !isElsewhere && !(isTurn && (account.Hold || account.Disabled || account.CoolUntil.After(a.tasks.Config.Now()) || a.tasks.HasBudget(t)))
		tx.Append(a.stepRecord(st, r, out, t, s, id, goes))
	})
	goes = goes && runs
	if err == nil && !goes {
		_ = os.RemoveAll(a.tasks.RunDir(id)) // nobody runs it; a file that is left does no harm
	}
	if err != nil || !goes {
		return nil, err
	}
	t, err := a.tasks.Peek(r.Task.ID)
	if err != nil {
		return nil, err
	}
	// Whatever is not named here begins anew.
	next := &Run{ID: id, Task: t, Begun: a.tasks.Config.Now(), Session: cmp.Or(out.Session, r.Session), home: r.home, checkout: r.checkout, Ctx: r.Ctx, Cancel: r.Cancel}
	if t.Workspace != r.Task.Workspace {
		next.home = homeOf(&t)
	}
	return next, nil
}

// stepRecord returns the record of how a run has ended and what follows it: the run with that id, or,
// if it does not go on at once, the step in its turn. t is the task as it is now.
func (a *Attempts) stepRecord(st *fold.State, r *Run, out *task.Outcome, t *state.Task, s state.Step, id string, goes bool) *ledger.Record {
	v := verdictOf(&r.Task, state.Running)
	if !goes {
		v.Status, v.Attempt = state.Queued, v.Attempt-1
	}
	if s.Phase == "" && a.restartsLoop(t) {
		s.Iteration, v.Requeues = 1, v.Requeues+1
	}
	rec := a.endRecord(st, r, out, &v)
	if goes {
		rec.Add(state.KeyRunID, id).Add(state.KeyStartedAt, state.FormatTime(a.tasks.Config.Now()))
	} else if t.Agent != r.Task.Agent { // its session and account are the other's
		rec.AddWhen(t.SessionID == r.Task.SessionID, state.KeySessionID, "")
		rec.AddWhen(t.Account == r.Task.Agent, state.KeyAccount, "")
	}
	rec.Add(state.KeyPhase, string(s.Phase))
	rec.AddWhen(s.Iteration > 0, state.KeyIteration, strconv.Itoa(s.Iteration)) // else there is no loop
	if s.Phase == state.PhaseEvaluate {
		rec.AddIf(state.KeyError, out.Error) // with which the task ends, whatever is found
	}
	a.addAnswer(rec, r, out)
	return rec
}

// verify runs the task's verify command.
func (a *Attempts) verify(r *Run, t *state.Task) task.Outcome {
	passed := task.Outcome{Session: t.AgentSession}
	passed.Result, r.cut = a.answer(t)
	if !task.HasVerify(t) { // a person has taken it out meanwhile
		return passed
	}
	if wrong := a.admission.WorkspaceError(t); wrong != "" {
		return inWrongWorkspace(wrong)
	}
	if err := a.tasks.MakeDir(a.tasks.RunDir(r.ID)); err != nil {
		return setupFailed(err)
	}
	a.log(r, task.LogEvent{Kind: task.LogVerify, State: task.LogStarted, Text: t.VerifyCommand})
	check := a.tasks.Config.Shell.Verify(r.Ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.ID, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: a.tasks.RunDir(r.ID),
		Workspace: t.Workspace, Env: a.environment(r, t), Command: t.VerifyCommand, Timeout: a.tasks.VerifyTimeout(t), Grace: a.tasks.Config.Grace,
		Lives: func(isStart bool) { a.noteLife(r, isStart) },
	})
	a.log(r, task.LogEvent{
		Kind: task.LogVerify, State: task.LogCompleted, Output: check.Output, ExitCode: &check.ExitCode, Failed: !check.Passed(),
	})
	if check.Conclusive() {
		now := a.asEdited(t)
		if !task.HasVerify(now) { // a person took it away while it ran
			return passed
		}
		if now.VerifyCommand != t.VerifyCommand { // what is said of that one would be said of another
			check.Output = fmt.Sprintf("(of the command until then: %s)\n%s", t.VerifyCommand, check.Output)
		}
		r.check = &check
	}
	if check.Passed() {
		return passed
	}
	failed := passed
	failed.Class, failed.Error, failed.Shortage, failed.ExitCode = check.Class, check.Error, check.Shortage, -1
	if check.Conclusive() {
		if failed.Class = state.ClassVerify; t.Iteration > 1 {
			failed.Error += fmt.Sprintf(", in iteration %d", t.Iteration)
		}
		failed.Final = check.CannotRun()
	}
	return failed
}

// answer returns the last answer of a task's agent. cut says that only its head and tail are left.
func (a *Attempts) answer(t *state.Task) (text string, cut bool) {
	if len(t.Result) <= MaxResult {
		return t.Result, false
	}
	for _, s := range slices.Backward(t.Steps) {
		if text, err := durable.ReadFile(durable.OS, filepath.Join(a.tasks.RunDir(s.RunID), rundir.AnswerName)); err == nil && len(text) > MaxResult {
			return string(text), false
		}
		if s.Phase == "" {
			break
		}
	}
	return t.Result, true
}

// makeFiles makes the directory files of a run.
func (a *Attempts) makeFiles(id string) (string, error) {
	files := filepath.Join(a.tasks.RunDir(id), rundir.FilesName)
	return files, a.tasks.MakeDir(files)
}

// addCheck adds how the verify command has ended.
func addCheck(rec *ledger.Record, check *task.VerifyResult) {
	if check == nil {
		return
	}
	output := check.Output
	if check.Passed() {
		output = ""
	}
	rec.Add(state.KeyVerifyExitCode, strconv.Itoa(check.ExitCode)).Add(state.KeyVerifyTime, check.Duration.Round(time.Millisecond).String()).
		Add(state.KeyVerifyOutput, output)
}
