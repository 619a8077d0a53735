package admission

import (
	"context"
	"slices"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A Foreseen is what a submit would make of a spec.
type Foreseen struct {
	task.TaskPreview          // with Task, Known and Ahead alone
	FromRun          string   // the run that asks; "": none
	Environment      []string // which a submit would keep
	Begun            bool     // a task before it in the list has its session, of which the ledger knows nothing yet
}

// Foresee returns what Submit would make of specs, or why it would not. isList says that the
// specs came as a list, so that errors name the field of one with its place. Nothing is kept.
func (a *Admission) Foresee(ctx context.Context, specs []task.TaskSpec, isList bool) ([]Foreseen, error) {
	const maxPreviews = 100 // each has a search and a prompt
	if len(specs) > maxPreviews {
		return nil, task.Invalid("give it some of them", "%d tasks are too many for a preview; at most %d are taken", len(specs), maxPreviews)
	}
	in, err := a.newIntake(ctx, request{specs: specs, isList: isList})
	if err != nil {
		return nil, err
	}
	a.tasks.View(func(st *fold.State) { err = in.record(st, &ledger.Tx{}) })
	if err != nil {
		return nil, err
	}
	list := make([]Foreseen, len(in.list))
	for i := range in.list {
		f := &list[i]
		n := slices.IndexFunc(in.fresh, func(t state.Task) bool { return t.ID == in.ids[i] })
		if f.Known = n < 0; f.Known {
			if f.Task, err = a.tasks.Whole(in.ids[i]); err != nil {
				return nil, err
			}
			continue
		}
		sec, err := ledger.Encode(in.newTask(&in.list[i], &in.fresh[n]))
		if err != nil {
			return nil, err
		}
		if f.Task, err = fold.TaskOf(sec); err != nil {
			return nil, err
		}
		f.FromRun, f.Environment = in.list[i].FromRun, in.list[i].Environment
		for _, before := range in.fresh[:n] {
			if s := &in.list[in.index[before.ID]]; s.Hold || s.NotBefore.After(a.tasks.Config.Now()) {
				continue // it is passed, as in the lane
			}
			if before.SessionKey == f.Task.SessionKey {
				f.Ahead++
			}
			f.Begun = f.Begun || before.SessionID == f.Task.SessionID
		}
	}
	return list, nil
}
