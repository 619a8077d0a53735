package admission

import (
	"context"
	"fmt"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// Hold keeps a queued task from being run until it is released. One that is held
// already stays as it is. The error has CodeConflict if the task is not queued. by
// is who asks.
func (a *Admission) Hold(ctx context.Context, ref, by string) (state.Task, error) {
	return a.setHold(ctx, ref, by, true)
}

// Release ends the hold of a queued task; one that is not held stays as it is. The
// error has CodeConflict if the task is not queued. by is who asks.
func (a *Admission) Release(ctx context.Context, ref, by string) (state.Task, error) {
	return a.setHold(ctx, ref, by, false)
}

func (a *Admission) setHold(ctx context.Context, ref, by string, hold bool) (state.Task, error) {
	return a.change(ctx, ref, a.tasks.Update, func(st *fold.State, tx *ledger.Tx, id string) error {
		t, err := queue.PeekIn(st, id)
		switch {
		case !hold && a.tasks.IsShut():
			return a.tasks.StoppedError()
		case err != nil:
			return err
		case t.Status != state.Queued:
			hint := "stint show " + id
			if t.Status == state.Draft && !hold {
				hint = "stint retry " + id
			}
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is %s; only a queued task can be held or released", id, t.Status), Hint: hint}
		case t.Hold == hold:
			return nil
		}
		r := task.RecordOf(id).Add(state.KeyStatus, string(state.Queued)).Add(state.KeyHold, state.Flag(hold))
		if !hold && t.Note != "" {
			r.Add(state.KeyNote, "") // it says why the task was held
		}
		tx.Append(r.Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
}

// Pause stops dispatch: nothing is started until Resume, over restarts too. What
// runs goes on. reason is for people, and may be "". by is who asks.
func (a *Admission) Pause(ctx context.Context, reason, by string) error {
	return a.setPaused(ctx, true, reason, by)
}

// Resume lets dispatch go on after a Pause. by is who asks.
func (a *Admission) Resume(ctx context.Context, by string) error {
	return a.setPaused(ctx, false, "", by)
}

// Paused reports whether dispatch is stopped, and why.
func (a *Admission) Paused() (paused bool, reason string) {
	a.tasks.View(func(st *fold.State) { paused, reason = st.Paused() })
	return paused, reason
}

func (a *Admission) setPaused(ctx context.Context, paused bool, reason, by string) error {
	defer a.tasks.Call()()
	return a.tasks.Exclusive(ctx, func(st *fold.State, tx *ledger.Tx) error {
		if was, why := st.Paused(); was == paused && why == reason {
			return nil
		}
		r := &ledger.Record{Kind: ledger.KindControl, ID: state.ControlDispatch}
		tx.Append(r.Add(state.KeyPaused, state.Flag(paused)).Add(state.KeyReason, reason).Add(state.KeyBy, by).
			Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
}
