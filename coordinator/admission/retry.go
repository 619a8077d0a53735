package admission

import (
	"context"
	"fmt"
	"slices"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/state"
	"stint/state/fold"
)

// Retry queues a task again that has ended or waits, with its counters at zero.
// A hold of its account is lifted: whoever retries has repaired it. by is who asks.
func (a *Admission) Retry(ctx context.Context, ref, by string) (state.Task, error) {
	return a.change(ctx, ref, a.tasks.Exclusive, func(st *fold.State, tx *ledger.Tx, id string) error { // others may come after it, or be behind it
		if a.tasks.IsShut() {
			return a.tasks.StoppedError()
		}
		t, err := a.tasks.WholeIn(st, id) // of an ended task only the journal knows the account
		if err != nil {
			return err
		}
		if t.Status == state.Running {
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is running", id), Hint: "stint cancel " + id}
		}
		// It must not fail at once, or never run.
		if before, status, bad := st.EndedBadly(&t); bad {
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s comes after %s, which is %s", id, before, status), Hint: "first: stint retry " + before}
		}
		again := t
		again.Status = state.Queued
		if err := st.CheckOrder([]state.Task{again}); err != nil {
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s cannot be queued: %v", id, err), Hint: "stint show " + id}
		}
		if err := a.revive(st, tx, id); err != nil {
			return err
		}
		now := a.tasks.Config.Now()
		r := task.RecordOf(id)
		task.Unset(r, state.KeyOutputFiles, len(t.OutputFiles) > 0)
		task.Unset(r, state.KeyPhase, t.Phase != "")
		task.Unset(r, state.KeyIteration, t.Iteration > 0)
		task.Unset(r, state.KeyRequeues, t.Requeues > 0)
		if t.VerifyExitCode != nil { // the command may be another one now
			r.Add(state.KeyVerifyExitCode, "").Add(state.KeyVerifyTime, "").Add(state.KeyVerifyOutput, "")
		}
		task.Unset(r, state.KeyFindings, len(t.Findings) > 0)
		if !t.Hold || t.Trigger != state.ByAgent || t.Orphaned() { // else nobody has released yet what an agent asked for
			r.Add(state.KeyHold, "").Add(state.KeyNote, "")
		}
		tx.Append(r.Add(state.KeyStatus, string(state.Queued)).Add(state.KeyReason, "").Add(state.KeyError, "").
			Add(state.KeyResult, "").Add(state.KeyNotBefore, "").
			Add(state.KeyAttempt, "0").Add(state.KeyRetries, "0").Add(state.KeyLimitWaits, "0").Add(state.KeyLimitSince, "").
			Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(now)))
		if st.Account(t.AccountName()).Hold {
			tx.Append(task.AccountRecord(t.AccountName()).Add(state.KeyHold, "").Add(state.KeyReason, "").Add(state.KeyBy, by))
		}
		return nil
	})
}

// revive appends the whole record of a task that is in the archive, before what
// changes it: so it comes back. Of other tasks it does nothing.
func (a *Admission) revive(st *fold.State, tx *ledger.Tx, id string) error {
	e, ok := st.Archived(id)
	if !ok {
		return nil
	}
	s, err := archive.ReadRecord(nil, a.tasks.Config.StateDir, e)
	if err != nil {
		return err
	}
	r := s.Record()
	r.Fields = slices.DeleteFunc(r.Fields, func(f ledger.Pair) bool { return f.Key == ledger.KeyArchived })
	tx.Append(&r)
	return nil
}
