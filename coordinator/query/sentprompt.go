package query

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"unicode/utf8"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// SentPrompt returns the prompt of a run of a task: run is a run's id, a unique piece of
// it, or its number among the agent's runs, from 1; "" is the agent's last one.
func (q *Query) SentPrompt(ctx context.Context, ref, run string) (task.SentPrompt, error) {
	t, err := q.Task(ctx, ref)
	if err != nil {
		return task.SentPrompt{}, err
	}
	turns := rundir.TurnsOf(&t)
	if len(turns) == 0 {
		return task.SentPrompt{}, &task.Error{Code: task.CodeNotFound, Message: "task " + t.ID + " has not run yet", Hint: "stint why " + t.ID}
	}
	step := turns[len(turns)-1]
	if run != "" {
		if step, err = rundir.FindRun(&t, run); err != nil {
			return task.SentPrompt{}, err
		}
	}
	if step.Phase == state.PhaseVerify {
		return task.SentPrompt{}, rundir.NoRun(&t, "run %s is one of its verify command, which gets no prompt", run)
	}
	p := task.SentPrompt{TaskID: t.ID, RunID: step.RunID, Phase: step.Phase, Of: len(turns), Attempt: step.Attempt}
	p.Number = 1 + slices.IndexFunc(turns, func(turn state.Step) bool { return turn.RunID == step.RunID })
	if task.HasVerify(&t) {
		p.Iteration = max(1, step.Iteration)
	}
	dir := q.tasks.RunDir(p.RunID)
	text, err := rundir.ReadOutput(dir, rundir.PromptName)
	if gone := rundir.Removed(&t, dir); gone != nil {
		return p, gone
	}
	if errors.Is(err, fs.ErrNotExist) {
		return p, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("the prompt of run %s of task %s is not there: its file was removed", p.RunID, t.ID), Hint: "stint show " + t.ID}
	}
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(text)
	p.SHA256 = hex.EncodeToString(sum[:])
	if utf8.Valid(text) {
		p.Prompt = string(text)
	} else {
		p.Base64 = text
	}
	p.Memory = rundir.ReadMemory(dir)
	return p, nil
}
