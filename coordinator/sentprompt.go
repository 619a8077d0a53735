package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// SentPrompt gives the prompt of a run of a task: run is a run's id, a unique piece of
// it, or its number among the agent's runs, from 1; "" is the agent's last one.
func (c *Coordinator) SentPrompt(ctx context.Context, ref, run string) (task.SentPrompt, error) {
	t, err := c.Task(ctx, ref)
	if err != nil {
		return task.SentPrompt{}, err
	}
	p, err := chooseRun(&t, run)
	if err != nil {
		return p, err
	}
	dir := c.RunDir(p.RunID)
	text, err := rundir.ReadOutput(dir, rundir.PromptName)
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

// chooseRun finds a run of a task that had a prompt.
func chooseRun(t *state.Task, run string) (task.SentPrompt, error) {
	turns := turnsOf(t)
	if len(turns) == 0 {
		return task.SentPrompt{}, &task.Error{Code: task.CodeNotFound, Message: "task " + t.ID + " has not run yet", Hint: "stint why " + t.ID}
	}
	s, err := turns[len(turns)-1], error(nil)
	if run != "" {
		s, err = FindRun(t, run)
	}
	if err == nil && s.Phase == state.PhaseVerify {
		err = noRun(t, "run %s is one of its verify command, which gets no prompt", run)
	}
	p := task.SentPrompt{TaskID: t.ID, RunID: s.RunID, Phase: s.Phase, Of: len(turns), Attempt: s.Attempt}
	p.Number = 1 + slices.IndexFunc(turns, func(turn state.Step) bool { return turn.RunID == s.RunID })
	if task.HasVerify(t) {
		p.Iteration = max(1, s.Iteration)
	}
	return p, err
}

// FindRun gives a run of a task: by its id, a unique piece of that, or its number among
// the runs of the task's agent, from 1.
func FindRun(t *state.Task, run string) (state.Step, error) {
	if n, err := strconv.Atoi(run); err == nil && len(run) < 5 { // no piece of an id
		turns := turnsOf(t)
		if n < 1 || n > len(turns) {
			return state.Step{}, noRun(t, "it has no run %d of its agent: there are %d", n, len(turns))
		}
		return turns[n-1], nil
	}
	found := slices.DeleteFunc(runsOf(t), func(s state.Step) bool { return !strings.Contains(s.RunID, run) })
	switch len(found) {
	case 0:
		return state.Step{}, noRun(t, "it has no run %q", run)
	case 1:
		return found[0], nil
	}
	return state.Step{}, &task.Error{
		Code: task.CodeAmbiguous, Hint: "give more of the id",
		Message: fmt.Sprintf("task %s: %q fits several of its runs, such as %s and %s", t.ID, run, found[0].RunID, found[1].RunID),
	}
}

// runsOf gives the runs of a task, in their order. An older stint has merged records
// that tell of the last one alone.
func runsOf(t *state.Task) (runs []state.Step) {
	for _, s := range append(slices.Clip(t.Steps), state.Step{RunID: t.RunID, Attempt: t.Attempt}) {
		known := slices.ContainsFunc(runs, func(r state.Step) bool { return r.RunID == s.RunID })
		if rundir.IsRunID(s.RunID) && !known {
			runs = append(runs, s)
		}
	}
	return runs
}

// turnsOf gives the runs of a task's agent.
func turnsOf(t *state.Task) []state.Step {
	return slices.DeleteFunc(runsOf(t), func(s state.Step) bool { return s.Phase != "" })
}

// noRun says that a task has no such run, or no prompt of it.
func noRun(t *state.Task, format string, args ...any) error {
	return &task.Error{Code: task.CodeNotFound, Message: "task " + t.ID + ": " + fmt.Sprintf(format, args...), Hint: "stint show " + t.ID}
}
