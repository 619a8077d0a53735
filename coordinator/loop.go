package coordinator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
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
func (c *Coordinator) next(r *run, out *Outcome) (s step, ok bool) {
	t := &r.task
	switch {
	case t.Phase == "" && out.Class == "" && hasVerify(t):
		return step{state.PhaseVerify, max(1, t.Iteration)}, true
	case t.Phase == state.PhaseVerify && out.Class == state.ClassVerify && t.Iteration < c.maxIterations(t):
		return step{"", t.Iteration + 1}, true
	}
	return s, false
}

// NoVerify as a verify command says that there is to be none, whatever is configured.
const NoVerify = "none"

func hasVerify(t *state.Task) bool { return t.VerifyCommand != "" && t.VerifyCommand != NoVerify }

func (c *Coordinator) maxIterations(t *state.Task) int {
	if t.MaxIterations > 0 {
		return t.MaxIterations
	}
	if n := c.workspace(t.Workspace).MaxIterations; n > 0 {
		return n
	}
	return c.cfg.MaxIterations
}

// goOn records a step and makes the run that of it. It gives false if the task was
// taken out of its run meanwhile.
func (c *Coordinator) goOn(r *run, out *Outcome, s step) (bool, error) {
	id := c.cfg.ID()
	if err := c.carryAnswer(r, out, id); err != nil {
		c.trouble("an answer could not be written to its file", err)
	}
	goes := false
	err := c.insist(context.Background(), "a round", func(tx *ledger.Tx) error {
		if goes = c.stillRuns(r); !goes {
			c.tally(r, out, tx)
			return nil
		}
		tx.Append(c.stepRecord(r, out, s, id))
		return nil
	})
	if err != nil || !goes {
		return false, err
	}
	c.keepSession(r.task.SessionID)
	c.runsMu.Lock()
	r.id, r.begun = id, c.cfg.Now()
	c.runsMu.Unlock()
	t, err := c.peek(r.task.ID)
	if err != nil {
		return false, err
	}
	r.task = t
	r.session = first(out.Session, r.session)
	r.interrupted, r.named, r.kept, r.strayed, r.check = false, false, false, "", nil
	r.lastOutput.Store(nil)
	return true, nil
}

// stepRecord says how a run has ended and what follows it.
func (c *Coordinator) stepRecord(r *run, out *Outcome, s step, id string) *ledger.Record {
	now := c.cfg.Now()
	rec := &ledger.Record{Kind: ledger.KindTask, ID: r.task.ID}
	rec.Add(state.KeyStatus, string(state.Running)).Add(state.KeyRunID, id).Add(state.KeyPhase, string(s.phase)).
		Add(state.KeyIteration, strconv.Itoa(s.iteration)).AddIf(state.KeyNote, out.Note)
	c.addSession(rec, r, out, &verdict{})
	c.addKept(rec, r, out, &verdict{status: state.Done})
	c.addUsage(rec, r, out)
	addCheck(rec, r)
	rec.Add(state.KeyStartedAt, state.FormatTime(now)).Add(state.KeyUpdatedAt, state.FormatTime(now))
	if r.task.Phase == "" {
		rec.Add(state.KeyResult, bounded(out.Result))
	}
	return rec
}

// answerName is the file in a run's directory with the whole answer of the task.
const answerName = "answer"

// carryAnswer puts the whole answer where the next run of the task has it.
func (c *Coordinator) carryAnswer(r *run, out *Outcome, id string) error {
	if err := os.MkdirAll(c.RunDir(id), durable.DirMode); err != nil {
		return err
	}
	if err := c.writeAnswer(r, out); err != nil || out.Result == "" {
		return err
	}
	return os.WriteFile(filepath.Join(c.RunDir(id), answerName), []byte(out.Result), durable.FileMode)
}

// verify runs the task's verify command.
func (c *Coordinator) verify(r *run) Outcome {
	t, err := c.whole(r.task.ID)
	if err != nil {
		return broken(err)
	}
	out := Outcome{Result: c.answer(r, &t), Session: t.AgentSession}
	if !hasVerify(&t) { // a person has taken it out meanwhile
		return out
	}
	dir := c.RunDir(r.id)
	if err := os.MkdirAll(filepath.Join(dir, filesName), durable.DirMode); err != nil {
		return broken(err)
	}
	limit := c.verifyTimeout(&t)
	res := c.cfg.Shell.Verify(r.ctx, VerifyRun{
		TaskID: t.ID, RunID: r.id, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: dir,
		Workspace: first(t.Workspace, filepath.Join(dir, filesName)), Command: t.VerifyCommand, Timeout: limit, Grace: c.cfg.Grace,
	})
	out.Class, out.Error, out.Shortage = res.Class, res.Error, res.Shortage
	if res.Class != "" && res.Class != state.ClassTimeout {
		return out
	}
	r.check = &res
	switch {
	case res.Class == state.ClassTimeout:
		out.Class, out.Error = state.ClassVerify, fmt.Sprintf("the verify command ran longer than its limit of %s", limit)
	case res.ExitCode != 0:
		out.Class, out.Error = state.ClassVerify, fmt.Sprintf("the verify command ended with exit code %d", res.ExitCode)
	}
	if out.Class != "" && t.Iteration > 1 {
		out.Error += fmt.Sprintf(", in iteration %d", t.Iteration)
	}
	return out
}

// answer gives the whole answer of a task that is being verified.
func (c *Coordinator) answer(r *run, t *state.Task) string {
	for _, id := range []string{r.id, r.before} {
		if text, err := os.ReadFile(filepath.Join(c.RunDir(id), answerName)); err == nil && id != "" {
			return string(text)
		}
	}
	return t.Result
}

func (c *Coordinator) verifyTimeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.VerifyTimeout); err == nil {
		return d
	}
	if d := c.workspace(t.Workspace).VerifyTimeout; d > 0 {
		return d
	}
	return c.cfg.VerifyTimeout
}

// addCheck says how the verify command has ended.
func addCheck(rec *ledger.Record, r *run) {
	if r.check == nil {
		return
	}
	code, output := r.check.ExitCode, r.check.Output
	if code == 0 && r.check.Class == "" {
		output = ""
	}
	rec.Add(state.KeyVerifyExitCode, strconv.Itoa(code)).Add(state.KeyVerifyTime, r.check.Duration.Round(time.Millisecond).String()).
		Add(state.KeyVerifyOutput, output)
}
