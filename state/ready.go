package state

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// Limits bound what runs at the same time.
type Limits struct {
	MaxWorkers   int                      // running tasks in all; at 0 none may start
	AccountSlots func(account string) int // running tasks of one account; 0 or a nil func: no limit
}

func (m Limits) slots(a *account) int {
	if m.AccountSlots == nil {
		return 0
	}
	return m.AccountSlots(a.name)
}

// full reports whether the account has no slot left.
func (a *account) full(lim Limits) bool {
	slots := lim.slots(a)
	return slots > 0 && a.running+a.chosen >= slots
}

// open reports whether a task of the account may start now.
func (a *account) open(now time.Time, lim Limits) bool {
	return !a.hold && !a.coolUntil.After(now) && !a.full(lim)
}

// Ready gives the tasks to start now, the most urgent first: at most one of each
// lane, and no more than the limits leave room for. It changes nothing; until the
// caller has appended that they run, it gives the same ones again. A call costs
// as much as has changed since the last one, and nothing while all workers are
// busy.
func (s *State) Ready(now time.Time, lim Limits) []Task {
	free := lim.MaxWorkers - len(s.running)
	if s.dispatch.paused || free <= 0 {
		return nil
	}
	s.refresh(now)
	var tasks []Task
	var tried []*lane
	used := s.usedSessions()
	for len(tasks) < free {
		a := s.mostUrgent(now, lim)
		if a == nil {
			break
		}
		ln := heap.Pop(&a.ready).(*lane)
		tried = append(tried, ln)
		if used.take(s.sessionsOf(&ln.head.Task)) {
			a.chosen++
			tasks = append(tasks, s.view(ln.head))
		}
	}
	for _, ln := range tried {
		heap.Push(&ln.in.ready, ln)
		ln.in.chosen = 0
	}
	return tasks
}

// Unwilling gives the queued tasks, oldest first, that were told not to wait for
// rate limits and whose account cools down.
func (s *State) Unwilling(now time.Time) []Task {
	cooling := false
	for _, a := range s.accounts {
		cooling = cooling || a.coolUntil.After(now)
	}
	if !cooling {
		return nil
	}
	var found []*live
	for _, l := range s.live {
		if l.Status == Queued && !l.Hold && l.maxLimitWait() == 0 && s.Account(l.AccountName()).CoolUntil.After(now) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *live) int { return cmp.Compare(a.n, b.n) })
	tasks := make([]Task, len(found))
	for i, l := range found {
		tasks[i] = s.view(l)
	}
	return tasks
}

// maxLimitWait gives how long the task waits for rate limits; -1 if it does not say.
func (l *live) maxLimitWait() time.Duration {
	d, err := time.ParseDuration(l.MaxLimitWait)
	if err != nil {
		return -1
	}
	return d
}

// mostUrgent gives the account with the most urgent head among those that may
// start a task.
func (s *State) mostUrgent(now time.Time, lim Limits) *account {
	var best *account
	for _, a := range s.accounts {
		if len(a.ready) > 0 && (best == nil || a.ready[0].before(best.ready[0])) && a.open(now, lim) {
			best = a
		}
	}
	return best
}

// sessionName names a conversation: stint's session with agent "", an agent's own
// with its name. Two runs must not be in one at the same time.
type sessionName struct{ agent, id string }

type sessionSet map[sessionName]*live

// sessionsOf gives the conversations that a task goes on with; an id of "" is none.
func (s *State) sessionsOf(t *Task) [2]sessionName {
	return [2]sessionName{{"", t.SessionID}, {t.Agent, s.native(t)}}
}

// usedSessions gives the conversations that the running tasks are in.
func (s *State) usedSessions() sessionSet {
	used := sessionSet{}
	for _, l := range s.running {
		for _, name := range s.sessionsOf(&l.Task) {
			used[name] = l
		}
	}
	return used
}

// take adds the conversations of a task, and reports whether all were free. If
// not, none is added.
func (u sessionSet) take(names [2]sessionName) bool {
	for _, name := range names {
		if _, used := u[name]; used && name.id != "" {
			return false
		}
	}
	for _, name := range names {
		u[name] = nil
	}
	return true
}

// NextWake gives the earliest time after now at which Ready may give more by time
// alone: a task's notBefore, or the end of a cool-down. Zero means never.
func (s *State) NextWake(now time.Time) time.Time {
	var t time.Time
	if s.dispatch.paused {
		return t
	}
	s.refresh(now)
	if w := s.plan.wakes; len(w) > 0 {
		t = w[0].wake
	}
	for _, a := range s.accounts {
		if len(a.ready) > 0 && !a.hold && a.coolUntil.After(now) {
			t = earlier(t, a.coolUntil)
		}
	}
	return t
}
