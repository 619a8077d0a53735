package dispatch

import (
	"context"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// failDoomed ends the queued tasks that come after one that has ended otherwise
// than done, and those that come after them: they could never run. The dispatcher
// calls it.
func (d *Dispatcher) failDoomed() {
	if len(queue.Read(d.Store, (*fold.State).Doomed)) == 0 {
		return
	}
	err := d.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		causes := map[string]state.Task{} // what others come after: those that this change ends, and those that were read
		for _, t := range st.Doomed() {
			id, cause := d.causeOf(st, &t, causes)
			t.Status, t.Reason = state.Failed, reasonAfter(&cause)
			t.Error = "it comes after " + id + ", which ended " + howEnded(&cause)
			causes[t.ID] = t
			r := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
			tx.Append(r.Add(state.KeyStatus, string(t.Status)).Add(state.KeyReason, string(t.Reason)).Add(state.KeyError, t.Error).
				Add(state.KeyUpdatedAt, state.FormatTime(d.Config.Now())))
		}
		return nil
	})
	d.TroubleUnlessStopped("tasks that come after a failed one could not be ended", err)
}

// causeOf returns the task because of which a doomed one cannot run.
func (d *Dispatcher) causeOf(st *fold.State, t *state.Task, causes map[string]state.Task) (string, state.Task) {
	for _, id := range t.After {
		if cause, ok := causes[id]; ok {
			return id, cause
		}
	}
	id, status, _ := st.EndedBadly(t)
	cause, err := d.WholeIn(st, id)
	if err != nil { // its status is enough
		cause = state.Task{}
	}
	cause.Status, cause.Prompt, cause.Result = status, "", ""
	causes[id] = cause // a task may have thousands after it
	return id, cause
}

// reasonAfter returns the reason of a task that fails because of another.
func reasonAfter(cause *state.Task) state.Class {
	switch {
	case cause.Reason != "":
		return cause.Reason
	case cause.Status == state.Canceled:
		return state.ClassCanceled
	}
	return state.ClassExit
}

// maxCause is how much of another task's error is told, in bytes.
const maxCause = 200

// howEnded returns a few words such as "failed (exit): no such file".
func howEnded(t *state.Task) string {
	how := string(t.Status)
	if t.Reason != "" && string(t.Reason) != how {
		how += " (" + string(t.Reason) + ")"
	}
	if t.Error == "" {
		return how
	}
	return how + ": " + task.OneSentence(t.Error, maxCause)
}
