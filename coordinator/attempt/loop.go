package attempt

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// The verify loop. A task with a verify command goes through rounds, its iterations:
// an agent's turn, then the command; what a command that fails has printed goes back
// into the agent's session. Each of them is a run with an id of its own, and where
// one follows the other a record says so: state.Task.Phase is what the present run
// carries out. After a crash the task goes on there: an answer that was verified when
// the master ended is verified again, and not asked for again.

// A step is what follows a run of a task that has not ended.
type step struct {
	phase     state.Phase
	iteration int
}

// next returns the step that follows a run; ok is false if the task's end does.
func (a *Attempts) next(r *Run, out *task.Outcome) (s step, ok bool) {
	t := &r.Task
	switch {
	case t.Phase == "" && out.Class == "" && task.HasVerify(a.asEdited(t)):
		return step{state.PhaseVerify, max(1, t.Iteration)}, true
	case t.Phase == state.PhaseVerify && out.Class == state.ClassVerify && a.hasRound(t, out):
		return step{"", t.Iteration + 1}, true
	case t.Phase != state.PhaseEvaluate && a.evaluates(r, out):
		return step{state.PhaseEvaluate, t.Iteration}, true
	}
	return s, false
}

// hasRound reports whether a round follows the one whose command did not pass: one is
// left, or a person has changed the prompt meanwhile.
func (a *Attempts) hasRound(t *state.Task, out *task.Outcome) bool {
	now := a.asEdited(t)
	if now.PromptChanged && !a.beginsAnew(now) {
		out.Note = "its prompt was changed too often while it ran: the agent was not told of the last change; queue it again to have that sent"
	}
	return t.Iteration < a.MaxIterations(now) || a.beginsAnew(now)
}

// beginsAnew reports whether a task's next turn gets the prompt that a person has
// changed meanwhile, in a first round. It may be the verify command that does it:
// there is an end to it.
func (a *Attempts) beginsAnew(t *state.Task) bool {
	return t.PromptChanged && t.Requeues < a.Config.MaxRetries
}

// asEdited returns a task with what a person has changed since its run began.
func (a *Attempts) asEdited(t *state.Task) *state.Task {
	if now, err := a.Peek(t.ID); err == nil {
		return &now
	}
	return t
}

// goOn records a step and gives the run that it begins; nil if none does: the step
// waits in the queue, or the task was taken out of its run meanwhile.
func (a *Attempts) goOn(r *Run, out *task.Outcome, s step) (next *Run, err error) {
	id := a.Config.ID()
	a.carrySnapshot(r.ID, id)
	goes, places := false, a.PlacesOf(r.Task.ID)
	isTurn := s.phase == "" // which looks at its account
	err = a.keepAnswer(r, out, func() error {
		return a.UpdateWhenRoom(context.Background(), "a round", isTurn, func(st *fold.State, tx *ledger.Tx) error {
			t, err := queue.PeekIn(st, r.Task.ID)
			if err != nil || t.Status != state.Running { // as stillRuns
				goes = false
				a.tally(st, r, out, places, tx)
				return nil
			}
			goes = !a.IsLeaving() && !a.mustWait(st, r, &t, s)
			tx.Append(a.stepRecord(st, r, out, &t, s, id, goes))
			return nil
		})
	})
	a.KeepSession(r.Task.SessionID)
	if err == nil && !goes {
		_ = os.RemoveAll(a.RunDir(id)) // nobody carries out that run; a file that is left does no harm
	}
	if err != nil || !goes {
		return nil, err
	}
	t, err := a.Peek(r.Task.ID)
	if err != nil {
		return nil, err
	}
	return a.become(r, id, &t, cmp.Or(out.Session, r.Session)), nil
}

// mustWait reports whether a step is for the dispatcher to begin: a person has given the
// task, t now, another agent or lane or no workspace, or the agent's account takes no turn now.
func (a *Attempts) mustWait(st *fold.State, r *Run, t *state.Task, s step) bool {
	if t.Agent != r.Task.Agent || t.Lane() != r.Task.Lane() || t.Workspace == "" {
		return true
	}
	account := st.Account(t.AccountName())
	return s.phase == "" && (account.Hold || account.CoolUntil.After(a.Config.Now()))
}

// become returns the run that takes the place of the one before it in its attempt. Whatever is
// not named here begins anew.
func (a *Attempts) become(r *Run, id string, t *state.Task, native string) *Run {
	next := &Run{ID: id, Task: *t, Begun: a.Config.Now(), Session: native, home: r.home, Ctx: r.Ctx, Cancel: r.Cancel, Recorded: true}
	if t.Workspace != r.Task.Workspace {
		next.home = homeOf(t)
	}
	return next
}

// stepRecord says how a run has ended and what follows it: the run with that id, or,
// if it does not go on at once, the step in its turn. t is the task as it is now.
func (a *Attempts) stepRecord(st *fold.State, r *Run, out *task.Outcome, t *state.Task, s step, id string, goes bool) *ledger.Record {
	v := verdictOf(&r.Task, state.Running)
	if !goes {
		v.status, v.attempt = state.Queued, v.attempt-1
	}
	if s.phase == "" && a.beginsAnew(t) {
		s.iteration, v.requeues = 1, v.requeues+1
	}
	rec := a.endRecord(st, r, out, &v)
	if goes {
		rec.Add(state.KeyRunID, id).Add(state.KeyStartedAt, state.FormatTime(a.Config.Now()))
	} else if t.Agent != r.Task.Agent { // its session and account are the other's
		task.Unset(rec, state.KeySessionID, t.SessionID == r.Task.SessionID)
		task.Unset(rec, state.KeyAccount, t.Account == r.Task.Agent)
	}
	rec.Add(state.KeyPhase, string(s.phase))
	if s.iteration > 0 { // else there is no loop
		rec.Add(state.KeyIteration, strconv.Itoa(s.iteration))
	}
	if s.phase == state.PhaseEvaluate {
		rec.AddIf(state.KeyError, out.Error) // with which the task ends, whatever is found
	}
	a.addAnswer(rec, r, out)
	return rec
}

// verify runs the task's verify command.
func (a *Attempts) verify(r *Run) task.Outcome {
	t, err := a.Whole(r.Task.ID)
	if err != nil {
		return broken(err)
	}
	passed := task.Outcome{Session: t.AgentSession}
	passed.Result, r.cut = a.answer(&t)
	if !task.HasVerify(&t) { // a person has taken it out meanwhile
		return passed
	}
	if wrong := a.Misplaced(&t); wrong != "" {
		return isMisplaced(wrong)
	}
	if err := rundir.Make(a.Store, a.RunDir(r.ID)); err != nil {
		return broken(err)
	}
	check := a.Config.Shell.Verify(r.Ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.ID, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: a.RunDir(r.ID),
		Workspace: t.Workspace, Command: t.VerifyCommand, Timeout: a.VerifyTimeout(&t), Grace: a.Config.Grace,
		Started: func() { a.shortages.Started(r.Begun) },
		Printed: func() {
			now := a.Config.Now()
			r.LastOutput.Store(&now)
		},
	})
	if check.Conclusive() && !task.HasVerify(a.asEdited(&t)) { // likewise, while it ran
		return passed
	}
	if check.Conclusive() {
		if now := a.asEdited(&t).VerifyCommand; now != t.VerifyCommand { // what is said of that one would be said of another
			check.Output = fmt.Sprintf("(of the command until then: %s)\n%s", t.VerifyCommand, check.Output)
		}
		r.check = &check
	}
	if check.Passed() {
		return passed
	}
	return failedCheck(&check, &t, passed)
}

// failedCheck makes the outcome of a run of the verify command that did not pass.
func failedCheck(check *task.VerifyResult, t *state.Task, out task.Outcome) task.Outcome {
	out.Class, out.Error, out.Shortage, out.ExitCode = check.Class, check.Error, check.Shortage, -1
	if !check.Conclusive() {
		return out
	}
	if out.Class = state.ClassVerify; t.Iteration > 1 {
		out.Error += fmt.Sprintf(", in round %d", t.Iteration)
	}
	return out
}

// answer returns the answer of a task that is being verified: that of the last turn of
// its agent. cut says that only its head and tail are left.
func (a *Attempts) answer(t *state.Task) (text string, cut bool) {
	if len(t.Result) <= MaxResult {
		return t.Result, false
	}
	for _, s := range slices.Backward(t.Steps) {
		if text, err := durable.ReadFile(durable.OS, filepath.Join(a.RunDir(s.RunID), rundir.AnswerName)); err == nil && len(text) > MaxResult {
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
	files := filepath.Join(a.RunDir(id), rundir.FilesName)
	return files, rundir.Make(a.Store, files)
}

// AddCheck says how the verify command has ended.
func AddCheck(rec *ledger.Record, check *task.VerifyResult) {
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
