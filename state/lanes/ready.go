package lanes

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"stint/state"
)

// Limits bound what runs at the same time.
type Limits struct {
	MaxWorkers int             // running tasks in all; at 0 none may start
	Lent       map[string]bool // running tasks, by id, that wait for others, and lend their worker and their place in a queue
	Settling   map[string]bool // running tasks, by id, whose run has ended: the result waits until a save of tasks.md is settled

	Account func(a *state.Account) state.AccountRule // what is configured for an account; nil: nothing
	Queue   func(name string) int                    // running tasks of one queue; 0 or a nil func: no limit

	// Checkout returns the directory in which a task runs alone, whatever its lane; "": none. nil: none has any.
	Checkout func(t *state.Task) string

	// NoTree reports whether a task needs a worktree that is not there, while there are as many as may be: it does not start. nil: none does.
	NoTree func(t *state.Task) bool

	Short string    // what the machine lacks: no task may start but one, from Again on, that finds out whether that is over; "": nothing
	Again time.Time // zero: such a task is being started

	WorkspaceRoot string // workspace of tasks that have none, nor their session; "": they wait
}

// RuleFor returns what is configured for an account.
func (m Limits) RuleFor(a *state.Account) state.AccountRule {
	if m.Account == nil {
		return state.AccountRule{}
	}
	return m.Account(a)
}

// For returns the limits for a task: a spare one finds an account without spare quota closed.
func (m Limits) For(isSpare bool) Limits {
	if all := m; isSpare {
		m.Account = func(a *state.Account) state.AccountRule {
			rule := all.RuleFor(a)
			if rule.Closed == "" && !rule.SpareFrom.IsZero() {
				rule.Closed, rule.Until = "has no spare quota", rule.SpareFrom
			}
			return rule
		}
	}
	return m
}

// checkoutOf returns the directory that a task needs for itself; see Limits.Checkout.
func (s *Queues) checkoutOf(t *state.Task, lim Limits) string {
	if lim.Checkout == nil {
		return ""
	}
	at := *t
	at.Workspace, _ = s.HomeOf(t, lim.WorkspaceRoot)
	return lim.Checkout(&at)
}

// Beside returns the workspaces in or below a directory with a task of another lane than that one
// which runs, or comes next in its lane and waits for nothing that may take long; with the id of one
// each. It looks at a few hundred lanes at most, and at no more when there is one in the directory itself.
func (s *Queues) Beside(dir, lane string) map[string]string {
	found := map[string]string{}
	note := func(l *Item) {
		if at := s.Whole(l).Place(); strings.HasPrefix(at+"/", dir+"/") {
			found[at] = s.ID(l.N)
		}
	}
	for _, l := range s.running {
		if l.lane.key != lane {
			note(l)
		}
	}
	most := 256
	for key, ln := range s.lanes {
		if most--; most < 0 || found[dir] != "" { // others are not needed then
			break
		}
		if key == lane || len(ln.queue) == 0 {
			continue
		}
		if l := ln.queue[0]; !l.Hold && !l.after && l.NotBefore.IsZero() {
			note(l)
		}
	}
	return found
}

// FreeWorkers returns how many more tasks the workers can run.
func (s *Queues) FreeWorkers(lim Limits) int { return lim.MaxWorkers + len(lim.Lent) - len(s.running) }

// round returns how many tasks may start now. If any may, it looks again at what is configured for accounts,
// and at the lanes that have changed.
func (s *Queues) round(now time.Time, lim Limits) int {
	free := s.FreeWorkers(lim)
	if lim.Short != "" {
		free = min(free, 1)
	}
	if free <= 0 || s.controls[state.ControlDispatch].Paused || lim.Short != "" && (lim.Again.IsZero() || lim.Again.After(now)) {
		return 0
	}
	for _, a := range s.accounts {
		rule := lim.RuleFor(&a.Account)
		closed, noSpare := rule.Closed != "", !rule.SpareFrom.IsZero()
		if closed != a.closed || noSpare != a.noSpare {
			a.closed, a.noSpare, s.plan.accounts = closed, noSpare, true
		}
	}
	s.refresh(now)
	return free
}

// free returns how many more tasks of the account may start now. After a cool-down that is one, which finds
// out whether the limit has passed: what was at work before the limit was met does not count.
func (s *Queues) free(a *account, now time.Time, lim Limits) int {
	rule := lim.RuleFor(&a.Account)
	if a.Hold || a.Disabled || a.CoolUntil.After(now) || rule.Closed != "" {
		return 0
	}
	n := math.MaxInt
	if rule.Slots > 0 {
		n = rule.Slots - a.running
	}
	tries := 1
	for _, l := range s.running {
		if l.acct == a && !s.Whole(l).RunStartedAt.Before(a.CoolUntil) {
			tries = 0
		}
	}
	if a.LimitWaits > 0 {
		n = min(n, tries)
	}
	return max(n, 0)
}

// Free returns how many more tasks of the account of that name may start now, as far as the account goes.
func (s *Queues) Free(name string, now time.Time, lim Limits) int {
	return s.free(cmp.Or(s.accounts[name], &account{Account: state.Account{Name: name}}), now, lim)
}

// RunningWith returns the running tasks of the account of that name.
func (s *Queues) RunningWith(name string) (ids []string) {
	for _, l := range s.running {
		if l.acct.Name == name {
			ids = append(ids, s.ID(l.N))
		}
	}
	return ids
}

// FullQueue returns how many tasks of the queue of that name may run, if so many do; else 0.
func (s *Queues) FullQueue(name string, lim Limits) int {
	if lim.Queue == nil || lim.Queue(name) == 0 || s.use(lim).queues[name] < lim.Queue(name) {
		return 0
	}
	return lim.Queue(name)
}

// Ready returns the tasks to start now, the most urgent first: at most one of each lane, and no more than the
// limits leave room for. It changes nothing; until the caller has appended that they run, it returns the same
// ones again. A call costs as much as has changed since the last one, and nothing while all workers are busy.
func (s *Queues) Ready(now time.Time, lim Limits) []state.Task {
	return s.views(s.urgent(now, lim))
}

// urgent is Ready, without copies.
func (s *Queues) urgent(now time.Time, lim Limits) []*Item {
	free := s.round(now, lim)
	if free == 0 {
		return nil
	}
	var list []*Item
	var tried []*lane
	use := s.use(lim)
	left := map[*account]int{}
	for _, a := range s.accounts {
		left[a] = s.free(a, now, lim)
	}
	for len(list) < free {
		var in *account // the one with the most urgent head
		for a, n := range left {
			if n > 0 && len(a.ready.List) > 0 && (in == nil || a.ready.List[0].before(in.ready.List[0])) {
				in = a
			}
		}
		if in == nil {
			break
		}
		ln := in.ready.Pop()
		tried = append(tried, ln)
		if ln.head.spare && in.noSpare || !s.startable(ln, use, lim) {
			continue
		}
		left[in]--
		list = append(list, ln.head)
	}
	for _, ln := range tried {
		ln.in.ready.Push(ln)
	}
	return list
}

// A use is what running tasks, and those that are to start, have for themselves.
type use struct {
	sessions  map[sessionName]*Item
	checkouts map[string]*Item
	queues    map[string]int
}

func (s *Queues) use(lim Limits) use {
	u := use{map[sessionName]*Item{}, map[string]*Item{}, map[string]int{}}
	for l := range s.occupants {
		t := &s.Whole(l).Task
		for _, name := range s.sessionsOf(t) {
			u.sessions[name] = l
		}
		if dir := s.checkoutOf(t, lim); dir != "" {
			u.checkouts[dir] = l
		}
	}
	for _, l := range s.running {
		if !lim.Lent[s.ID(l.N)] {
			u.queues[s.queueOf(l)]++
		}
	}
	return u
}

// startable reports whether the head of a lane could start now as far as all but its account goes,
// and then counts it as one that does.
func (s *Queues) startable(ln *lane, u use, lim Limits) bool {
	queue := s.queueOf(ln.head)
	if lim.Queue != nil && lim.Queue(queue) > 0 && u.queues[queue] >= lim.Queue(queue) {
		return false
	}
	t := &s.Whole(ln.head).Task
	home, _ := s.HomeOf(t, lim.WorkspaceRoot)
	if home == "" || s.occupant(t, lim, u) != (Occupant{}) || lim.NoTree != nil && lim.NoTree(t) { // which counts it
		return false
	}
	if dir := s.checkoutOf(t, lim); dir != "" {
		u.checkouts[dir] = ln.head
	}
	for _, name := range s.sessionsOf(t) {
		u.sessions[name] = ln.head
	}
	u.queues[queue]++
	return true
}

// Movable returns tasks that would start now, the most urgent first, if their accounts took any, and that nothing binds to
// these: no person, and no conversation that goes on there. It looks at some of each account's, and changes nothing.
func (s *Queues) Movable(now time.Time, lim Limits) []state.Task {
	free := s.round(now, lim)
	if free == 0 {
		return nil
	}
	var list []*Item
	use := s.use(lim)
	for _, a := range s.accounts {
		isFull := s.free(a, now, lim) == 0
		if len(a.ready.List) == 0 || !isFull && !a.noSpare {
			continue
		}
		most, looked := len(list)+free, 0
		for ln := range a.ready.InOrder {
			if t := &s.Whole(ln.head).Task; !t.Pinned && (isFull || t.Spare) && s.BoundTo(t) != a.Name && s.startable(ln, use, lim) {
				list = append(list, ln.head)
			}
			if looked++; len(list) == most || looked == maxPassed {
				break
			}
		}
	}
	slices.SortFunc(list, byRank)
	return s.views(list[:min(free, len(list))])
}

// BoundTo returns the account that has the conversation which a task goes on with; "" if it begins one.
func (s *Queues) BoundTo(t *state.Task) string {
	if t.AgentSession != "" {
		return t.AccountName()
	}
	if x := s.sessions.byID[t.SessionID]; x != nil && x.agent == t.Agent && x.native != "" {
		return cmp.Or(x.account, t.AccountName())
	}
	return ""
}

// byRank compares two tasks of any lanes: the more urgent one is before the other.
func byRank(a, b *Item) int { return cmp.Or(cmp.Compare(b.level, a.level), byAge(a, b)) }

// Stranded returns the tasks that name a fallback and would start now, the most urgent first, if their
// accounts did not cool down. It changes nothing, and costs as much as Ready.
func (s *Queues) Stranded(now time.Time, lim Limits) []state.Task {
	if !s.cooling(now) {
		return nil
	}
	free, list := s.round(now, lim), s.urgent(now, lim)
	if free == 0 {
		return nil
	}
	for _, a := range s.accounts {
		most := len(list) + free
		for ln := range a.backed.InOrder {
			if a.Hold || !a.CoolUntil.After(now) || len(list) == most {
				break
			}
			list = append(list, ln.head)
		}
	}
	slices.SortFunc(list, byRank)
	list = list[:min(free, len(list))]
	return s.views(slices.DeleteFunc(list, func(l *Item) bool { return !l.lane.in.CoolUntil.After(now) }))
}

// cooling reports whether any account cools down.
func (s *Queues) cooling(now time.Time) bool {
	for _, a := range s.accounts {
		if a.CoolUntil.After(now) {
			return true
		}
	}
	return false
}

// LimitWaitExceeded returns the queued tasks, oldest first, whose account cools down for longer than they
// wait for rate limits: most, if they do not say themselves; see [state.Account.TooLong].
func (s *Queues) LimitWaitExceeded(now time.Time, most time.Duration) []state.Task {
	if !s.cooling(now) {
		return nil
	}
	var found []*Item
	for _, l := range s.hasty {
		if a := l.acct; !l.Hold && a.CoolUntil.After(now) {
			t, own := s.Whole(l), most
			if d, err := time.ParseDuration(t.MaxLimitWait); err == nil {
				own = d
			}
			if a.TooLong(t.LimitSince, own) {
				found = append(found, l)
			}
		}
	}
	slices.SortFunc(found, byAge)
	return s.views(found)
}

// sessionName names a conversation: stint's session with agent "", an agent's own
// with its name. Two runs must not be in one at the same time.
type sessionName struct{ agent, id string }

// sessionsOf returns the conversations that a task continues; an id of "" is none.
func (s *Queues) sessionsOf(t *state.Task) [2]sessionName {
	return [2]sessionName{{"", t.SessionID}, {t.Agent, s.native(t)}}
}

// occupants returns the tasks that take their lane and their session: those that run, and those that may do so still.
func (s *Queues) occupants(yield func(*Item) bool) {
	for _, of := range []map[uint32]*Item{s.running, s.orphans} {
		for _, l := range of {
			if !yield(l) {
				return
			}
		}
	}
}

// An Occupant takes a lane, a checkout or, where it names neither, a session of an agent.
type Occupant struct {
	Task     string // id
	Lane     string
	Checkout string
}

// Occupant returns what takes the lane, the session or the checkout of t, which may be t
// itself: nothing else is to run there. It is zero if all of them are free.
func (s *Queues) Occupant(t *state.Task, lim Limits) Occupant { return s.occupant(t, lim, s.use(lim)) }

func (s *Queues) occupant(t *state.Task, lim Limits, u use) Occupant {
	key, n := s.LaneOf(t, lim.WorkspaceRoot), s.Number(t.ID)
	for l := range s.occupants {
		if l.lane.key == key || l.N == n {
			return Occupant{Task: s.ID(l.N), Lane: key}
		}
	}
	for _, name := range s.sessionsOf(t) {
		if l := u.sessions[name]; l != nil && name.id != "" {
			return Occupant{Task: s.ID(l.N)}
		}
	}
	if dir := s.checkoutOf(t, lim); dir != "" {
		for at, l := range u.checkouts {
			if state.Overlap(at, dir) {
				return Occupant{Task: s.ID(l.N), Checkout: dir}
			}
		}
	}
	return Occupant{}
}

// NextWake returns the earliest time after now at which Ready may return more by time alone: a task's notBefore, or the end of
// a cool-down, which may also be that of an account that tasks can fall back to. Zero means never.
func (s *Queues) NextWake(now time.Time) time.Time {
	var t time.Time
	if s.controls[state.ControlDispatch].Paused {
		return t
	}
	s.refresh(now)
	if w := s.plan.wakes.List; len(w) > 0 {
		t = w[0].at
	}
	waits := false // for an account: it may be any that takes the task over
	for _, a := range s.accounts {
		waits = waits || len(a.ready.List) > 0
	}
	for _, a := range s.accounts {
		if waits && !a.Hold && a.CoolUntil.After(now) {
			t = earlier(t, a.CoolUntil)
		}
	}
	return t
}

// due returns from when on a task waits for its turn: since it was queued or released, or since its notBefore.
func (l *Item) due() time.Time {
	since := time.UnixMilli(l.since).UTC()
	if l.NotBefore.After(since) {
		return l.NotBefore
	}
	return since
}

// WaitingSince returns since when the task waits for its turn that waits longest; ok is false if none does.
// Held tasks, and those whose notBefore is still to come, do not wait for their turn. It costs the same
// however many tasks there are. A compaction forgets it where a task was changed while it waited: the merged
// record has the time of the newest one alone, from which the task waits then.
func (s *Queues) WaitingSince(now time.Time) (since time.Time, ok bool) {
	if len(s.due.List) == 0 || s.due.List[0].due().After(now) {
		return time.Time{}, false
	}
	return s.due.List[0].due(), true
}
