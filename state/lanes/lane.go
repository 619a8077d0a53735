package lanes

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"stint/state"
	"stint/state/heap"
	"stint/state/table"
)

// A lane is the serial queue of one session key. It exists while a task is queued or running in it.
type lane struct {
	key     string
	queue   []*Item // the queued tasks, in order
	soonest *Item   // of those that are put off, the one whose time comes first; nil: all of them are on hold
	off     uint32  // how many are put off: the first of the queue that are on hold or before their time
	busy    uint32  // tasks that run, or may do so still; more than one only if the records say so

	// What the last refresh found. It holds until the lane is touched, or until its time in plan.wakes has come.
	touched  bool
	rank     uint8    // of head, as it stands in the heap
	age      uint32   // of head, as it stands in the heap
	readyAt  uint32   // place in the account's heap, plus 1
	backedAt uint32   // place in the heap of those with a fallback, plus 1; 0: it is not there
	wakeAt   uint32   // place in plan.wakes, plus 1
	head     *Item    // to start now, as far as the lane goes; nil: none
	in       *account // which head wants, or nil
}

// An account is one set of credentials: what the control records say of it, and the tasks that use it or want to.
type account struct {
	state.Account
	running int
	waiting int  // queued tasks that are not on hold themselves
	closed  bool // by what is configured for it, as Ready has found it
	noSpare bool // for spare tasks, likewise

	ready  heap.Heap[*lane] // the lanes whose head wants this account, higher priority first, then age
	backed heap.Heap[*lane] // those of them whose head names a fallback
}

// plan holds what Ready and NextWake know from the last time. Records only touch
// lanes; so a replay costs nothing here, and a round costs as much as changed.
type plan struct {
	now      time.Time // of the last refresh
	touched  []*lane
	accounts bool             // what the controls say of an account has changed
	wakes    heap.Heap[timer] // when to look at lanes again: the head may change by time alone
}

type timer struct {
	*lane
	at time.Time
}

// before reports whether the head of x goes before the head of y.
func (x *lane) before(y *lane) bool {
	return x.rank > y.rank || x.rank == y.rank && x.age < y.age
}

// inLane compares two tasks of a lane: explicit order first, then age.
func inLane(a, b *Item) int { return byOrder(a.Order, b.Order, a.N, b.N) }

// byOrder is inLane for tasks of which only order and age are known.
func byOrder(a, b int64, ageA, ageB uint32) int {
	switch {
	case a == b:
		return cmp.Compare(ageA, ageB)
	case a == 0:
		return 1
	case b == 0:
		return -1
	}
	return cmp.Compare(a, b)
}

// leaveLane takes l out of its lane, and out of what is in use.
func (s *Queues) leaveLane(l *Item) {
	ln := l.lane
	if ln == nil {
		return
	}
	s.touch(ln)
	l.lane = nil
	if l.is(state.Running) {
		ln.busy--
		l.acct.running--
		delete(s.running, l.N)
		return
	}
	delete(s.bare, l.N)
	if l.Hold {
		s.held--
	} else {
		l.acct.waiting--
	}
	if l.orphaned {
		ln.busy--
		delete(s.orphans, l.N)
	}
	i, _ := slices.BinarySearchFunc(ln.queue, l, inLane)
	if ln.changed(i); i == 0 && len(ln.queue) > shortQueue {
		ln.queue[0], ln.queue = nil, ln.queue[1:]
	} else {
		ln.queue = slices.Delete(ln.queue, i, i+1)
	}
}

// shortQueue is the length up to which a queue is moved up when its head leaves; of a longer one the beginning is cut off.
const shortQueue = 64

// joinLane puts l where its status, lane and order say; old is the lane that it was in before.
func (s *Queues) joinLane(l *Item, t *state.Folded, old *lane) {
	l.acct = nil
	if waits(t.Status) {
		ln, key := old, t.Lane()
		if ln == nil || ln.key != key {
			ln = s.lanes[key]
		}
		if ln == nil {
			ln = s.idle.Take()
			ln.key, s.lanes[key] = key, ln
		}
		l.lane, l.acct = ln, s.account(t.UsedAccount())
		s.touch(ln)
		if t.Status == state.Running {
			ln.busy++
			l.acct.running++
			s.running[l.N] = l
		} else {
			s.enqueue(l)
		}
	}
	if old != nil && old.busy == 0 && len(old.queue) == 0 {
		// The lane is touched: the next refresh takes it out of the heaps, whoever uses it by then.
		delete(s.lanes, old.key)
		old.key = ""
		s.idle.Give(old)
	}
}

// enqueue puts a queued task into its lane.
func (s *Queues) enqueue(l *Item) {
	ln := l.lane
	if l.homeless {
		s.bare[l.N] = l
	}
	if l.Hold {
		s.held++
	} else {
		l.acct.waiting++
	}
	if l.orphaned {
		ln.busy++
		s.orphans[l.N] = l
	}
	i := len(ln.queue)
	if i == 1 && ln.queue[0].current {
		s.hold(ln.queue[0], nil)
	}
	if i > 0 && inLane(ln.queue[i-1], l) > 0 {
		i, _ = slices.BinarySearchFunc(ln.queue, l, inLane)
	}
	ln.changed(i)
	ln.queue = slices.Insert(ln.queue, i, l)
}

// changed notes that another task has that place in the queue.
func (x *lane) changed(i int) {
	if i < int(x.off) {
		x.off, x.soonest = 0, nil
	}
}

// putOff counts the first tasks of the queue that are on hold or before their time, and returns when the first of these
// is due. They may be many and stay for long: each is looked at once.
func (x *lane) putOff(now time.Time) (due time.Time) {
	if x.soonest != nil && !x.soonest.NotBefore.After(now) {
		x.off, x.soonest = 0, nil
	}
	for _, l := range x.queue[x.off:] {
		if !l.Hold && !l.isPlanned(now) {
			break
		}
		if x.off++; !l.Hold && (x.soonest == nil || l.NotBefore.Before(x.soonest.NotBefore)) {
			x.soonest = l
		}
	}
	if x.soonest != nil {
		due = x.soonest.NotBefore
	}
	return due
}

// isPlanned reports whether l is before a time that its user named: it has not come to its turn yet.
func (l *Item) isPlanned(now time.Time) bool { return !l.isTried && l.NotBefore.After(now) }

// touch notes that the lane must be looked at again.
func (s *Queues) touch(ln *lane) {
	if !ln.touched {
		ln.touched = true
		s.plan.touched = append(s.plan.touched, ln)
	}
}

// refresh looks again at every lane that was touched, or whose time has come.
func (s *Queues) refresh(now time.Time) {
	p := &s.plan
	if now.Before(p.now) { // a clock was set back: nothing is known any more
		for _, ln := range s.lanes {
			s.touch(ln)
		}
	}
	p.now = now
	for len(p.wakes.List) > 0 && !p.wakes.List[0].at.After(now) {
		s.touch(p.wakes.Pop().lane)
	}
	if p.accounts {
		p.accounts = false
		for _, ln := range s.lanes {
			if ln.excludes() {
				s.touch(ln)
			}
		}
	}
	for _, ln := range p.touched {
		ln.touched = false
		s.look(ln, now)
	}
	clear(p.touched)
	if p.touched = p.touched[:0]; cap(p.touched) > table.MaxSpare {
		p.touched = nil
	}
}

// look finds the head of a lane and puts the lane into the heaps where it belongs.
func (s *Queues) look(ln *lane, now time.Time) {
	if ln.in != nil {
		ln.in.ready.Remove(ln)
		ln.in.backed.Remove(ln)
		ln.in = nil
	}
	s.plan.wakes.Remove(timer{lane: ln})
	head, at := s.headOf(ln, now)
	if ln.head = head; head != nil {
		ln.rank, ln.age, ln.in = head.level, head.N, head.acct
		ln.in.ready.Push(ln)
		if head.backed {
			ln.in.backed.Push(ln)
		}
	}
	if !at.IsZero() {
		s.plan.wakes.Push(timer{ln, at})
	}
}

// maxPassed is how many waiting tasks the lane of a directory is searched behind for one that can start: a long queue that waits
// for one account must not cost its length each time. Those on hold, or before their time, do not count: they may stay for long.
const maxPassed = 256

// excludes reports whether the lane only keeps its tasks from running at the same time, as that of a
// directory does: one that waits is passed over. In any other lane it blocks those behind it.
func (x *lane) excludes() bool { return strings.HasPrefix(x.key, state.LanePrefixDir) }

// headOf returns the task of a lane that may start, and when that may change by time alone. If all that a
// lane of a directory has waits for accounts, it is the first one of these.
func (s *Queues) headOf(ln *lane, now time.Time) (head *Item, wake time.Time) {
	if ln.busy > 0 {
		return nil, wake
	}
	wake = ln.putOff(now)
	for l, w := range s.turns(ln, int(ln.off), now) {
		if !w.any || w.account && !ln.excludes() { // the account is looked at when the heads are compared
			return l, wake
		}
		wake = earlier(wake, w.until)
		switch {
		case w.planned:
		case !ln.excludes():
			return nil, wake
		case w.account && head == nil:
			head = l
		}
	}
	return head, wake
}

// Before returns the task that starts before l, which is not on hold, in its lane; "" if
// there is none. In the long lane of a directory only the number of others may be known.
func (s *Queues) Before(l *Item, now time.Time) (id string, others int) {
	for b, w := range s.turns(l.lane, 0, now) {
		switch {
		case b == l && w.behind != nil:
			return s.ID(w.behind.N), 0
		case b == l:
			return "", 0
		case !w.any, !w.planned && !l.lane.excludes():
			return s.ID(b.N), 0
		}
	}
	return "", maxPassed
}

// turns yields the tasks of a lane that are not on hold, in order, with what keeps each from starting, but for the first ones
// of its queue. In the lane of a directory, what goes on with the session of one that waits is behind it, and the end of a
// long queue is left out.
func (s *Queues) turns(ln *lane, first int, now time.Time) iter.Seq2[*Item, wait] {
	return func(yield func(*Item, wait) bool) {
		var passed []*Item // those that wait
		for _, l := range ln.queue[first:] {
			if len(passed) == maxPassed && ln.excludes() {
				return
			}
			if l.Hold {
				continue
			}
			w := wait{any: true}
			if k := slices.IndexFunc(passed, func(b *Item) bool { return l.sess != nil && b.sess == l.sess }); k >= 0 {
				w.behind = passed[k]
			} else if w = s.waitOf(l, now); w.any && !w.planned {
				passed = append(passed, l)
			}
			if !yield(l, w) {
				return
			}
		}
	}
}

// A wait is what keeps a task from starting when its lane is free.
type wait struct {
	any     bool
	behind  *Item     // one of its session
	until   time.Time // when it may end by time alone; zero: not so
	planned bool      // by a time that the user named
	account bool      // its account alone, which is on hold or cools down
}

// waitOf returns what keeps l from starting.
func (s *Queues) waitOf(l *Item, now time.Time) wait {
	if l.NotBefore.After(now) {
		return wait{any: true, until: l.NotBefore, planned: l.isPlanned(now)}
	}
	if _, _, open := s.OpenAfter(s.afterOf(l), l.afterAny); open {
		return wait{any: true}
	}
	a := l.acct
	switch {
	case a.Hold, a.Disabled, a.closed, l.spare && a.noSpare:
		return wait{any: true, account: true}
	case a.CoolUntil.After(now):
		return wait{any: true, account: true, until: a.CoolUntil}
	}
	return wait{}
}

// OpenAfter returns the first task of a list that a task comes after, and that is not done,
// or, with whatever, has not ended: its id and its status, "" if no record names it.
func (s *Queues) OpenAfter(list []string, whatever bool) (id string, st state.Status, open bool) {
	return s.first(list, func(st state.Status) bool { return st != state.Done && !(whatever && st.Terminal()) })
}

// first returns the first task of a list for whose status is holds, which is "" if no record names the task.
func (s *Queues) first(list []string, is func(state.Status) bool) (id string, st state.Status, found bool) {
	for _, id := range list {
		st = ""
		if n := s.Number(id); n != 0 {
			st = s.Entries.At(n).Status()
		}
		if is(st) {
			return id, st, true
		}
	}
	return "", "", false
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// QueueOf returns the tasks that wait in the lane of that key, in its order.
func (s *Queues) QueueOf(key string) (list []uint32) {
	if ln := s.lanes[key]; ln != nil {
		for _, l := range ln.queue {
			list = append(list, l.N)
		}
	}
	return list
}
