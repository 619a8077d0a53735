package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

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

// next gives the step that follows a run; ok is false if the task's end does.
func (c *Coordinator) next(r *run, out *task.Outcome) (s step, ok bool) {
	t := &r.task
	switch {
	case t.Phase == "" && out.Class == "" && task.HasVerify(c.asEdited(t)):
		return step{state.PhaseVerify, max(1, t.Iteration)}, true
	case t.Phase == state.PhaseVerify && out.Class == state.ClassVerify && c.hasRound(t, out):
		return step{"", t.Iteration + 1}, true
	case t.Phase != state.PhaseEvaluate && c.evaluates(r, out):
		return step{state.PhaseEvaluate, t.Iteration}, true
	}
	return s, false
}

// hasRound reports whether a round follows the one whose command did not pass: one is
// left, or a person has changed the prompt meanwhile.
func (c *Coordinator) hasRound(t *state.Task, out *task.Outcome) bool {
	now := c.asEdited(t)
	if now.Reworded && !c.beginsAnew(now) {
		out.Note = "its prompt was changed too often while it ran: the agent was not told of the last change; queue it again to have that sent"
	}
	return t.Iteration < c.MaxIterations(now) || c.beginsAnew(now)
}

// beginsAnew reports whether a task's next turn gets the prompt that a person has
// changed meanwhile, in a first round. It may be the verify command that does it:
// there is an end to it.
func (c *Coordinator) beginsAnew(t *state.Task) bool {
	return t.Reworded && t.Requeues < c.Config.MaxRetries
}

// asEdited gives a task with what a person has changed since its run began.
func (c *Coordinator) asEdited(t *state.Task) *state.Task {
	if now, err := c.Peek(t.ID); err == nil {
		return &now
	}
	return t
}

// goOn records a step and gives the run that it begins; nil if none does: the step
// waits in the queue, or the task was taken out of its run meanwhile.
func (c *Coordinator) goOn(r *run, out *task.Outcome, s step) (next *run, err error) {
	id := c.Config.ID()
	c.carrySnapshot(r.id, id)
	goes, places := false, c.PlacesOf(r.task.ID)
	isTurn := s.phase == "" // which looks at its account
	err = c.keepAnswer(r, out, func() error {
		leaving := c.IsLeaving()
		return c.UpdateWhenRoom(context.Background(), "a round", isTurn, func(st *fold.State, tx *ledger.Tx) error {
			t, err := task.PeekIn(st, r.task.ID)
			if err != nil || t.Status != state.Running { // as stillRuns
				goes = false
				c.tally(st, r, out, places, tx)
				return nil
			}
			goes = !leaving && !c.mustWait(st, r, &t, s)
			tx.Append(c.stepRecord(st, r, out, &t, s, id, goes))
			return nil
		})
	})
	c.KeepSession(r.task.SessionID)
	if err == nil && !goes {
		_ = os.RemoveAll(c.RunDir(id)) // nobody carries out that run; a file that is left does no harm
	}
	if err != nil || !goes {
		return nil, err
	}
	t, err := c.Peek(r.task.ID)
	if err != nil {
		return nil, err
	}
	return c.become(r, id, &t, cmp.Or(out.Session, r.session)), nil
}

// mustWait reports whether a step is for the dispatcher to begin: a person has given the
// task, t now, another agent or lane or no workspace, or the agent's account takes no turn now.
func (c *Coordinator) mustWait(st *fold.State, r *run, t *state.Task, s step) bool {
	if t.Agent != r.task.Agent || t.Lane() != r.task.Lane() || t.Workspace == "" {
		return true
	}
	a := st.Account(t.AccountName())
	return s.phase == "" && (a.Hold || a.CoolUntil.After(c.Config.Now()))
}

// become puts a run into the place of the one before it in its attempt. Whatever is not
// named here begins anew.
func (c *Coordinator) become(r *run, id string, t *state.Task, native string) *run {
	next := &run{id: id, task: *t, begun: c.Config.Now(), session: native, home: r.home, ctx: r.ctx, cancel: r.cancel, recorded: true}
	if t.Workspace != r.task.Workspace {
		next.home = homeOf(t)
	}
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	c.runs[t.ID] = next
	return next
}

// stepRecord says how a run has ended and what follows it: the run with that id, or,
// if it does not go on at once, the step in its turn. t is the task as it is now.
func (c *Coordinator) stepRecord(st *fold.State, r *run, out *task.Outcome, t *state.Task, s step, id string, goes bool) *ledger.Record {
	v := verdictOf(&r.task, state.Running)
	if !goes {
		v.status, v.attempt = state.Queued, v.attempt-1
	}
	if s.phase == "" && c.beginsAnew(t) {
		s.iteration, v.requeues = 1, v.requeues+1
	}
	rec := c.endRecord(st, r, out, &v)
	if goes {
		rec.Add(state.KeyRunID, id).Add(state.KeyStartedAt, state.FormatTime(c.Config.Now()))
	} else if t.Agent != r.task.Agent { // its session and account are the other's
		task.Unset(rec, state.KeySessionID, t.SessionID == r.task.SessionID)
		task.Unset(rec, state.KeyAccount, t.Account == r.task.Agent)
	}
	rec.Add(state.KeyPhase, string(s.phase))
	if s.iteration > 0 { // else there is no loop
		rec.Add(state.KeyIteration, strconv.Itoa(s.iteration))
	}
	if s.phase == state.PhaseEvaluate {
		rec.AddIf(state.KeyError, out.Error) // with which the task ends, whatever is found
	}
	c.addAnswer(rec, r, out)
	return rec
}

// verify runs the task's verify command.
func (c *Coordinator) verify(r *run) task.Outcome {
	t, err := c.Whole(r.task.ID)
	if err != nil {
		return broken(err)
	}
	passed := task.Outcome{Session: t.AgentSession}
	passed.Result, r.cut = c.answer(&t)
	if !task.HasVerify(&t) { // a person has taken it out meanwhile
		return passed
	}
	if wrong := c.Misplaced(&t); wrong != "" {
		return isMisplaced(wrong)
	}
	if err := rundir.Make(c.Store, c.RunDir(r.id)); err != nil {
		return broken(err)
	}
	check := c.Config.Shell.Verify(r.ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.id, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: c.RunDir(r.id),
		Workspace: t.Workspace, Command: t.VerifyCommand, Timeout: c.VerifyTimeout(&t), Grace: c.Config.Grace,
		Started: func() { c.begun(r) },
		Printed: func() {
			now := c.Config.Now()
			r.lastOutput.Store(&now)
		},
	})
	if check.Conclusive() && !task.HasVerify(c.asEdited(&t)) { // likewise, while it ran
		return passed
	}
	if check.Conclusive() {
		if now := c.asEdited(&t).VerifyCommand; now != t.VerifyCommand { // what is said of that one would be said of another
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

// answer gives the answer of a task that is being verified: that of the last turn of
// its agent. cut says that only its head and tail are left.
func (c *Coordinator) answer(t *state.Task) (text string, cut bool) {
	if len(t.Result) <= MaxResult {
		return t.Result, false
	}
	for _, s := range slices.Backward(t.Steps) {
		if text, err := durable.ReadFile(durable.OS, filepath.Join(c.RunDir(s.RunID), rundir.AnswerName)); err == nil && len(text) > MaxResult {
			return string(text), false
		}
		if s.Phase == "" {
			break
		}
	}
	return t.Result, true
}

// makeFiles makes the directory files of a run.
func (c *Coordinator) makeFiles(id string) (string, error) {
	files := filepath.Join(c.RunDir(id), rundir.FilesName)
	return files, rundir.Make(c.Store, files)
}

// addCheck says how the verify command has ended.
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
