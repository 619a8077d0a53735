package queue

import (
	"cmp"
	"slices"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/state"
	"stint/state/fold"
)

// TaskRecord returns a task of the state directory dir, with its runs. with calls its argument with the
// fold, which nobody else uses meanwhile.
func TaskRecord(dir, id string, with func(func(*fold.State))) (i task.TaskRecord, err error) {
	var away ledger.ArchiveEntry
	var ended []state.Run
	known, archived := false, false
	with(func(st *fold.State) {
		if away, archived = st.Archived(id); !archived {
			i.Task, ended, known, err = st.TaskAndRuns(id)
			i.HoldsKey = st.HoldsKey(&i.Task)
		}
	})
	switch {
	case err != nil:
		return task.TaskRecord{}, err
	case archived:
		if i.Task, ended, err = ReadArchived(dir, away); err != nil {
			return task.TaskRecord{}, err
		}
		with(func(st *fold.State) { i.HoldsKey = st.HoldsKey(&i.Task) })
	case !known:
		return task.TaskRecord{}, notFound(id)
	}
	i.Runs = joinRuns(&i.Task, ended)
	for k := range i.Runs {
		rundir.Weigh(&i.Runs[k], dir)
	}
	return i, nil
}

// ReadArchived returns a task of the archive of a state directory, with its texts, and what its
// agents' runs have used.
func ReadArchived(dir string, e ledger.ArchiveEntry) (t state.Task, ended []state.Run, err error) {
	s, err := archive.ReadRecord(nil, dir, e)
	if err != nil {
		return t, nil, err
	}
	if t, err = fold.TaskOf(s); err != nil {
		return t, nil, err
	}
	t.Archived = e.File
	ended, err = fold.RunsOf(s)
	return t, ended, err
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
// numbers by which [rundir.FindRun] knows them.
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
