package lanes

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"stint/state"
)

// WhyLive returns in one sentence why the live task n does not run now, or what its run does;
// short is what it waits for in a few words, "" of one that waits for nothing.
func (s *Queues) WhyLive(n uint32, now time.Time, lim Limits) (short, why string) {
	l := s.live[n]
	t := &s.Whole(l).Task
	switch {
	case l.is(state.Running) && lim.Settling[s.ID(n)]:
		return "save of tasks.md", "its run has ended; the result " + settling
	case l.is(state.Running):
		return "", whyRunning(t, now)
	case l.is(state.Draft):
		return "", "a draft; to queue it: stint retry, or status: queued in tasks.md"
	case t.Hold:
		why := "held" + because(cmp.Or(t.Note, string(t.Reason)))
		if !strings.Contains(why, "stint release") {
			why += release + s.shortID(n)
		}
		return "held", why
	case s.dispatch.Paused:
		return "paused", "dispatch is paused" + because(s.dispatch.Reason) + "; to go on: stint resume"
	case lim.Short != "" && lim.Again.After(now):
		return lacks(lim.Short), lim.Short + "; one task is tried again at " + clock(lim.Again, now) + in(lim.Again, now)
	case lim.Short != "":
		return lacks(lim.Short), lim.Short + "; one task is being tried again"
	case t.NotBefore.After(now) && t.Reason == state.ClassRateLimited:
		return "limit until " + minutes(t.NotBefore, now), whyTime(t, now)
	case t.NotBefore.After(now):
		return minutes(t.NotBefore, now), whyTime(t, now)
	case !s.hasHome(t, lim.WorkspaceRoot):
		return "no workspace", NoWorkspace
	}
	if id, st, open := s.openAfter(t.After, l.afterAny); open && st == "" {
		return "blocked by " + state.ShortID(id), afterNobody(id)
	} else if open {
		short = "blocked by " + state.ShortID(id)
		why = fmt.Sprintf("comes after %s, which is %s", state.ShortID(id), st)
		if b := s.live[s.Number(id)]; b != nil && b.Hold {
			return short + ", held", why + " and held" + release + state.ShortID(id)
		}
		return short, why
	}
	if before, why := s.whyLane(l, now, lim); why != "" {
		return "behind " + before, why
	}
	if ln := s.laneAt(l, lim); lim.Taken[ln.key] != "" {
		return "behind " + lim.Taken[ln.key], "behind " + lim.Taken[ln.key] + ", in " + laneName(ln.key)
	}
	if a := s.accounts[t.UsedAccount()]; a != nil && !s.open(a, now, lim) {
		return s.whyAccount(a, now, lim)
	}
	used := s.usedSessions()
	for _, name := range s.sessionsOf(t) {
		if o := used[name]; o != nil && name.id != "" {
			return "behind " + s.shortID(o.N), "its agent session is used by " + s.shortID(o.N) + ", which " + s.atWork(o, lim)
		}
	}
	if dir, _ := s.checkoutOf(t, lim); dir != "" {
		if o := s.usedCheckouts(lim)[dir]; o != nil {
			before := "behind " + s.shortID(o.N)
			return before, fmt.Sprintf("%s, which %s, in %s, where one task runs at a time: checkout is exclusive", before, s.atWork(o, lim), dir)
		}
	}
	switch {
	case len(s.running) < lim.MaxWorkers+lim.Lent:
		return "next", "ready: it starts next"
	case lim.MaxWorkers == 1:
		why = "the only worker is busy"
	case lim.MaxWorkers <= 0:
		why = "no task may start: there are no workers"
	default:
		why = fmt.Sprintf("all %d workers are busy", lim.MaxWorkers)
	}
	return "workers busy", why
}

// release comes before the id of a held task.
const release = "; to let it run: stint release "

// shortID returns the id of a task as people see it.
func (s *Queues) shortID(n uint32) string { return state.ShortID(s.ID(n)) }

// afterNobody returns what becomes of a task that comes after one that is not there.
func afterNobody(id string) string {
	return "comes after " + id + ", which no record names; to run it, correct the line - after: in its section in tasks.md"
}

// whyRunning returns what the run of a task does.
func whyRunning(t *state.Task, now time.Time) string {
	iteration := ""
	if t.Iteration > 0 && t.MaxIterations > 1 {
		iteration = fmt.Sprintf(", iteration %d of %d", t.Iteration, t.MaxIterations)
	}
	what := "its verify command"
	switch {
	case t.Phase == state.PhaseEvaluate:
		what = "the agent that judges its answer"
	case t.Phase == "" && t.Iteration <= 1:
		what, iteration = "", ""
	case t.Phase == "":
		what = ""
	}
	switch {
	case what == "" && t.RunStartedAt.IsZero():
		return "running" + iteration
	case what == "":
		return "running since " + clock(t.RunStartedAt, now) + iteration
	case t.RunStartedAt.IsZero():
		return what + " is running" + iteration
	}
	return fmt.Sprintf("%s has been running for %s%s", what, max(0, now.Sub(t.RunStartedAt)).Truncate(time.Second), iteration)
}

// because returns a reason, which may have many lines, as the end of a sentence.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + state.Cut(strings.Join(strings.Fields(reason), " "), 200)
}

// lacks returns in two words what the machine lacks.
func lacks(what string) string {
	if strings.Contains(what, "disk") {
		return "disk full"
	}
	return "machine full"
}

// minutes returns the time of day without seconds, with the date if it is not today.
func minutes(t, now time.Time) string { return clock(t, now)[:len(clock(t, now))-len(":00")] }

// clock returns the time of day, with the date if it is not today.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func whyTime(t *state.Task, now time.Time) string {
	why := "waits until " + clock(t.NotBefore, now)
	if !t.Tried() {
		return why + ", as it was told"
	}
	why += in(t.NotBefore, now)
	switch {
	case t.Reason == state.ClassInterrupted:
		return why + because(t.Error)
	case t.Reason == state.ClassRateLimited:
		return why + ", for the rate limit" + waitNumber(t.LimitWaits)
	case t.MaxAttempts > 0:
		why += fmt.Sprintf(" (attempt %d of %d)", t.Attempt+1, t.MaxAttempts)
	default:
		why += fmt.Sprintf(" (attempt %d)", t.Attempt+1)
	}
	return why + failure(t)
}

// NoWorkspace returns what becomes of a task that has no workspace.
const NoWorkspace = "no workspace; to run it, add the line - workspace: /path to its section in tasks.md, or set workspace_root in the configuration"

func (s *Queues) hasHome(t *state.Task, root string) bool {
	dir, _ := s.HomeOf(t, root)
	return dir != ""
}

// whyLane returns which task is before l in its lane, and in a sentence why.
func (s *Queues) whyLane(l *Item, now time.Time, lim Limits) (before, why string) {
	at := s.laneAt(l, lim)
	for r := range s.occupants {
		if r.lane == at {
			return s.shortID(r.N), fmt.Sprintf("behind %s, which %s, in %s", s.shortID(r.N), s.atWork(r, lim), laneName(at.key))
		}
	}
	behind := func(b *Item) (before, why string) {
		return s.shortID(b.N), fmt.Sprintf("behind %s in %s", s.shortID(b.N), laneName(l.lane.key))
	}
	passed := map[*session]*Item{} // as in headOf
	for i, b := range l.lane.queue {
		p := passed[b.sess]
		switch {
		case b == l && p != nil:
			return behind(p)
		case b == l:
			return "", ""
		case i == maxPassed && l.lane.excludes():
			return fmt.Sprintf("%d others", i), fmt.Sprintf("behind %d others that wait, in %s", i, laneName(l.lane.key))
		case b.Hold || p != nil:
			continue
		}
		switch w := s.waitOf(b, now); {
		case w.planned:
		case !w.any || !l.lane.excludes():
			return behind(b)
		case b.sess != nil:
			passed[b.sess] = b
		}
	}
	return "", ""
}

// settling returns what a result waits for; see [Limits].
const settling = "waits until the save of tasks.md is settled"

// atWork returns how a task takes its lane and its session.
func (s *Queues) atWork(l *Item, lim Limits) string {
	switch {
	case l.orphaned:
		return "is held because its agent may still be alive"
	case lim.Settling[s.ID(l.N)]:
		return "has a result that " + settling
	}
	return "is running"
}

func laneName(key string) string {
	if dir, ok := strings.CutPrefix(key, state.LanePrefixDir); ok {
		return "the lane of " + cmp.Or(dir, "no directory")
	}
	return "session " + key
}

// whyAccount returns why no task of an account starts, in a few words and in a sentence.
func (s *Queues) whyAccount(a *account, now time.Time, lim Limits) (short, why string) {
	switch {
	case a.Hold && strings.HasPrefix(a.Reason, state.MissingReason("")):
		return "account held", fmt.Sprintf("account %s is on hold%s; its tasks go on by themselves when the program is back", a.name, because(a.Reason))
	case a.Hold:
		return "account held", fmt.Sprintf("account %s is on hold%s; when that is fixed, stint retry of any of its tasks lifts the hold", a.name, because(a.Reason))
	case a.CoolUntil.After(now):
		return "limit until " + minutes(a.CoolUntil, now), fmt.Sprintf("%s: account %s is available again at %s%s%s", cmp.Or(strings.TrimPrefix(because(a.Reason), ": "), "rate-limited"), a.name, clock(a.CoolUntil, now), in(a.CoolUntil, now), waitNumber(a.LimitWaits))
	case lim.slots(a) > 0 && a.running >= lim.slots(a):
		return "account busy", fmt.Sprintf("all %d slots of account %s are in use", lim.slots(a), a.name)
	default:
		return "limit", fmt.Sprintf("account %s was rate-limited%s; one task at a time until one gets through", a.name, waitNumber(a.LimitWaits))
	}
}

// in counts down to t, in seconds.
func in(t, now time.Time) string {
	left := min(t.Sub(now), math.MaxInt64-time.Second) + time.Second - 1
	return fmt.Sprintf(", in %s", left.Truncate(time.Second))
}

func waitNumber(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (wait %d)", n)
}

// WhyEnded returns how task n ended; t is it as far as its records could be read.
func (s *Queues) WhyEnded(n uint32, t *state.Task, now time.Time) string {
	e := s.Entries.At(n)
	why := string(e.Status())
	if at := e.UpdatedAt(); !at.IsZero() {
		why += " at " + clock(at, now)
	}
	if t.Status == "" || t.Status == state.Done {
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
	for _, more := range []string{string(t.Reason), t.Error} {
		if more != "" && more != string(t.Status) {
			why += because(more)
		}
	}
	return why
}
