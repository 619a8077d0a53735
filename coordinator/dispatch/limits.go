package dispatch

import (
	"context"
	"slices"

	"stint/coordinator/admission"
	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A rate limit is the account's, not the task's. The account has one cool-down for
// all of its tasks; it is in the ledger, so it holds over restarts. When it ends,
// one task at a time is tried until one gets through ([fold.State.Ready] sees to
// that), so that what has waited does not start all at once.

// failLimitWaitExceeded ends the tasks that do not wait for a rate limit as long as they
// would have to: what was told not to wait has failed, the others are dead.
func (d *Dispatcher) failLimitWaitExceeded() {
	able := d.able(queue.Read(d.tasks, func(st *fold.State) []state.Task { return d.limitWaitExceeded(st, nil) }))
	list := queue.Read(d.tasks, func(st *fold.State) []state.Task { return d.limitWaitExceeded(st, able) })
	if len(list) == 0 {
		return
	}
	ends := map[string]*admission.Place{}
	for _, t := range list {
		place := d.Admission.PlaceOf(t.ID)
		if ends[t.ID] = place; place != nil {
			break // one follow-up at a time: the next may go on with its session
		}
	}
	err := d.tasks.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		for _, t := range d.limitWaitExceeded(st, able) {
			place, isNow := ends[t.ID]
			if !isNow {
				continue // the record wakes the dispatcher, which comes back
			}
			status, what := state.Dead, "is rate-limited, and "+attempt.WaitedTooLong(d.Attempts.MaxLimitWait(&t))
			if d.Attempts.MaxLimitWait(&t) == 0 {
				status, what = state.Failed, "waits for a rate limit to pass"
			}
			rec := task.RecordOf(t.ID).Add(state.KeyStatus, string(status)).Add(state.KeyReason, string(state.ClassRateLimited))
			admission.AddError(rec, &t, "account "+t.AccountName()+" "+what).
				Add(state.KeyUpdatedAt, state.FormatTime(d.tasks.Config.Now()))
			d.Admission.End(st, tx, rec, nil, place)
		}
		return nil
	})
	d.tasks.TroubleUnlessStopped("tasks that do not wait for a rate limit could not be ended", err)
}

// limitWaitExceeded returns the queued tasks that do not wait for a rate limit as long as they
// would have to, and that no able agent takes over, now or when it has a place for them. One of which that
// is not known yet may be able; with nil none is.
func (d *Dispatcher) limitWaitExceeded(st *fold.State, able map[agentIn]bool) []state.Task {
	now, accounts := d.tasks.Config.Now(), d.tasks.AccountsNow()
	return slices.DeleteFunc(st.LimitWaitExceeded(now, d.tasks.Config.MaxLimitWait), func(t state.Task) bool {
		return accounts.CanMove(st, &t) || slices.ContainsFunc(t.Fallback, func(agent string) bool {
			isAble, asked := able[agentIn{agent, t.Environment}]
			return agent != t.Agent && (isAble || able != nil && !asked) && accounts.HasOther(st, &state.Task{Agent: agent, Account: t.Account})
		})
	})
}
