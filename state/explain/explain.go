// Package explain words what [lanes.Queues] decide: why a task does not run now, what its run
// does, or how it ended. It decides nothing.
//
// [Live] goes through what a task needs in the order in which dispatch asks for it, and stops at the first thing that is missing,
// though more may be missing behind it. It returns that twice: in a few words for lists ("blocked by 3fa2c1d0"), and as a sentence
// that ends with the command that helps, where there is one. Tasks go by their short ids; times are in the zone of now.
package explain

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"stint/state"
	"stint/state/lanes"
)

// NoWorkspace is why a task without a workspace does not run.
const NoWorkspace = "no workspace; to run it, add the line - workspace: /path to its section in tasks.md, or set workspace_root in the configuration"

// AfterNobody returns why a task does not run that comes after one that is not there.
func AfterNobody(id string) string {
	return "comes after " + id + ", which no record names; to run it, correct the line - after: in its section in tasks.md"
}

const (
	release  = "; to let it run: stint release "             // before the id of a held task
	settling = "waits until the save of tasks.md is settled" // of a result; see [lanes.Limits]
)

// Live returns why the live task n does not run now, or what its run does; short is "" of one that waits for nothing.
func Live(q *lanes.Queues, n uint32, now time.Time, lim lanes.Limits) (short, why string) {
	l := q.Live(n)
	t := &q.Whole(l).Task
	paused, reason := q.Paused()
	switch {
	case t.Status == state.Running && lim.Settling[q.ID(n)]:
		return "save of tasks.md", "its run has ended; the result " + settling
	case t.Status == state.Running:
		return "", running(t, now)
	case t.Status == state.Draft:
		return "", "a draft; to queue it: stint retry, or status: queued in tasks.md"
	case t.Hold:
		why = state.Because("held", cmp.Or(t.Note, string(t.Reason)))
		if !strings.Contains(why, "stint release") {
			why += release + state.ShortID(q.ID(n))
		}
		if t.Reason == state.ClassBudget {
			return string(state.ClassBudget), why
		}
		return "held", why
	case paused:
		return "paused", state.Because("dispatch is paused", reason) + "; to continue: stint resume"
	case lim.Short != "":
		return shortage(lim, now)
	case t.NotBefore.After(now):
		return notBefore(t, now)
	}
	if home, _ := q.HomeOf(t, lim.WorkspaceRoot); home == "" {
		return "no workspace", NoWorkspace
	}
	if id, st, open := q.OpenAfter(t.After, t.AfterPolicy == state.AfterAny); open {
		return after(q, id, st)
	}
	o := q.Occupant(t, lim)
	if o.Lane != "" {
		return occupied(q, o, lim, "in "+state.LaneName(o.Lane))
	}
	switch before, others := q.Before(l, now); {
	case others > 0:
		return behind(fmt.Sprintf("%d others", others), " that wait, in "+state.LaneName(t.Lane()))
	case before != "":
		return behind(before, " in "+state.LaneName(t.Lane()))
	}
	if name := t.UsedAccount(); q.Free(name, now, lim) == 0 {
		return account(q, name, now, lim)
	}
	a := q.Account(t.UsedAccount())
	if rule := lim.RuleFor(&a); t.Spare && !rule.SpareFrom.IsZero() {
		return "spare from " + minutes(rule.SpareFrom, now), "waits for quota of account " + a.Name + " that would lapse: " + rule.Told + "; from " + clock(rule.SpareFrom, now) + " on, if no more is used before"
	}
	switch most := q.FullQueue(t.Queue, lim); {
	case most > 0:
		return "queue busy", fmt.Sprintf("queue %s is full: of its tasks %d may run at once", t.Queue, most)
	case lim.NoTree != nil && lim.NoTree(t):
		return "worktrees", "needs another worktree, and there are as many as max_worktrees: stint worktree clean, or stint drop one"
	case o.Checkout != "":
		return occupied(q, o, lim, "in "+o.Checkout+", where one task runs at a time: it is a worktree, or checkout is exclusive")
	case o.Task != "":
		return "behind " + state.ShortID(o.Task), "its agent session is used by " + state.ShortID(o.Task) + ", which " + does(q, o.Task, lim)
	case q.FreeWorkers(lim) > 0:
		return "next", "ready: it starts next"
	}
	return "workers busy", fmt.Sprintf("no worker is free: max_workers is %d", lim.MaxWorkers)
}

// running returns what the run of a task does.
func running(t *state.Task, now time.Time) string {
	why := map[state.Phase]string{state.PhaseVerify: "its verify command is ", state.PhaseEvaluate: "the agent that judges its answer is "}[t.Phase] + "running"
	if !t.RunStartedAt.IsZero() {
		why += " since " + clock(t.RunStartedAt, now)
	}
	if t.Iteration > 0 && t.MaxIterations > 1 && (t.Phase != "" || t.Iteration > 1) {
		why += fmt.Sprintf(", iteration %d of %d", t.Iteration, t.MaxIterations)
	}
	return why
}

func shortage(lim lanes.Limits, now time.Time) (short, why string) {
	short, why = "machine full", "; one task is being tried again"
	if strings.Contains(lim.Short, "disk") {
		short = "disk full"
	}
	if lim.Again.After(now) {
		why = "; one task is tried again at " + clock(lim.Again, now) + in(lim.Again, now)
	}
	return short, lim.Short + why
}

func notBefore(t *state.Task, now time.Time) (short, why string) {
	short, why = minutes(t.NotBefore, now), "waits until "+clock(t.NotBefore, now)
	if t.Reason == state.ClassRateLimited {
		short = "limit until " + short
	}
	if !t.Tried() {
		return short, why + ", as it was told"
	}
	why += in(t.NotBefore, now)
	switch t.Reason {
	case state.ClassInterrupted:
		return short, state.Because(why, t.Error)
	case state.ClassRateLimited:
		return short, why + ", for the rate limit" + waitNumber(t.LimitWaits)
	}
	return state.Because("retry "+short, string(t.Reason)), why + fmt.Sprintf(" (attempt %d)", t.Attempt+1) + failure(t)
}

// after is for a task that comes after the one of that id and status.
func after(q *lanes.Queues, id string, st state.Status) (short, why string) {
	short = "blocked by " + state.ShortID(id)
	if st == "" {
		return short, AfterNobody(id)
	}
	why = fmt.Sprintf("comes after %s, which is %s", state.ShortID(id), st)
	if t, _ := q.Peek(id); t.Hold {
		return short + ", held", why + " and held" + release + state.ShortID(id)
	}
	return short, why
}

// behind returns that another task goes before, and where.
func behind(other, where string) (short, why string) {
	short = "behind " + state.ShortID(other)
	return short, short + where
}

// occupied is behind for a task that is at work there.
func occupied(q *lanes.Queues, o lanes.Occupant, lim lanes.Limits, where string) (short, why string) {
	return behind(o.Task, ", which "+does(q, o.Task, lim)+", "+where)
}

// does returns how a task takes its lane, its session and its checkout.
func does(q *lanes.Queues, id string, lim lanes.Limits) string {
	switch t, _ := q.Peek(id); {
	case t.Orphaned():
		return "is held because its agent may still be alive"
	case lim.Settling[id]:
		return "has a result that " + settling
	}
	return "is running"
}

// account returns why no task of the account of that name starts.
func account(q *lanes.Queues, name string, now time.Time, lim lanes.Limits) (short, why string) {
	a := q.Account(name)
	rule := lim.RuleFor(&a)
	if short, why = Account(&a, rule, now); why != "" {
		return short, why
	}
	if a.LimitWaits == 0 {
		return "account busy", fmt.Sprintf("all %d slots of account %s are in use", rule.Slots, name)
	}
	return "limit", fmt.Sprintf("account %s was rate-limited%s; one task at a time until one gets through", name, waitNumber(a.LimitWaits))
}

// Account returns what keeps all tasks of an account from starting, in a few words, and in one sentence
// with what ends that; "" if nothing does but those that run.
func Account(a *state.Account, rule state.AccountRule, now time.Time) (short, why string) {
	held := state.Because("account "+a.Name+" is on hold", a.Reason)
	switch {
	case a.Disabled:
		return "disabled", "account " + a.Name + " is disabled; to use it again: stint account enable " + a.Name
	case a.IsMissing():
		return "account held", held + "; its tasks start by themselves when the program is back"
	case a.Hold:
		return "account held", held + "; when that is fixed: stint account enable " + a.Name
	case a.CoolUntil.After(now):
		return "limit until " + minutes(a.CoolUntil, now), fmt.Sprintf("%s: account %s is available again at %s%s%s", strings.TrimPrefix(state.Because("", cmp.Or(a.Reason, "rate-limited")), ": "), a.Name, clock(a.CoolUntil, now), in(a.CoolUntil, now), waitNumber(a.LimitWaits))
	case rule.Closed != "" && rule.Until.After(now):
		return "closed until " + minutes(rule.Until, now), "account " + a.Name + " " + rule.Closed + "; next at " + clock(rule.Until, now)
	case rule.Closed != "":
		return "closed", "account " + a.Name + " " + rule.Closed
	}
	return "", ""
}

// Ended returns how a task ended.
func Ended(t *state.Task, now time.Time) string {
	why := string(t.Status)
	if !t.UpdatedAt.IsZero() {
		why += " at " + clock(t.UpdatedAt, now)
	}
	if t.Status == state.Done {
		return why
	}
	why += failure(t)
	if t.By != "" {
		why += " (by " + t.By + ")"
	}
	return why
}

// failure returns how the last run of a task went wrong.
func failure(t *state.Task) (why string) {
	for _, more := range []string{state.Cause(t.Reason, t.Error), t.Error} {
		if more != string(t.Status) {
			why = state.Because(why, more)
		}
	}
	return why
}

func waitNumber(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (wait %d)", n)
}

// clock returns the time of day, with the date if it is not today.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// minutes is clock without the seconds.
func minutes(t, now time.Time) string { return clock(t, now)[:len(clock(t, now))-len(":00")] }

// in counts down to t, in seconds.
func in(t, now time.Time) string {
	left := min(t.Sub(now), math.MaxInt64-time.Second) + time.Second - 1
	return fmt.Sprintf(", in %s", left.Truncate(time.Second))
}
