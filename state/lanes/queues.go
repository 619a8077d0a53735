package lanes

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"stint/state"
	"stint/state/heap"
	"stint/state/table"
)

// waits reports whether the task waits for its turn.
func (l *Item) waits() bool { return l.is(state.Queued) && !l.Hold }

// Held returns the number of queued tasks that are on hold.
func (s *Queues) Held() int { return s.held }

// ForPerson returns the number of queued tasks that wait for a person: they are on hold, or their account is, or it is disabled.
func (s *Queues) ForPerson() int {
	n := s.held
	for _, a := range s.accounts {
		if a.Disabled || a.Hold && !a.IsMissing() {
			n += a.waiting
		}
	}
	return n
}

// RunningAs returns the id of the task whose present run that is; ok is false if no task runs so.
func (s *Queues) RunningAs(run string) (id string, ok bool) {
	for _, l := range s.running {
		if run != "" && s.Whole(l).RunID == run {
			return s.ID(l.N), true
		}
	}
	return "", false
}

// OpenIDs returns the ids of the tasks that have not ended, oldest first.
func (s *Queues) OpenIDs() []string { return s.idsOf(maps.Values(s.live)) }

// View returns a task as it is in memory, without its texts.
func (s *Queues) View(l *Item) state.Task {
	var t state.Folded
	s.WholeInto(&l.Body, &t)
	t.ID, t.Title = s.ID(l.N), s.TitleOf(l.N)
	return t.Task
}

// Lane returns the tasks that run or wait in the lane of that key, in its order,
// without their texts: a running one stands where it would come back to.
func (s *Queues) Lane(key string) []state.Task {
	return s.views(s.allOf(s.lanes[key]))
}

// allOf returns the tasks that run or wait in a lane, or in none, in its order.
func (s *Queues) allOf(ln *lane) (list []*Item) {
	if ln == nil {
		return nil
	}
	list = slices.Clone(ln.queue)
	for _, r := range s.running {
		if r.lane == ln {
			i, _ := slices.BinarySearchFunc(list, r, inLane)
			list = slices.Insert(list, i, r)
		}
	}
	return list
}

// views returns tasks as they are in memory.
func (s *Queues) views(list []*Item) []state.Task {
	tasks := make([]state.Task, len(list))
	for i, l := range list {
		tasks[i] = s.View(l)
	}
	return tasks
}

// idsOf returns the ids of tasks, oldest first.
func (s *Queues) idsOf(list iter.Seq[*Item]) []string {
	ids := []string{}
	for _, l := range slices.SortedFunc(list, byAge) {
		ids = append(ids, s.ID(l.N))
	}
	return ids
}

// byAge compares two tasks: the one that came first is before the other.
func byAge(a, b *Item) int { return cmp.Compare(a.N, b.N) }

// Item is a task that has not ended.
type Item struct {
	row
	table.Body
	dueAt            uint32   // place in Queues.due, plus 1
	implies, current bool     // it implies its session, which is the current one of its place
	lane             *lane    // where it is queued or running, or nil
	acct             *account // whose slot it uses while it is running, or will need; nil if it has no lane
	sess             *session // that it uses, or nil if there is none or the task implies it
	since            int64    // when it was queued, or last released, as Entry.Updated is; 0 if no record says
}

// row is what dispatch looks at of each live task, under the names that state.Task has for it.
type row struct {
	status    uint8 // in state.Statuses
	level     uint8 // see state.Task.Rank
	Hold      bool
	isTried   bool // see state.Task.Tried
	orphaned  bool // see state.Task.Orphaned
	homeless  bool // it has no workspace of its own
	backed    bool // it names a fallback
	after     bool // it comes after others
	afterAny  bool // its afterPolicy is any
	named     bool // it names a native session
	spare     bool // see state.Task.Spare
	NotBefore time.Time
	Order     int64
}

func rowOf(t *state.Folded) row {
	return row{
		status: t.Status.Index(), level: uint8(t.Rank()), Hold: t.Hold, isTried: t.Tried(), orphaned: t.Orphaned(), homeless: t.Workspace == "",
		backed: len(t.Fallback) > 0, after: len(t.After) > 0, afterAny: t.AfterPolicy == state.AfterAny, named: t.AgentSession != "", spare: t.Spare,
		NotBefore: t.NotBefore, Order: t.Order,
	}
}

// is reports whether the task has that status.
func (x *row) is(st state.Status) bool { return state.Statuses[x.status] == st }

// Whole returns the folded task, as it was after its last record. It is not to be changed.
func (s *Queues) Whole(l *Item) *state.Folded { return s.Tasks.Whole(&l.Body) }

// afterOf returns the ids of the tasks that the task comes after.
func (s *Queues) afterOf(l *Item) []string {
	if !l.after {
		return nil
	}
	return s.Whole(l).After
}

// queueOf returns the queue that the task names.
func (s *Queues) queueOf(l *Item) string { return s.Tags.List[s.Entries.At(l.N).Tags].Queue }

// agent returns the agent that the task names.
func (s *Queues) agent(l *Item) string { return s.Tags.List[s.Entries.At(l.N).Tags].Agent }

// Revive returns task n a place among the living; what it is comes with commit.
func (s *Queues) Revive(n uint32) *Item {
	l := s.spare.Take()
	l.N = n
	s.live[n] = l
	return l
}

// Running returns the ids of the running tasks, oldest first.
func (s *Queues) Running() []string { return s.idsOf(maps.Values(s.running)) }

// Orphaned returns the ids of the tasks that are held because their last agent may
// still be alive ([state.Task.Orphaned]), oldest first.
func (s *Queues) Orphaned() []string { return s.idsOf(maps.Values(s.orphans)) }

// Set makes next the content of a live task, which was old; changed reports whether its
// status is another one. A task that has ended is live no more.
func (s *Queues) Set(l *Item, old, next *state.Folded, changed bool) {
	s.Note(l.N, next)
	left := l.lane
	s.hold(l, old)
	s.leaveLane(l)
	s.due.Remove(l)
	native, after, waited := old.AgentSession, old.After, l.waits()
	if l.IsEmpty() {
		native, after = "", nil // it had ended: neither counts any more
	}
	if l.row = rowOf(next); !waited {
		l.since = table.UnixMilli(cmp.Or(next.UpdatedAt, next.CreatedAt))
	}
	s.after.noteAfter(l.N, after, next.After)
	s.joinLane(l, next, left)
	if l.waits() && l.since != 0 {
		s.due.Push(l)
	}
	s.useSession(l, next, native)
	s.noteHome(l, next)
	if l.is(state.Queued) && (next.MaxLimitWait != "" || !next.LimitSince.IsZero()) {
		s.hasty[l.N] = l
	} else {
		delete(s.hasty, l.N)
	}
	if l.is(state.Queued) && l.after {
		s.after.maybe[l.N] = true
	}
	if next.RunID != "" && next.AgentSession != "" && !s.ran[next.Agent] {
		s.ran[next.Agent] = true
	}
	if changed && len(s.after.of) > 0 { // the lanes of those that come after it are looked at again
		for _, n := range s.after.of[s.ID(l.N)] {
			if ln := s.live[n].lane; ln != nil {
				s.touch(ln)
			}
			if next.Status.Terminal() && next.Status != state.Done {
				s.after.maybe[n] = true
			}
		}
	}
	if next.Status.Terminal() {
		s.after.noteAfter(l.N, next.After, nil)
		s.leaveSession(l, true)
		delete(s.after.maybe, l.N)
		delete(s.live, l.N)
		s.LetGo(&l.Body)
		*l = Item{}
		s.spare.Give(l)
		return
	}
	s.Put(&l.Body, next)
}

// Queues holds the tasks that have not ended, and a few words of each that has.
// Whoever folds the records feeds it; it decides what may run.
type Queues struct {
	table.Tasks

	live    map[uint32]*Item
	running map[uint32]*Item
	orphans map[uint32]*Item // see state.Task.Orphaned
	lanes   map[string]*lane
	held    int              // queued ones on hold
	due     heap.Heap[*Item] // the other queued ones whose records give a time, by that from which on they wait for their turn
	after   dependants
	hasty   map[uint32]*Item // queued ones that may not wait for a cool-down to end

	controls map[string]state.Control // that say anything, by the ids of their records
	accounts map[string]*account
	ran      map[string]bool // agents of which a run has begun a session
	sessions sessions
	homes    map[uint32]home  // by session key, as in Entry.Key
	bare     map[uint32]*Item // queued ones without a workspace of their own
	plan     plan

	TitleOf func(n uint32) string // of a live task, as far as it is known

	// For speed alone.
	spare table.Spares[Item]
	idle  table.Spares[lane]
}

// NewQueues returns queues without a task. Their TitleOf is to be set.
func NewQueues() Queues {
	return Queues{
		Tasks:    table.New(),
		live:     map[uint32]*Item{},
		running:  map[uint32]*Item{},
		orphans:  map[uint32]*Item{},
		after:    dependants{of: map[string][]uint32{}, maybe: map[uint32]bool{}},
		hasty:    map[uint32]*Item{},
		lanes:    map[string]*lane{},
		controls: map[string]state.Control{},
		accounts: map[string]*account{},
		ran:      map[string]bool{},
		sessions: sessions{byID: map[string]*session{}, seats: map[place]*session{}, implied: map[[16]byte]uint32{}},
		homes:    map[uint32]home{},
		bare:     map[uint32]*Item{},
		plan:     plan{wakes: heap.Heap[timer]{Before: func(a, b timer) bool { return a.at.Before(b.at) }, Place: func(t timer) *uint32 { return &t.wakeAt }}},
		due:      heap.Heap[*Item]{Before: func(a, b *Item) bool { return a.due().Before(b.due()) }, Place: func(l *Item) *uint32 { return &l.dueAt }},
	}
}

// Peek returns what is in memory of a task, and reads nothing. Of one that has not ended that is all but its texts; of one that
// has ended only the id, status, session key, time of the last record, and what lists are filtered by.
func (s *Queues) Peek(id string) (state.Task, bool) {
	n := s.Number(id)
	if n == 0 {
		return state.Task{}, false
	}
	return s.PeekAt(n), true
}

// PeekAt is Peek of the task with that number.
func (s *Queues) PeekAt(n uint32) state.Task {
	if l := s.live[n]; l != nil {
		return s.View(l)
	}
	e := s.Entries.At(n)
	tag := s.Tags.List[e.Tags]
	return state.Task{
		ID: s.ID(n), Status: e.Status(), SessionKey: s.KeyOf(n, e), UpdatedAt: e.UpdatedAt(),
		Label: tag.Label, TenantID: tag.Tenant, Queue: tag.Queue, Agent: tag.Agent,
	}
}

// Dumped returns what the records made of lanes, sessions and controls, as text can say it:
// two states of the same journal return the same.
func (s *Queues) Dumped() map[string]any {
	lanes := map[string][]string{}
	for key, ln := range s.lanes {
		lanes[key] = []string{}
		for _, l := range ln.queue {
			lanes[key] = append(lanes[key], s.ID(l.N))
		}
	}
	running := map[string]int{} // by account
	for name, a := range s.accounts {
		if a.running > 0 {
			running[name] = a.running
		}
	}
	return map[string]any{"lanes": lanes, "sessions": s.CarriedSessions(), "controls": s.ControlRecords(), "using": running, "held": s.held}
}

// Live returns the live task of that number; nil if it has ended.
func (s *Queues) Live(n uint32) *Item { return s.live[n] }
