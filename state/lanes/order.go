package lanes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"stint/state"
	"stint/state/table"
)

// A CycleError says that tasks would wait for each other for ever.
type CycleError struct {
	ID   string // of the task with which Text begins
	Text string // says how
}

// Error returns the sentence.
func (e *CycleError) Error() string { return "it would wait for itself: " + e.Text }

// CheckOrder reports whether tasks can be as they are given here, new ones or others than now: nothing that waits may come, by
// after and by the order of lanes, behind itself. Of the tasks their ids, Statuses, lanes, sessions, orders and what they come
// after count; those that are new are the youngest, in the order given. Held tasks and those of a later time are taken as if
// they waited in their places. The error is a [*CycleError].
func (s *Queues) CheckOrder(tasks []state.Task) error {
	if cycles := s.RefuseCycles(tasks, nil); len(cycles) > 0 {
		return cycles[0]
	}
	return nil
}

// RefuseCycles returns an error for each cycle that tasks make, as they are given here (see [Queues.CheckOrder]). Of each cycle
// the task of the highest rank is refused, with which the error begins: the search continues without it.
func (s *Queues) RefuseCycles(tasks []state.Task, rank func(id string) int) []*CycleError {
	o := ordering{queues: s, rank: rank, given: map[string]*state.Task{}, seen: map[string]int{}}
	for i := range tasks {
		o.given[tasks[i].ID] = &tasks[i]
	}
	if !o.mayCycle(tasks) || len(tasks) == 1 && o.isLast(&tasks[0]) {
		return nil
	}
	if o.before == nil {
		o.place(tasks)
	}
	for i := range tasks {
		if o.search(tasks[i].ID); rank == nil && len(o.cycles) > 0 {
			break
		}
	}
	return o.cycles
}

// An ordering is who would wait for whom.
type ordering struct {
	queues *Queues
	given  map[string]*state.Task
	before map[string]string   // of the tasks in the lanes that would change: the one before; "": none
	path   []visit             // of the search
	seen   map[string]int      // places on the path; -1: searched already
	rank   func(id string) int // of a given task, at least 0; nil: the first cycle ends the search
	cycles []*CycleError
}

// mayCycle reports whether there can be a cycle at all. Behind a new task without
// an explicit order there is nobody, unless its id was named before it came.
func (o *ordering) mayCycle(tasks []state.Task) bool {
	for i := range tasks {
		t := &tasks[i]
		known := !o.isNew(t.ID)
		if (known || t.Order != 0 || len(o.queues.after.of[t.ID]) > 0) && (len(o.queues.after.of) > 0 || len(t.After) > 0) {
			return true
		}
		if slices.ContainsFunc(t.After, func(id string) bool { return o.given[id] != nil }) {
			return true
		}
	}
	return false
}

// isLast places one task without a look at all of its lane, where it stays in its place
// or comes behind all others, and reports whether nobody waits for it there.
func (o *ordering) isLast(t *state.Task) bool {
	s := o.queues
	n := s.Number(t.ID)
	l := s.live[n]
	if l != nil && l.lane != nil {
		if l.lane.key == t.Lane() && l.Order == t.Order && s.SessionID(&l.Body) == t.SessionID {
			o.before = map[string]string{t.ID: s.beforeInLane(l)}
		}
		return false
	}
	last := (*Item)(nil)
	n = cmp.Or(n, s.Entries.Len())
	if ln := s.lanes[t.Lane()]; ln != nil && chainOf(t.Lane(), t.SessionID, t.ID) != t.ID {
		if ln.excludes() {
			return false // others of its session are anywhere in it
		}
		for _, r := range s.running {
			if r.lane == ln && (last == nil || inLane(last, r) < 0) {
				last = r
			}
		}
		if k := len(ln.queue) - 1; k >= 0 && (last == nil || inLane(last, ln.queue[k]) < 0) {
			last = ln.queue[k]
		}
	}
	o.before = map[string]string{t.ID: ""}
	if last != nil {
		if byOrder(last.Order, t.Order, last.N, n) > 0 {
			o.before = nil
			return false
		}
		o.before[t.ID] = s.ID(last.N)
	}
	return len(s.after.of[t.ID]) == 0 && !slices.Contains(t.After, t.ID)
}

func (o *ordering) isNew(id string) bool {
	n := o.queues.Number(id)
	return n == 0 || o.queues.Entries.At(n).Kept != table.InJournal
}

// A slot is a task's place in a lane.
type slot struct {
	id    string
	chain string // tasks of one lane wait for those before them with the same one
	order int64
	age   uint32
}

// chainOf returns the chain of a task in a lane: in that of a directory, which only
// excludes, it waits for those before it in its session alone.
func chainOf(lane, session, id string) string {
	if !strings.HasPrefix(lane, state.LanePrefixDir) {
		return ""
	}
	return cmp.Or(session, id)
}

// place makes the lanes anew that the given tasks are in now, or would be in.
func (o *ordering) place(tasks []state.Task) {
	s := o.queues
	lanes := map[string][]slot{}
	for i := range tasks {
		t := &tasks[i]
		n := s.Number(t.ID)
		if l := s.live[n]; n != 0 && l != nil && l.lane != nil {
			lanes[l.lane.key] = nil
		}
		lanes[t.Lane()] = nil
	}
	for key := range lanes {
		for _, l := range s.allOf(s.lanes[key]) {
			if id := s.ID(l.N); o.given[id] == nil {
				lanes[key] = append(lanes[key], slot{id, chainOf(key, s.SessionID(&l.Body), id), l.Order, l.N})
			}
		}
	}
	for i := range tasks {
		t := &tasks[i]
		age := s.Number(t.ID)
		if o.isNew(t.ID) {
			age = s.Entries.Len() + uint32(i)
		}
		if waits(t.Status) {
			lanes[t.Lane()] = append(lanes[t.Lane()], slot{t.ID, chainOf(t.Lane(), t.SessionID, t.ID), t.Order, age})
		}
	}
	o.before = map[string]string{}
	for _, list := range lanes {
		slices.SortFunc(list, func(a, b slot) int { return byOrder(a.order, b.order, a.age, b.age) })
		last := map[string]string{}
		for _, x := range list {
			o.before[x.id], last[x.chain] = last[x.chain], x.id
		}
	}
}

// waits reports whether a task of that status has a place in its lane. A running one may come back to it.
func waits(st state.Status) bool { return st == state.Queued || st == state.Running }

// visit puts a task on the path, with the tasks that it waits for: those that it comes after, then the one
// before it in its lane. What has ended, or is not there, waits for nothing.
func (o *ordering) visit(id string) {
	o.seen[id] = len(o.path)
	v := visit{id: id, rank: -1, higher: len(o.path) - 1}
	t, l := o.given[id], o.queues.live[o.queues.Number(id)]
	switch {
	case t != nil && o.rank != nil:
		v.rank = o.rank(id)
	case t != nil:
		v.rank = math.MaxInt - len(o.path) // the first one
	}
	for v.higher >= 0 && o.path[v.higher].rank <= v.rank {
		v.higher = o.path[v.higher].higher
	}
	if t != nil && waits(t.Status) || t == nil && l != nil && waits(state.Statuses[l.status]) {
		before, placed := o.before[id]
		if !placed {
			before = o.queues.beforeInLane(l)
		}
		if t != nil {
			v.rest = t.After
		} else {
			v.rest = o.queues.afterOf(l)
		}
		if v.behind = before != ""; v.behind {
			v.rest = append(slices.Clip(v.rest), before)
		}
	}
	o.path = append(o.path, v)
}

// beforeInLane returns the id of the task that is before l in its lane, or would be if
// the running ones came back; "" if there is none.
func (s *Queues) beforeInLane(l *Item) string {
	if l.lane.excludes() && (l.sess == nil || l.sess.uses < 2) {
		return "" // there is no other task of its session
	}
	follows := func(b *Item) bool { return !l.lane.excludes() || b.sess == l.sess }
	i, _ := slices.BinarySearchFunc(l.lane.queue, l, inLane)
	var before *Item
	for _, b := range slices.Backward(l.lane.queue[:i]) {
		if follows(b) {
			before = b
			break
		}
	}
	for _, r := range s.running {
		if r.lane == l.lane && follows(r) && inLane(r, l) < 0 && (before == nil || inLane(before, r) < 0) {
			before = r
		}
	}
	if before == nil {
		return ""
	}
	return s.ID(before.N)
}

// A visit is a task on the path of the search.
type visit struct {
	id     string
	rest   []string // the tasks that it waits for and that are still to be looked at
	behind bool     // the last one of these is the one before it in its lane
	rank   int      // -1: the task is not given
	higher int      // where on the path the last task before it with a higher rank is; -1: nowhere
}

// search looks for cycles that one can come to from a task, and that have a given
// one in them. A path may be as long as a queue, so it is no recursion.
func (o *ordering) search(from string) {
	if _, seen := o.seen[from]; seen {
		return
	}
	for o.visit(from); len(o.path) > 0; {
		v := &o.path[len(o.path)-1]
		if len(v.rest) == 0 {
			o.leave()
			continue
		}
		next := v.rest[0]
		v.rest = v.rest[1:]
		first, seen := o.seen[next]
		switch {
		case !seen:
			o.visit(next)
		case first >= 0: // a cycle; of what is above the refused task, nothing is looked at twice
			i := len(o.path) - 1
			for o.path[i].higher >= first {
				i = o.path[i].higher
			}
			if o.path[i].rank < 0 {
				continue
			}
			if o.found(first, i); o.rank == nil {
				return
			}
			for len(o.path) > i {
				o.leave()
			}
		}
	}
}

func (o *ordering) leave() {
	last := len(o.path) - 1
	o.seen[o.path[last].id] = -1
	o.path = o.path[:last]
}

// maxSteps bounds how much of a cycle is described.
const maxSteps = 6

// found notes the cycle from there to the end of the path, beginning with the task at i.
func (o *ordering) found(first, i int) {
	e, size := &CycleError{ID: o.path[i].id}, len(o.path)-first
	var list []string
	for range min(size, maxSteps) {
		v := o.path[i]
		if i++; i == len(o.path) {
			i = first
		}
		if next := o.path[i].id; !v.behind || len(v.rest) > 0 {
			list = append(list, v.id+" comes after "+next)
		} else {
			key := ""
			if t := o.given[v.id]; t != nil {
				key = t.Lane()
			} else {
				key = o.queues.live[o.queues.Number(v.id)].lane.key
			}
			list = append(list, fmt.Sprintf("%s is behind %s in %s", v.id, next, state.LaneName(key)))
		}
	}
	if size > maxSteps {
		list = append(list, fmt.Sprintf("and so on over %d tasks", size))
	}
	e.Text = strings.Join(list, ", ")
	o.cycles = append(o.cycles, e)
}

// dependants knows which live tasks come after which, and which of them may come after one that has ended badly.
type dependants struct {
	of    map[string][]uint32 // id of a task, which need not be there, to those that come after it, oldest first
	maybe map[uint32]bool     // to be looked at by BlockedByDependency
}

// noteAfter notes what task n comes after, which was the list before.
func (d *dependants) noteAfter(n uint32, before, now []string) {
	if slices.Equal(before, now) {
		return
	}
	for _, id := range before {
		tasks := d.of[id]
		if i, there := slices.BinarySearch(tasks, n); there && len(tasks) == 1 {
			delete(d.of, id)
		} else if there {
			d.of[id] = slices.Delete(tasks, i, i+1)
		}
	}
	for _, id := range now {
		if i, there := slices.BinarySearch(d.of[id], n); !there {
			d.of[id] = slices.Insert(d.of[id], i, n)
		}
	}
}

// BlockedByDependency returns the queued tasks that come after one that has ended otherwise than done, or after another of the
// list, which is then before them. They can never run. Those whose afterPolicy is any are not among them, nor are those on
// hold: a person looks after them. A call costs nothing when nothing has changed.
func (s *Queues) BlockedByDependency() []state.Task {
	var list []*Item
	for n := range s.after.maybe {
		l, bad := s.live[n], false
		if l != nil && l.is(state.Queued) {
			_, _, bad = s.EndedBadly(s.afterOf(l), l.afterAny)
		}
		switch {
		case !bad:
			delete(s.after.maybe, n)
		case !l.Hold:
			list = append(list, l)
		}
	}
	slices.SortFunc(list, byAge)
	seen := map[uint32]bool{}
	for _, l := range list {
		seen[l.N] = true
	}
	for i := 0; i < len(list); i++ {
		for _, n := range s.after.of[s.ID(list[i].N)] { // they would fail with it
			if l := s.live[n]; !seen[n] && l.is(state.Queued) && !l.Hold && !l.afterAny {
				seen[n] = true
				list = append(list, l)
			}
		}
	}
	return s.views(list)
}

// Dependants returns the tasks that would fail if that one did: each stands before those that it comes after.
func (s *Queues) Dependants(id string) (ids []string) {
	seen := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		for _, n := range s.after.of[id] {
			if next := s.ID(n); !seen[next] && !s.live[n].afterAny {
				seen[next] = true
				visit(next)
				ids = append(ids, next)
			}
		}
	}
	visit(id)
	return ids
}

// EndedBadly returns the first task, and its status, of a list that a task must come after, and that has ended
// otherwise than done, so that it cannot run; bad is false if there is none, and with whatever.
func (s *Queues) EndedBadly(after []string, whatever bool) (id string, st state.Status, bad bool) {
	return s.first(after, func(st state.Status) bool { return !whatever && st.Terminal() && st != state.Done })
}
