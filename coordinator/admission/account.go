package admission

import (
	"context"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// SetAccount lets tasks use an account, or lets none start with it. To enable it also ends a hold and a
// cool-down. by is who asks.
func (a *Admission) SetAccount(ctx context.Context, id string, enabled bool, by string) (use state.AccountUse, err error) {
	defer a.tasks.Call()()
	c, ok := a.tasks.AccountsNow().Find(id)
	if !ok && !queue.Read(a.tasks, func(st *fold.State) bool { return st.Account(id).Hold }) {
		return use, &task.Error{Code: task.CodeNotFound, Message: "there is no account " + id, Hint: "stint account ls"}
	}
	r := task.AccountRecord(id)
	if r.Add(state.KeyDisabled, state.Flag(!enabled)); enabled {
		r.Add(state.KeyHold, "").Add(state.KeyReason, "").Add(state.KeyCoolUntil, "").Add(state.KeyLimitWaits, "")
	}
	r.Add(state.KeyBy, by)
	err = a.tasks.Exclusive(ctx, func(_ *fold.State, tx *ledger.Tx) error { tx.Append(r); return nil })
	return state.AccountUse{Account: queue.Read(a.tasks, func(st *fold.State) state.Account { return st.Account(id) }), AccountConfig: c, Agent: c.Tool}, err
}
