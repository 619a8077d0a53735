package attempt

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// maxLimitBackoff is the longest wait for a limit whose end nobody has named.
const maxLimitBackoff = 30 * time.Minute

// maxNamedLimit is how far away the end of a limit may be: the longest window of a provider
// is a month. A later one is an error, such as milliseconds that stand where seconds belong.
const maxNamedLimit = 32 * 24 * time.Hour

// judgeLimit lets a task wait for its account, which cools down. The wait stands in the
// account's record alone: whoever takes it away there lets all tasks go on. Without a named
// time it grows with the limits that the account has met in a row.
func (a *Attempts) judgeLimit(st *fold.State, v *verdict, t *state.Task, out task.Outcome, now time.Time) {
	account := st.Account(t.AccountName())
	isCooling, isNamed := account.CoolUntil.After(now), out.RetryAt.After(now) && out.RetryAt.Before(now.Add(maxNamedLimit))
	// A run that met the limit while the account cools down already began before it: it does not
	// count, but may know of a later end.
	if !isCooling || isNamed && out.RetryAt.After(account.CoolUntil) {
		until := out.RetryAt
		if !isNamed {
			until = now.Add(backoff(&a.tasks.Config, account.LimitWaits, maxLimitBackoff))
		}
		if !isCooling {
			account.LimitWaits++
		}
		account.Guessed, account.LimitedAt = !isNamed, now
		account.CoolUntil = until.Add(time.Millisecond - 1).Truncate(time.Millisecond) // the ledger has milliseconds, and nothing is to start too early
		v.account = task.AccountRecord(account.Name).Add(state.KeyCoolUntil, state.FormatTime(account.CoolUntil)).Add(state.KeyLimitWaits, strconv.Itoa(account.LimitWaits)).
			Add(state.KeyLimitedAt, state.FormatTime(now)).AddIf(state.KeyCoolGuessed, state.Flag(account.Guessed))
		if !account.Hold { // a hold's reason stays
			v.account.Add(state.KeyReason, string(state.ClassRateLimited))
		}
	}
	if account.Guessed {
		v.limitSince = t.LimitSince
		if v.limitSince.IsZero() {
			v.limitSince = now
		}
	}
	v.loseSession = a.canMove(st, t, out)
	most := a.MaxLimitWait(t)
	switch {
	case v.loseSession:
		v.status, v.attempt, v.limitWaits = state.Queued, t.Attempt-1, t.LimitWaits+1
	case most == 0 && len(t.Fallback) == 0: // told not to wait
	case account.TooLong(v.limitSince, most) && len(t.Fallback) == 0:
		v.status, v.why = state.Dead, WaitedTooLong(most)
	default: // one with a fallback is handed to it by the dispatcher, or ended as above
		v.status, v.attempt, v.limitWaits = state.Queued, t.Attempt-1, t.LimitWaits+1
	}
}

// canMove reports whether another account can begin the task anew: the agent has said nothing yet in a
// new conversation, which is not kept then.
func (a *Attempts) canMove(st *fold.State, t *state.Task, out task.Outcome) bool {
	return out.Fresh && out.Usage == (state.Usage{}) && out.Thread == (state.Usage{}) && out.Result == "" && !t.Pinned && a.tasks.AccountsNow().HasOther(st, t)
}

// MaxLimitWait is how long a task waits for limits without a named end.
func (a *Attempts) MaxLimitWait(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.MaxLimitWait); err == nil {
		return d
	}
	return a.tasks.Config.MaxLimitWait
}

// WaitedTooLong returns why a task does not wait any longer, and what helps.
func WaitedTooLong(most time.Duration) string {
	return fmt.Sprintf("the provider names no end of this limit, and the next try would come after max_limit_wait (%s): raise it, or name agents to take over with --fallback", most)
}

// gotThrough returns the record that ends an account's time of one task after the
// other: a run that began after the cool-down has shown that the provider answers
// again. nil if the run does not show it. A run in which the task's agent is not
// asked shows nothing.
func gotThrough(st *fold.State, t *state.Task, class state.Class) *ledger.Record {
	if t.Phase != "" {
		return nil
	}
	switch class {
	case "", state.ClassExit, state.ClassTimeout, state.ClassOutputMissing, state.ClassVerify, state.ClassDenied:
	default:
		return nil // it may not have come as far as the provider
	}
	account := st.Account(t.AccountName())
	if account.LimitWaits == 0 || t.RunStartedAt.Before(account.CoolUntil) {
		return nil
	}
	record := task.AccountRecord(account.Name).Add(state.KeyCoolUntil, "").Add(state.KeyLimitWaits, "")
	if !account.Hold {
		record.Add(state.KeyReason, "")
	}
	return record
}

// noteAnswer is gotThrough for a run that is at work: its agent has said something,
// so the account's other tasks need not wait until it ends, which may take long.
func (a *Attempts) noteAnswer(t *state.Task) {
	if queue.Read(a.tasks, func(st *fold.State) *ledger.Record { return gotThrough(st, t, "") }) == nil {
		return
	}
	err := a.tasks.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		if r := gotThrough(st, t, ""); r != nil {
			tx.Append(r)
		}
		return nil
	})
	a.tasks.TroubleUnlessStopped("that a rate limit has passed could not be recorded", err)
}

// backoff is the wait after the n-th failure (from 0): base·2^n, at most most, spread.
func backoff(c *queue.Config, n int, most time.Duration) time.Duration {
	return spread(c, float64(c.BackoffBase)*math.Pow(2, float64(min(n, 30))), most)
}

// spread returns a wait that is up to 10 % shorter or longer, at random, but at most most. A
// longer one is spread below most, so that tasks do not all come back at once.
func spread(c *queue.Config, d float64, most time.Duration) time.Duration {
	return time.Duration(min(min(d, float64(most))*(0.9+0.2*c.Rand()), float64(most)))
}
