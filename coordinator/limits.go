package coordinator

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"stint/ledger"
	"stint/state"
)

// A rate limit is the account's, not the task's. The account has one cool-down for
// all of its tasks; it is in the ledger, so it holds over restarts. When it ends,
// one task at a time is tried until one gets through ([state.State.Ready] sees to
// that), so that what has waited does not start all at once.

// judgeLimit lets a task wait for its account. The wait stands in the account's
// record alone: whoever takes it away there lets all tasks go on.
func (c *Coordinator) judgeLimit(v *verdict, t *state.Task, out Outcome, now time.Time) {
	most := c.cfg.MaxLimitWait
	if d, err := time.ParseDuration(t.MaxLimitWait); err == nil {
		most = d
	}
	if v.limitSince.IsZero() {
		v.limitSince = now
	}
	until, record := c.coolDown(c.account(t), out.RetryAt, now)
	v.account = record
	wait := func() {
		v.status, v.attempt, v.limitWaits = state.Queued, t.Attempt-1, t.LimitWaits+1
	}
	switch {
	case len(t.Fallback) > 0:
		wait() // the dispatcher hands it to another agent, or ends it as below
	case most == 0: // told not to wait
	case until.After(v.limitSince.Add(most)):
		v.status = state.Dead
	default:
		wait()
	}
}

func (c *Coordinator) account(t *state.Task) state.Account {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Account(t.AccountName())
}

// coolDown gives until when an account cools down now that a run has met its limit,
// and the record that says so; nil if nothing changes. Runs that met the limit
// while the account cools down already began before it: they do not count, but one
// may know of a later end. Without a named time the wait grows with the limits that
// the account has met in a row.
func (c *Coordinator) coolDown(a state.Account, named, now time.Time) (until time.Time, record *ledger.Record) {
	until, waits := a.CoolUntil, a.LimitWaits
	switch {
	case a.CoolUntil.After(now):
		if !named.After(a.CoolUntil) {
			return until, nil
		}
		until = named
	case named.After(now):
		until, waits = named, waits+1
	default:
		until, waits = now.Add(c.backoff(waits)), waits+1
	}
	until = until.Add(time.Millisecond - 1).Truncate(time.Millisecond) // the ledger has milliseconds, and nothing is to start too early
	record = accountRecord(a.Name).Add(state.KeyCoolUntil, state.FormatTime(until)).Add(state.KeyLimitWaits, strconv.Itoa(waits))
	if !a.Hold { // a hold's reason stays
		record.Add(state.KeyReason, string(state.ClassRateLimited))
	}
	return until, record
}

// gotThrough gives the record that ends an account's time of one task after the
// other: a run that began after the cool-down has shown that the provider answers
// again. nil if the run does not show it. A run in which the task's agent is not
// asked shows nothing.
func (c *Coordinator) gotThrough(t *state.Task, class state.Class) *ledger.Record {
	if t.Phase != "" {
		return nil
	}
	switch class {
	case "", state.ClassExit, state.ClassTimeout, state.ClassOutputMissing, state.ClassVerify, state.ClassBudget:
	default:
		return nil // it may not have come as far as the provider
	}
	a := c.account(t)
	if a.LimitWaits == 0 || t.StartedAt.Before(a.CoolUntil) {
		return nil
	}
	record := accountRecord(a.Name).Add(state.KeyCoolUntil, "").Add(state.KeyLimitWaits, "")
	if !a.Hold {
		record.Add(state.KeyReason, "")
	}
	return record
}

// noteAnswer is gotThrough for a run that is at work: its agent has said something,
// so the account's other tasks need not wait until it ends, which may take long.
func (c *Coordinator) noteAnswer(t *state.Task) {
	if c.gotThrough(t, "") == nil {
		return
	}
	err := c.update(context.Background(), func(tx *ledger.Tx) error {
		if r := c.gotThrough(t, ""); r != nil {
			tx.Append(r)
		}
		return nil
	})
	if err != nil && !errors.Is(err, &Error{Code: CodeStopped}) {
		c.trouble("that a rate limit has passed could not be recorded", err)
	}
}

// failUnwilling ends the tasks that do not wait for a rate limit as long as they
// would have to: what was told not to wait has failed, the others are dead.
func (c *Coordinator) failUnwilling() {
	able := c.able(c.unwilling(nil))
	list := c.unwilling(able)
	if len(list) == 0 {
		return
	}
	var places map[string]*checkedWorkspace
	ends := map[string]bool{}
	for i := 0; i < len(list) && places == nil; i++ { // one follow-up at a time: the next may go on with its session
		places, ends[list[i].ID] = c.placesOf(list[i].ID), true
	}
	err := c.update(context.Background(), func(tx *ledger.Tx) error {
		for _, t := range c.unwilling(able) {
			if !ends[t.ID] {
				continue // the record wakes the dispatcher, which comes back
			}
			status, what := state.Dead, "cools down for longer than the task waits for rate limits"
			if d, err := time.ParseDuration(t.MaxLimitWait); err == nil && d == 0 {
				status, what = state.Failed, "waits for a rate limit to pass"
			}
			rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
			rec.Add(state.KeyStatus, string(status)).Add(state.KeyReason, string(state.ClassRateLimited)).
				Add(state.KeyError, "account "+t.AccountName()+" "+what).
				Add(state.KeyUpdatedAt, state.FormatTime(c.cfg.Now()))
			c.end(tx, rec, nil, places)
		}
		return nil
	})
	if err != nil && !errors.Is(err, &Error{Code: CodeStopped}) {
		c.trouble("tasks that do not wait for a rate limit could not be ended", err)
	}
}

// unwilling gives the queued tasks that do not wait for a rate limit as long as they
// would have to, and that no able agent takes over.
func (c *Coordinator) unwilling(able map[string]bool) []state.Task {
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.state.Unwilling(now, c.cfg.MaxLimitWait), func(t state.Task) bool { return c.hasFallback(&t, able, now) })
}
