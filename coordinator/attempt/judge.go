package attempt

import (
	"cmp"
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

// A verdict is what becomes of a task after a run.
type verdict struct {
	state.Task                 // as it is then: status, reason, note and counters, and what it waits for
	why         string         // what the user should know beside the run's error
	loseSession bool           // the agent's session is gone: begin a new one
	account     *ledger.Record // what the run says about the account; nil if nothing
}

// judge decides by this table what becomes of a task whose run has ended.
//
//	class                            spends an attempt   what follows
//	success                          yes                 done
//	canceled                         yes                 canceled
//	interrupted, by a shutdown       no, a retry         queued at once; dead after max retries
//	interrupted, and we go on        no, a retry         queued with backoff; dead after max retries
//	the same, by a shortage          no                  queued; starts when the dispatcher tries whether that is over
//	exit, in or just after one       no, a retry         as interrupted, and we go on
//	rate-limited                     no, a limit wait    queued; the account cools down until the time that the agent
//	                                                     named, however far, else by its backoff, and then dead after
//	                                                     max_limit_wait. Failed if the task does not wait. Neither
//	                                                     before its fallbacks
//	budget                           no                  queued: not before the next day if the budget of a day is spent,
//	                                                     else held
//	auth                             yes                 failed, and the account goes on hold; queued, without spending
//	                                                     an attempt, if another account can begin the task
//	agent-missing                    no, a retry         queued, and the account goes on hold until the program is back; dead after
//	                                                     max retries. Failed if no task here has run with that agent,
//	                                                     or if only this task does not find the program
//	session-lost, context-full       no                  queued with a new session, or failed by resume_missing; failed
//	                                                     if a new session was too small too
//	denied                           yes                 failed: what denies it denies it again
//	network, stalled, session-busy   yes                 queued with backoff; dead when the attempts are used up
//	exit, timeout, output-missing,   yes                 failed; where the task itself says maxAttempts: queued with
//	verify, setup                                        backoff, dead when they are used up. Failed at once if the
//	                                                     verify command cannot be run
func (a *Attempts) judge(st *fold.State, t *state.Task, out task.Outcome, now time.Time, closing bool) verdict {
	v := verdictOf(t, state.Failed)
	v.Reason = out.Class
	switch out.Class {
	case "":
		v.Status = state.Done
	case state.ClassCanceled:
		v.Status = state.Canceled
	case state.ClassInterrupted:
		if out.Shortage != 0 { // for which all tasks wait: it uses up nobody's retries
			v.Status, v.Attempt = state.Queued, t.Attempt-1
			break
		}
		v.Status, v.Attempt, v.Retries = a.Interrupted(t)
		if v.Status == state.Queued && !closing { // what was in the way (a killed gate) may still be there
			v.NotBefore = now.Add(backoff(&a.tasks.Config, t.Retries, a.tasks.Config.BackoffMax))
		}
	case state.ClassBudget: // whatever was counted: what a guard of the agent counts may be counted by nothing else
		v.Status, v.Attempt = state.Queued, t.Attempt-1
		whole, _ := a.tasks.WholeIn(st, t.ID)
		uncounted := state.SpendingOf(out.Usage, now.Sub(t.RunStartedAt))
		if v.Note = a.tasks.Overspent(&whole, uncounted); v.Note == "" && a.tasks.DayIsSpent(t, now, uncounted) {
			v.NotBefore = queue.NextDay(now)
			break
		}
		v.Hold, v.Note = true, cmp.Or(v.Note, queue.Release(t.ID, "its agent says that a budget is spent", "+5usd"))
	case state.ClassRateLimited:
		a.judgeLimit(st, &v, t, out, now)
	case state.ClassAuth:
		why := cmp.Or(out.Error, "not logged in") // the provider may want something else
		if has := a.tasks.Config.HasKey; has != nil && !has(t.Agent) {
			why = state.KeylessPrefix + why
		}
		v.account = task.AccountRecord(t.AccountName()).Add(state.KeyHold, "true").Add(state.KeyReason, why+"; met by task "+state.ShortID(t.ID))
		if v.loseSession = a.canMove(st, t, out); v.loseSession {
			v.Status, v.Attempt = state.Queued, t.Attempt-1
		}
	case state.ClassAgentMissing:
		if out.Final || !st.HasRun(t.Agent) {
			break
		}
		v.Status, v.Attempt, v.Retries = a.Interrupted(t) // dead though the program seems to be there
		if account := st.Account(t.AccountName()); !account.Hold {
			v.account = task.AccountRecord(account.Name).Add(state.KeyHold, "true").Add(state.KeyReason, state.MissingPrefix+out.Error)
		}
	case state.ClassSessionLost, state.ClassContextFull:
		a.judgeSession(&v, t, out)
	case state.ClassNetwork, state.ClassStalled, state.ClassSessionBusy:
		a.judgeFailure(&v, t, now)
	case state.ClassExit, state.ClassTimeout, state.ClassOutputMissing, state.ClassVerify, state.ClassSetup:
		if t.MaxAttempts > 0 && !out.Final {
			a.judgeFailure(&v, t, now)
		}
	}
	v.account = cmp.Or(v.account, gotThrough(st, t, out.Class))
	return v
}

// Interrupted returns what becomes of a task whose run we have cut off: that spends a retry and no attempt.
// Without retries it is dead, unless only its evaluator was at work: its answer stands then.
func (a *Attempts) Interrupted(t *state.Task) (status state.Status, attempt, retries int) {
	status, attempt, retries = state.Queued, max(0, t.Attempt-1), t.Retries+1
	if retries > a.tasks.Config.MaxRetries && t.Phase != state.PhaseEvaluate {
		status = state.Dead
	}
	return status, attempt, retries
}

// judgeSession lets a task whose conversation is gone, or full, begin a new one.
func (a *Attempts) judgeSession(v *verdict, t *state.Task, out task.Outcome) {
	full := out.Class == state.ClassContextFull
	switch {
	case full && out.Fresh:
		v.why = "this was a new conversation: split the task, or make it smaller"
	case a.tasks.Config.ResumeMissing != "error":
		v.Status, v.Attempt, v.loseSession = state.Queued, t.Attempt-1, true
		v.Note = "the agent's session is gone; a new one was begun"
		if full {
			v.Note = "the agent's conversation was full; a new one was begun"
		}
	case full:
		v.why = "a new conversation begins with --resume never"
	}
}

// verdictOf returns a verdict that leaves a task's counters as they are, and ends its wait for a rate limit.
func verdictOf(t *state.Task, status state.Status) verdict {
	return verdict{Task: state.Task{Status: status, Attempt: t.Attempt, Retries: t.Retries, Requeues: t.Requeues, LimitWaits: t.LimitWaits}}
}

// judgeFailure queues a task again until its attempts are used up. A task with a single one has failed.
func (a *Attempts) judgeFailure(v *verdict, t *state.Task, now time.Time) {
	limit := cmp.Or(t.MaxAttempts, a.tasks.Workspace(t.Workspace).MaxAttempts)
	switch {
	case t.Attempt < limit:
		v.Status, v.NotBefore = state.Queued, now.Add(backoff(&a.tasks.Config, t.Attempt-1, a.tasks.Config.BackoffMax))
	case limit > 1:
		v.Status = state.Dead
	}
}

// judgeLimit lets a task wait for its account, which cools down. The wait stands in the account's record alone.
// Without a named time it grows with the limits that the account has met in a row.
func (a *Attempts) judgeLimit(st *fold.State, v *verdict, t *state.Task, out task.Outcome, now time.Time) {
	const maxNamedLimit = 32 * 24 * time.Hour // the longest window of a provider is a month; a later end is an error, such as milliseconds for seconds
	const maxLimitBackoff = 30 * time.Minute  // of a limit whose end nobody has named
	account := st.Account(t.AccountName())
	isCooling, isNamed := account.CoolUntil.After(now), out.RetryAt.After(now) && out.RetryAt.Before(now.Add(maxNamedLimit))
	// A run that met the limit during the cool-down does not count, but may know of a later end.
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
		v.LimitSince = t.LimitSince
		if v.LimitSince.IsZero() {
			v.LimitSince = now
		}
	}
	v.loseSession = a.canMove(st, t, out)
	most := a.MaxLimitWait(t)
	switch {
	case v.loseSession:
		v.Status, v.Attempt, v.LimitWaits = state.Queued, t.Attempt-1, t.LimitWaits+1
	case most == 0 && len(t.Fallback) == 0: // told not to wait
	case account.TooLong(v.LimitSince, most) && len(t.Fallback) == 0:
		v.Status, v.why = state.Dead, WaitedTooLong(most)
	default: // one with a fallback is handed to it by the dispatcher, or ended as above
		v.Status, v.Attempt, v.LimitWaits = state.Queued, t.Attempt-1, t.LimitWaits+1
	}
}

// canMove reports whether another account can begin the task: its new conversation has no answer yet.
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

// gotThrough returns the record that ends an account's time of one task after the other: a run that
// began after the cool-down has shown that the provider answers again. nil if the run does not show
// it. A run in which the task's agent is not asked shows nothing.
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
	record.AddWhen(!account.Hold, state.KeyReason, "")
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
