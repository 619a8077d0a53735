package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// Cancel ends a task: a waiting one at once; of a running one the agent is ended
// first, with all its descendants, and then Cancel returns. by is who asks. The error has
// CodeBusy if that does not come to an end; the task is canceled when it does.
func (a *Admission) Cancel(ctx context.Context, ref, by string) (state.Task, error) {
	defer a.tasks.Call()()
	id, err := a.tasks.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	for again := false; ; again = true {
		run := "" // of one that is running
		err := a.tasks.Update(ctx, func(st *fold.State, tx *ledger.Tx) error {
			t, err := queue.PeekIn(st, id)
			if err != nil {
				return err
			}
			switch {
			case t.Status == state.Running:
				run = t.RunID
			case t.Status.Terminal():
				return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s has ended already: %s", id, t.Status), Hint: "stint show " + id}
			default:
				tx.Append(a.canceled(id, by))
			}
			return nil
		})
		if again && errors.Is(err, &task.Error{Code: task.CodeConflict}) {
			return a.tasks.Whole(id) // it has ended meanwhile
		}
		if err == nil && run != "" {
			a.live.Cancel(id, cancelBy(by))
			limit := queue.EndLimit(a.tasks.Config.Grace)
			limited, stop := context.WithTimeoutCause(ctx, limit, &task.Error{
				Code: task.CodeBusy, Message: fmt.Sprintf("task %s is to end, and its run has not ended for %s", id, limit), Hint: "once it has, the task is canceled: stint show " + id,
			})
			_, err = a.tasks.Until(limited, id, func(t *state.Task) bool { return t.Status != state.Running || t.RunID != run })
			stop()
		}
		if err != nil {
			return state.Task{}, err
		}
		t, err := a.tasks.Whole(id)
		if err != nil || t.Status.Terminal() {
			return t, err
		}
		// The run ended and left the task in the queue, or at its next step: it was
		// interrupted just then, or belonged to a master before this one, and another has begun.
	}
}

// canceled returns the record of a waiting task that is canceled.
func (a *Admission) canceled(id, by string) *ledger.Record {
	return task.RecordOf(id).Add(state.KeyStatus, string(state.Canceled)).Add(state.KeyReason, string(state.ClassCanceled)).
		Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now()))
}

// maxNamed is how many tasks an error names.
const maxNamed = 20

// Remove takes a task out of all lists; one that waits is canceled. Its sections stay in
// the ledger until the next compaction moves them to the archive; its id, end and
// idempotency key still count. by is who asks. The error has CodeConflict if the task
// runs, or is in the archive, or if others come after it and would fail.
func (a *Admission) Remove(ctx context.Context, ref, by string) (state.Task, error) {
	return a.change(ctx, ref, a.tasks.Update, func(st *fold.State, tx *ledger.Tx, id string) error {
		t, err := queue.PeekIn(st, id)
		_, archived := st.Archived(id)
		switch {
		case err != nil:
			return err
		case archived:
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is in the archive, which keeps it", id), Hint: "stint ls --archive"}
		case t.Status == state.Running:
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is running", id), Hint: "stint cancel " + id}
		case !t.Status.Terminal():
			if after := st.Dependants(id); len(after) > maxNamed {
				return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("%d tasks come after %s and would fail", len(after), id), Hint: "to let them fail: stint cancel " + id}
			} else if ids := strings.Join(after, " "); ids != "" {
				return task.Conflict(fmt.Sprintf("stint rm %s %s, or to let them fail: stint cancel %s", ids, id, id), "tasks come after %s and would fail: %s", id, ids)
			}
			tx.Append(a.canceled(id, by))
		}
		r := &ledger.Record{Kind: ledger.KindControl, ID: fold.ControlDeleted}
		tx.Append(r.Add(fold.KeyRemoved, id).Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
}

// cancelBy is ErrCanceled with who asked for it.
type cancelBy string

func (cancelBy) Error() string { return task.ErrCanceled.Error() }

func (cancelBy) Unwrap() error { return task.ErrCanceled }

// CanceledBy returns who has canceled a run.
func CanceledBy(ctx context.Context) string {
	var by cancelBy
	if errors.As(context.Cause(ctx), &by) {
		return string(by)
	}
	return ledger.ByClient
}
