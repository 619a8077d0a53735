package admission

import (
	"context"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// Schedules returns the control records of schedules by their names.
func (a *Admission) Schedules() map[string]state.Control {
	return queue.Read(a.tasks, func(st *fold.State) map[string]state.Control { return st.Schedules() })
}

// ChangeSchedule changes the control record of a schedule, durably. change may be called more than once.
func (a *Admission) ChangeSchedule(ctx context.Context, name string, change func(*state.Control)) error {
	return a.tasks.Update(ctx, func(st *fold.State, tx *ledger.Tx) error {
		changeSchedule(st, tx, name, change)
		return nil
	})
}

// Fire is Submit of the task of a schedule's firing, and ChangeSchedule, in one durable change.
func (a *Admission) Fire(ctx context.Context, s task.TaskSpec, name string, change func(*state.Control)) (state.Task, error) {
	tasks, err := a.submit(ctx, request{specs: []task.TaskSpec{s}, schedule: name, fired: change})
	if err != nil {
		return state.Task{}, err
	}
	return tasks[0], nil
}

// Fired returns the task with that idempotency key as it is now, one that has ended with its error; ok is
// false if there is none, or it cannot be read.
func (a *Admission) Fired(key string) (t state.Task, ok bool) {
	a.tasks.View(func(st *fold.State) {
		id, known := st.ByIdempotencyKey(key)
		if t, ok = st.Peek(id); known && (!ok || t.Status.Terminal()) {
			var err error
			t, err = a.tasks.WholeIn(st, id)
			ok = err == nil
		}
	})
	return t, ok
}

// changeSchedule appends what change makes of a schedule's control record, if it makes anything of it.
func changeSchedule(st *fold.State, tx *ledger.Tx, name string, change func(*state.Control)) {
	tx.Claim(string(ledger.KindControl) + " " + state.ControlSchedule + name) // also where this appends nothing
	was := st.Schedules()[name]
	now := was
	change(&now)
	r := &ledger.Record{Kind: ledger.KindControl, ID: state.ControlSchedule + name}
	for _, f := range []struct{ key, was, now string }{
		{state.KeyPaused, state.Flag(was.Paused), state.Flag(now.Paused)},
		{state.KeyCron, was.Cron, now.Cron},
		{state.KeyFiredThrough, state.ExactTime(was.FiredThrough), state.ExactTime(now.FiredThrough)},
		{state.KeyOpenFirings, was.OpenFirings, now.OpenFirings},
	} {
		if f.was != f.now {
			r.Add(f.key, f.now)
		}
	}
	if len(r.Fields) > 0 {
		tx.Append(r)
	}
}
