package coordinator

import (
	"cmp"
	"context"
	"slices"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// Runs returns all runs of a task, the oldest first, as far as its records tell of them.
func (c *Coordinator) Runs(_ context.Context, ref string) ([]task.TaskRun, error) {
	defer c.Call()()
	id, err := c.Find(ref)
	if err != nil {
		return nil, err
	}
	i, err := c.Image(id)
	return i.Runs, err
}

// joinRuns puts together what the steps of a task tell and what the agents' runs have
// used. An older stint has merged records without steps: the runs of which only the
// second tells were before all others.
func joinRuns(t *state.Task, ended []state.Run) []task.TaskRun {
	list := stepRuns(t)
	var before []task.TaskRun
	for _, e := range ended {
		if !rundir.IsRunID(e.ID) {
			continue
		}
		r := findRun(list, e.ID)
		if r == nil {
			r = findRun(before, e.ID)
		}
		if r == nil {
			before = append(before, task.TaskRun{RunID: e.ID})
			r = &before[len(before)-1]
		}
		r.Agent, r.Model, r.Account, r.Usage = e.Agent, e.Model, e.Account, r.Usage.Plus(e.Usage)
		if r.EndedAt.IsZero() {
			r.EndedAt = e.Ended
		}
	}
	return append(before, list...)
}

func findRun(list []task.TaskRun, id string) *task.TaskRun {
	if i := slices.IndexFunc(list, func(r task.TaskRun) bool { return r.RunID == id }); i >= 0 {
		return &list[i]
	}
	return nil
}

// stepRuns returns the runs of which the steps of a task tell. The agent's turns have the
// numbers by which [FindRun] knows them.
func stepRuns(t *state.Task) []task.TaskRun {
	list, turns := []task.TaskRun{}, 0
	loop := task.HasVerify(t) || slices.ContainsFunc(t.Steps, func(s state.Step) bool { return s.Phase == state.PhaseVerify })
	for _, s := range rundir.RunsOf(t) {
		r := task.TaskRun{
			RunID: s.RunID, Phase: s.Phase, Attempt: s.Attempt, StartedAt: s.Started, EndedAt: s.Ended, ExitCode: s.ExitCode, Took: s.Took, Reason: s.Reason,
		}
		if s.Phase == "" {
			turns++
			r.Number = turns
		}
		if loop {
			r.Iteration = max(1, s.Iteration)
		}
		if s.RunID == t.RunID { // of which the task says more
			r.StartedAt = cmp.Or(r.StartedAt, t.RunStartedAt)
			if r.Phase != state.PhaseVerify {
				r.Agent, r.Model, r.Account = t.Agent, t.Model, t.AccountName()
			}
		}
		list = append(list, r)
	}
	return list
}
