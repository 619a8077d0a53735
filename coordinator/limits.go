package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A rate limit is the account's, not the task's. The account has one cool-down for
// all of its tasks; it is in the ledger, so it holds over restarts. When it ends,
// one task at a time is tried until one gets through ([fold.State.Ready] sees to
// that), so that what has waited does not start all at once.

// judgeLimit lets a task wait for its account. The wait stands in the account's
// record alone: whoever takes it away there lets all tasks go on.
func (c *Coordinator) judgeLimit(st *fold.State, v *verdict, t *state.Task, out task.Outcome, now time.Time) {
	a, record := c.coolDown(st.Account(t.AccountName()), out.RetryAt, now)
	v.account = record
	if a.Guessed {
		v.limitSince = t.LimitSince
		if v.limitSince.IsZero() {
			v.limitSince = now
		}
	}
	most := c.maxLimitWait(t)
	switch {
	case most == 0 && len(t.Fallback) == 0: // told not to wait
	case a.TooLong(v.limitSince, most) && len(t.Fallback) == 0:
		v.status, v.why = state.Dead, waitedTooLong(most)
	default: // one with a fallback is handed to it by the dispatcher, or ended as above
		v.status, v.attempt, v.limitWaits = state.Queued, t.Attempt-1, t.LimitWaits+1
	}
}

// maxLimitWait is how long a task waits for limits without a named end.
func (c *Coordinator) maxLimitWait(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.MaxLimitWait); err == nil {
		return d
	}
	return c.Config.MaxLimitWait
}

// waitedTooLong says why a task does not wait any longer, and what helps.
func waitedTooLong(most time.Duration) string {
	return fmt.Sprintf("the provider names no end of this limit, and the next try would come after max_limit_wait (%s): raise it, or name agents to take over with --fallback", most)
}

// maxLimitBackoff is the longest wait for a limit whose end nobody has named.
const maxLimitBackoff = 30 * time.Minute

// coolDown returns an account as it cools down now that a run has met its limit, and the
// record that says so; nil if nothing changes. Runs that met the limit while the account
// cools down already began before it: they do not count, but one may know of a later
// end. Without a named time the wait grows with the limits that the account has met in a
// row.
func (c *Coordinator) coolDown(a state.Account, named, now time.Time) (state.Account, *ledger.Record) {
	switch {
	case a.CoolUntil.After(now):
		if !named.After(a.CoolUntil) {
			return a, nil
		}
		a.CoolUntil, a.Guessed = named, false
	case named.After(now):
		a.CoolUntil, a.Guessed, a.LimitWaits = named, false, a.LimitWaits+1
	default:
		a.CoolUntil, a.Guessed, a.LimitWaits = now.Add(c.backoffUpTo(maxLimitBackoff, a.LimitWaits)), true, a.LimitWaits+1
	}
	a.CoolUntil = a.CoolUntil.Add(time.Millisecond - 1).Truncate(time.Millisecond) // the ledger has milliseconds, and nothing is to start too early
	record := task.AccountRecord(a.Name).Add(state.KeyCoolUntil, state.FormatTime(a.CoolUntil)).Add(state.KeyLimitWaits, strconv.Itoa(a.LimitWaits))
	if a.Guessed {
		record.Add(state.KeyCoolGuessed, "true")
	}
	if !a.Hold { // a hold's reason stays
		record.Add(state.KeyReason, string(state.ClassRateLimited))
	}
	return a, record
}

// gotThrough gives the record that ends an account's time of one task after the
// other: a run that began after the cool-down has shown that the provider answers
// again. nil if the run does not show it. A run in which the task's agent is not
// asked shows nothing.
func gotThrough(st *fold.State, t *state.Task, class state.Class) *ledger.Record {
	if t.Phase != "" {
		return nil
	}
	switch class {
	case "", state.ClassExit, state.ClassTimeout, state.ClassOutputMissing, state.ClassVerify:
	default:
		return nil // it may not have come as far as the provider
	}
	a := st.Account(t.AccountName())
	if a.LimitWaits == 0 || t.RunStartedAt.Before(a.CoolUntil) {
		return nil
	}
	record := task.AccountRecord(a.Name).Add(state.KeyCoolUntil, "").Add(state.KeyLimitWaits, "")
	if !a.Hold {
		record.Add(state.KeyReason, "")
	}
	return record
}

// noteAnswer is gotThrough for a run that is at work: its agent has said something,
// so the account's other tasks need not wait until it ends, which may take long.
func (c *Coordinator) noteAnswer(t *state.Task) {
	if task.Read(c.Store, func(st *fold.State) *ledger.Record { return gotThrough(st, t, "") }) == nil {
		return
	}
	err := c.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		if r := gotThrough(st, t, ""); r != nil {
			tx.Append(r)
		}
		return nil
	})
	c.TroubleUnlessStopped("that a rate limit has passed could not be recorded", err)
}

// failUnwilling ends the tasks that do not wait for a rate limit as long as they
// would have to: what was told not to wait has failed, the others are dead.
func (c *Coordinator) failUnwilling() {
	unwilling := func(able map[string]bool) (list []state.Task) {
		c.View(func(st *fold.State) { list = c.unwilling(st, able) })
		return list
	}
	able := c.able(unwilling(nil))
	list := unwilling(able)
	if len(list) == 0 {
		return
	}
	var places map[string]*admission.Place
	ends := map[string]bool{}
	for i := 0; i < len(list) && places == nil; i++ { // one follow-up at a time: the next may go on with its session
		places, ends[list[i].ID] = c.PlacesOf(list[i].ID), true
	}
	err := c.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		for _, t := range c.unwilling(st, able) {
			if !ends[t.ID] {
				continue // the record wakes the dispatcher, which comes back
			}
			status, what := state.Dead, "is rate-limited, and "+waitedTooLong(c.maxLimitWait(&t))
			if c.maxLimitWait(&t) == 0 {
				status, what = state.Failed, "waits for a rate limit to pass"
			}
			rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
			rec.Add(state.KeyStatus, string(status)).Add(state.KeyReason, string(state.ClassRateLimited)).
				Add(state.KeyError, "account "+t.AccountName()+" "+what).
				Add(state.KeyUpdatedAt, state.FormatTime(c.Config.Now()))
			c.end(st, tx, rec, nil, places)
		}
		return nil
	})
	c.TroubleUnlessStopped("tasks that do not wait for a rate limit could not be ended", err)
}

// unwilling gives the queued tasks that do not wait for a rate limit as long as they
// would have to, and that no able agent takes over.
func (c *Coordinator) unwilling(st *fold.State, able map[string]bool) []state.Task {
	now := c.Config.Now()
	return slices.DeleteFunc(st.Unwilling(now, c.Config.MaxLimitWait), func(t state.Task) bool { return hasFallback(st, &t, able, now) })
}
