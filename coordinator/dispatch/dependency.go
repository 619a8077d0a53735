package dispatch

import (
	"slices"

	"stint/coordinator/admission"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// blockedByDependency returns the records that end the queued tasks which come after one that has
// ended otherwise than done, and those that come after them: they could never run.
func (d *Dispatcher) blockedByDependency(st *fold.State) (records []*ledger.Record) {
	const most = 200                  // bytes of another task's error that are told
	causes := map[string]state.Task{} // what others come after: those that this change ends, and those that were read
	for _, t := range st.BlockedByDependency() {
		id, status, _ := st.EndedBadly(&t)
		if i := slices.IndexFunc(t.After, func(id string) bool { return causes[id].Status != "" }); i >= 0 {
			id = t.After[i]
		}
		cause, isKnown := causes[id]
		if !isKnown {
			cause, _ = d.tasks.WholeIn(st, id) // without: its status is enough
			cause.Status, cause.Prompt, cause.Result = status, "", ""
			causes[id] = cause // a task may have thousands after it
		}
		how := string(cause.Status) // a few words such as "failed (exit): no such file"
		if cause.Reason != "" && string(cause.Reason) != how {
			how += " (" + string(cause.Reason) + ")"
		}
		if cause.Error != "" {
			how += ": " + task.OneSentence(cause.Error, most)
		}
		t.Status, t.Reason, t.Error = state.Failed, cause.Reason, state.CameAfter+state.ShortID(id)+", which ended "+how
		switch {
		case t.Reason != "":
		case cause.Status == state.Canceled:
			t.Reason = state.ClassCanceled
		default:
			t.Reason = state.ClassExit
		}
		causes[t.ID] = t
		r := task.RecordOf(t.ID).Add(state.KeyStatus, string(t.Status)).Add(state.KeyReason, string(t.Reason))
		records = append(records, admission.AddError(r, &t, t.Error).Add(state.KeyUpdatedAt, state.FormatTime(d.tasks.Config.Now())))
	}
	return records
}
