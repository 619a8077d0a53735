package admission

import (
	"context"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// EnableAccount lets tasks use an account: it ends that it is disabled, its hold, and its
// cool-down. by is who asks.
func (a *Admission) EnableAccount(ctx context.Context, id, by string) (state.AccountUse, error) {
	return a.setAccount(ctx, id, by, func(r *ledger.Record) {
		for _, key := range []string{state.KeyDisabled, state.KeyHold, state.KeyReason, state.KeyCoolUntil, state.KeyLimitWaits} {
			r.Add(key, "")
		}
	})
}

// DisableAccount lets no task start with an account. by is who asks.
func (a *Admission) DisableAccount(ctx context.Context, id, by string) (state.AccountUse, error) {
	return a.setAccount(ctx, id, by, func(r *ledger.Record) { r.Add(state.KeyDisabled, "true") })
}

func (a *Admission) setAccount(ctx context.Context, id, by string, set func(*ledger.Record)) (use state.AccountUse, err error) {
	defer a.tasks.Call()()
	c, ok := a.tasks.AccountsNow().Find(id)
	if !ok {
		return use, &task.Error{Code: task.CodeNotFound, Message: "there is no account " + id, Hint: "stint account ls"}
	}
	err = a.tasks.Exclusive(ctx, func(_ *fold.State, tx *ledger.Tx) error {
		r := task.AccountRecord(id)
		set(r)
		tx.Append(r.Add(state.KeyBy, by))
		return nil
	})
	use = state.AccountUse{Account: queue.Read(a.tasks, func(st *fold.State) state.Account { return st.Account(id) }), AccountConfig: c, Agent: c.Tool}
	return use, err
}
