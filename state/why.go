package state

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Why says in one sentence why a task does not run now, or how it ended, and, of one
// that another task has queued, why that did. Times are in the zone of now. It gives
// the first reason that must go away, though there may be more behind it.
func (s *State) Why(id string, now time.Time, lim Limits) string {
	n, _ := s.ids.find([]byte(id))
	return s.whyNow(n, id, now, lim) + s.whyQueued(n)
}

func (s *State) whyNow(n uint32, id string, now time.Time, lim Limits) string {
	l := s.live[n]
	switch {
	case n == 0:
		return "there is no task " + id
	case l == nil:
		return s.whyEnded(n, now)
	case l.is(Running) && lim.Settling[id]:
		return "its run has ended; the result " + settling
	case l.is(Running):
		return whyRunning(&s.whole(l).Task, now)
	case l.is(Draft):
		return "a draft; to queue it: stint retry, or status: queued in tasks.md"
	}
	t := &s.whole(l).Task
	if why := cmp.Or(whyHeld(t), s.whyPaused(), whyShort(now, lim), whyTime(t, now), s.whyHome(t, lim.WorkspaceRoot)); why != "" {
		return why // without a look at its lane, which may be long
	}
	return cmp.Or(
		s.whyAfter(t),
		s.whyLane(l, now, lim),
		whyTaken(s.laneAt(l, lim), lim),
		s.whyAccount(t, now, lim),
		s.whySession(t, lim),
		s.whyWorkers(lim),
		"ready: it starts next",
	)
}

// whyRunning says what the run of a task does.
func whyRunning(t *Task, now time.Time) string {
	round := ""
	if t.Iteration > 0 && t.MaxIterations > 1 {
		round = fmt.Sprintf(", round %d of %d", t.Iteration, t.MaxIterations)
	}
	what := ""
	switch t.Phase {
	case PhaseVerify:
		what = "its verify command"
	case PhaseEvaluate:
		what = "the agent that judges its answer"
	default:
		if t.Iteration <= 1 {
			round = ""
		}
		return "running" + since(t.RunStartedAt, now) + round
	}
	if t.RunStartedAt.IsZero() {
		return what + " is running" + round
	}
	return fmt.Sprintf("%s has been running for %s%s", what, max(0, now.Sub(t.RunStartedAt)).Truncate(time.Second), round)
}

// whyQueued says which task has queued another one, and why.
func (s *State) whyQueued(n uint32) string {
	t, parent := Task{}, s.family.parents[n].id
	if l := s.live[n]; l != nil {
		t = s.whole(l).Task
	} else if parent != "" {
		var ended folded
		if s.read(n, &ended, keepNone) == nil {
			t = ended.Task
		}
	}
	switch {
	case parent == "":
		return ""
	case t.Trigger == OnFailure:
		return "; it was queued because " + parent + " failed"
	case t.Trigger == OnIssue:
		return "; it was queued because of the findings about " + parent
	case t.Trigger == ByAgent:
		return "; the agent of " + parent + " has queued it"
	}
	return "; it was queued by " + parent
}

// whyEnded reads the reason of a task that has ended, which is not in memory.
func (s *State) whyEnded(n uint32, now time.Time) string {
	e := s.entries.at(n)
	why := string(statuses[e.status])
	if t := e.updatedAt(); !t.IsZero() {
		why += " at " + clock(t, now)
	}
	var t folded
	if err := s.read(n, &t, keepNone); err != nil || statuses[e.status] == Done {
		return why
	}
	why += failure(&t.Task)
	if t.By != "" {
		why += " (by " + t.By + ")"
	}
	return why
}

// failure says how the last run of a task went wrong.
func failure(t *Task) (why string) {
	for _, more := range []string{string(t.Reason), t.Error} {
		if more != "" && more != string(t.Status) {
			why += because(more)
		}
	}
	return why
}

// oneLine makes a sentence of an error that may have many lines.
func oneLine(s string) string { return cut(strings.Join(strings.Fields(s), " "), 200) }

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + oneLine(reason)
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + clock(t, now)
}

// clock gives the time of day, with the date if it is not today.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func whyHeld(t *Task) string {
	if !t.Hold {
		return ""
	}
	return "held" + because(cmp.Or(t.Note, string(t.Reason)))
}

func (s *State) whyPaused() string {
	if !s.dispatch.paused {
		return ""
	}
	return "dispatch is paused" + because(s.dispatch.reason) + "; to go on: stint resume"
}

// whyShort says what the machine lacks, and when a task finds out whether that is over.
func whyShort(now time.Time, lim Limits) string {
	switch {
	case lim.Short == "":
		return ""
	case lim.Again.After(now):
		return lim.Short + "; one task is tried again at " + clock(lim.Again, now) + in(lim.Again, now)
	}
	return lim.Short + "; one task is being tried again"
}

func whyTime(t *Task, now time.Time) string {
	if !t.NotBefore.After(now) {
		return ""
	}
	why := "waits until " + clock(t.NotBefore, now)
	if !t.tried() {
		return why + ", as it was told"
	}
	why += in(t.NotBefore, now)
	switch {
	case t.Reason == ClassInterrupted:
		return why + because(t.Error)
	case t.Reason == ClassRateLimited:
		return why + ", for the rate limit" + waitNumber(t.LimitWaits)
	case t.MaxAttempts > 0:
		why += fmt.Sprintf(" (attempt %d of %d)", t.Attempt+1, t.MaxAttempts)
	default:
		why += fmt.Sprintf(" (attempt %d)", t.Attempt+1)
	}
	return why + failure(t)
}

// NoWorkspace says what becomes of a task that has no workspace.
const NoWorkspace = "no workspace; to run it, add the line - workspace: /path to its section in tasks.md, or set workspace_root in the configuration"

func (s *State) whyHome(t *Task, root string) string {
	if dir, _ := s.HomeOf(t, root); dir != "" {
		return ""
	}
	return NoWorkspace
}

func (s *State) whyAfter(t *Task) string {
	id, st, open := s.openAfter(t.After, t.AfterPolicy == AfterAny)
	switch {
	case !open:
		return ""
	case st == "":
		return "comes after " + id + ", which no record names"
	default:
		return fmt.Sprintf("comes after %s, which is %s", id, st)
	}
}

// whyLane says which task is before l in its lane.
func (s *State) whyLane(l *live, now time.Time, lim Limits) string {
	at := s.laneAt(l, lim)
	for r := range s.occupants {
		if r.lane == at {
			return fmt.Sprintf("behind %s, which %s, in %s", s.id(r.n), s.atWork(r, lim), laneName(at))
		}
	}
	behind := func(b *live) string { return fmt.Sprintf("behind %s in %s", s.id(b.n), laneName(l.lane)) }
	passed := map[*session]*live{} // as in headOf
	for i, b := range l.lane.queue {
		p := passed[b.sess]
		switch {
		case b == l && p != nil:
			return behind(p)
		case b == l:
			return ""
		case i == maxPassed && l.lane.excludes():
			return fmt.Sprintf("behind %d others that wait, in %s", i, laneName(l.lane))
		case b.Hold || p != nil:
			continue
		}
		switch w := s.waitOf(b, s.afterOf(b), now); {
		case w.planned:
		case !w.any || !l.lane.excludes():
			return behind(b)
		case b.sess != nil:
			passed[b.sess] = b
		}
	}
	return ""
}

// whyTaken says what keeps all tasks of a lane from starting.
func whyTaken(ln *lane, lim Limits) string {
	what := lim.Taken[ln.key]
	if what == "" {
		return ""
	}
	return "behind " + what + ", in " + laneName(ln)
}

// settling says what a result waits for; see [Limits].
const settling = "waits until the save of tasks.md is settled"

// atWork says how a task takes its lane and its session.
func (s *State) atWork(l *live, lim Limits) string {
	switch {
	case l.orphaned:
		return "is held because its agent may still be alive"
	case lim.Settling[s.id(l.n)]:
		return "has a result that " + settling
	}
	return "is running"
}

func laneName(ln *lane) string {
	if dir, ok := strings.CutPrefix(ln.key, LanePrefixDir); ok {
		return "the lane of " + cmp.Or(dir, "no directory")
	}
	return "session " + ln.key
}

func (s *State) whyAccount(t *Task, now time.Time, lim Limits) string {
	a := s.accounts[t.using()]
	switch {
	case a == nil || s.open(a, now, lim):
		return ""
	case a.hold && strings.HasPrefix(a.reason, missingPrefix):
		return fmt.Sprintf("account %s is on hold%s; its tasks go on by themselves when the program is back", a.name, because(a.reason))
	case a.hold:
		return fmt.Sprintf("account %s is on hold%s; when that is mended, stint retry of any of its tasks lifts the hold", a.name, because(a.reason))
	case a.coolUntil.After(now):
		return fmt.Sprintf("account %s cools down until %s%s%s%s", a.name, clock(a.coolUntil, now), in(a.coolUntil, now), because(a.reason), waitNumber(a.limitWaits))
	case lim.slots(a) > 0 && a.running >= lim.slots(a):
		return fmt.Sprintf("all %d slots of account %s are in use", lim.slots(a), a.name)
	default:
		return fmt.Sprintf("account %s was rate-limited%s; one task at a time until one gets through", a.name, waitNumber(a.limitWaits))
	}
}

// in counts down to t, in seconds.
func in(t, now time.Time) string {
	left := t.Sub(now)
	return fmt.Sprintf(", in %s", (left + time.Second - 1).Truncate(time.Second))
}

func waitNumber(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (wait %d)", n)
}

func (s *State) whySession(t *Task, lim Limits) string {
	used := s.usedSessions()
	for _, name := range s.sessionsOf(t) {
		if l := used[name]; l != nil && name.id != "" {
			return "its agent session is used by " + s.id(l.n) + ", which " + s.atWork(l, lim)
		}
	}
	return ""
}

func (s *State) whyWorkers(lim Limits) string {
	switch {
	case len(s.running) < lim.MaxWorkers+lim.Lent:
		return ""
	case lim.MaxWorkers == 1:
		return "the only worker is busy"
	case lim.MaxWorkers <= 0:
		return "no task may start: there are no workers"
	default:
		return fmt.Sprintf("all %d workers are busy", lim.MaxWorkers)
	}
}
