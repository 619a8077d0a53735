package lanes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stint/state"
	"stint/state/table"
)

// A CycleError says that tasks would wait for each other for ever.
type CycleError struct {
	IDs  []string // of the tasks, each waiting for the next, and the last for the first
	Text string   // says how
}

// Error returns the sentence.
func (e *CycleError) Error() string { return "it would wait for itself: " + e.Text }

// CheckOrder reports whether tasks can be as they are given here, new ones or others
// than now: nothing that waits may come, by after and by the order of lanes, behind
// itself. Of the tasks their ids, Statuses, lanes, sessions, orders and what they
// come after count; those that are new are the youngest, in the order given. Held
// tasks and those of a later time are taken as if they waited in their places. The
// error is a [*CycleError].
func (s *Queues) CheckOrder(tasks []state.Task) error {
	o := ordering{queues: s, given: map[string]*state.Task{}}
	return o.check(tasks)
}

// RefuseCycles calls refuse for each cycle that tasks make, as they are given here (see
// [Queues.CheckOrder]). It returns which task of the cycle is at fault, by its index: the
// text of the error begins with it, and the search goes on without it.
func (s *Queues) RefuseCycles(tasks []state.Task, refuse func(*CycleError) (i int)) {
	o := ordering{queues: s, given: map[string]*state.Task{}}
	o.refuse = func(e *CycleError) string {
		o.begin(e, refuse(e))
		return e.IDs[0]
	}
	_ = o.check(tasks) // it goes on behind each cycle
}

func (o *ordering) check(tasks []state.Task) error {
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
		if err := o.search(tasks[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// An ordering is who would wait for whom.
type ordering struct {
	queues *Queues
	given  map[string]*state.Task
	before map[string]string             // of the tasks in the lanes that would change: the one before; "": none
	seen   map[string]bool               // true: on the path of the search; false: searched already
	refuse func(*CycleError) (id string) // of a cycle gives the task that is not to be as given; the search goes on without it. nil: the first cycle ends the search
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
		if l.lane.key == t.Lane() && l.Order == t.Order && s.sessionID(l) == t.SessionID {
			o.before = map[string]string{t.ID: s.beforeInLane(l)}
		}
		return false
	}
	last := (*Item)(nil)
	if n == 0 {
		n = s.Entries.Len()
	}
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
		lanes[key] = o.unchanged(key)
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

// waits reports whether a task of that status has a place in its lane. A running
// one may come back to it.
func waits(st state.Status) bool { return st == state.Queued || st == state.Running }

// unchanged returns the tasks of a lane that are not among the given ones.
func (o *ordering) unchanged(key string) (list []slot) {
	s := o.queues
	ln := s.lanes[key]
	if ln == nil {
		return nil
	}
	add := func(l *Item) {
		if id := s.ID(l.N); o.given[id] == nil {
			list = append(list, slot{id, chainOf(key, s.sessionID(l), id), l.Order, l.N})
		}
	}
	for _, l := range ln.queue {
		add(l)
	}
	for _, l := range s.running {
		if l.lane == ln {
			add(l)
		}
	}
	return list
}

// stepsFrom returns the tasks that a task waits for: those that it comes after, then
// the one before it in its lane. What has ended, or is not there, waits for nothing.
func (o *ordering) stepsFrom(id string) []string {
	n := o.queues.Number(id)
	t, l := o.given[id], o.queues.live[n]
	if t == nil && l == nil || t != nil && !waits(t.Status) || t == nil && !waits(state.Statuses[l.status]) {
		return nil
	}
	steps := slices.Clone(o.after(id))
	before, placed := o.before[id]
	if !placed {
		before = o.queues.beforeInLane(l)
	}
	if before != "" {
		steps = append(steps, before)
	}
	return steps
}

// after returns the ids of the tasks that a task comes after.
func (o *ordering) after(id string) []string {
	if t := o.given[id]; t != nil {
		return t.After
	}
	n := o.queues.Number(id)
	return o.queues.afterOf(o.queues.live[n])
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

// A visit is a task on the path of the search, with those that it waits for and
// that are still to be looked at.
type visit struct {
	id   string
	rest []string
}

// search looks for a cycle that one can come to from a task, and that has a given
// one in it. A path may be as long as a queue, so it is no recursion.
func (o *ordering) search(from string) error {
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	if _, seen := o.seen[from]; seen {
		return nil
	}
	o.seen[from] = true
	path := []visit{{from, o.stepsFrom(from)}}
	for len(path) > 0 {
		v := &path[len(path)-1]
		if len(v.rest) == 0 {
			o.seen[v.id] = false
			path = path[:len(path)-1]
			continue
		}
		next := v.rest[0]
		v.rest = v.rest[1:]
		onPath, seen := o.seen[next]
		switch {
		case onPath:
			e := o.cycle(path, next)
			if e != nil && o.refuse == nil {
				return e
			}
			if e != nil {
				for from := o.refuse(e); o.seen[from]; path = path[:len(path)-1] {
					o.seen[path[len(path)-1].id] = false
				}
			}
		case !seen:
			o.seen[next] = true
			path = append(path, visit{next, o.stepsFrom(next)})
		}
	}
	return nil
}

// cycle makes the error of a path that comes back to one of its own tasks; nil if
// no given task is in it.
func (o *ordering) cycle(path []visit, back string) *CycleError {
	i := len(path) - 1
	for path[i].id != back {
		i--
	}
	e := &CycleError{}
	for _, v := range path[i:] {
		e.IDs = append(e.IDs, v.id)
	}
	// Begin with a given task: it is the one that somebody speaks of.
	start := slices.IndexFunc(e.IDs, func(id string) bool { return o.given[id] != nil })
	if start < 0 {
		return nil
	}
	o.begin(e, start)
	return e
}

// begin lets a circle begin with its i-th task.
func (o *ordering) begin(e *CycleError, i int) {
	e.IDs = slices.Concat(e.IDs[i:], e.IDs[:i])
	e.Text = o.describe(e.IDs)
}

// maxSteps bounds how much of a cycle is told.
const maxSteps = 6

// describe says how the tasks of a cycle wait for each other.
func (o *ordering) describe(ids []string) string {
	var list []string
	for i, id := range ids {
		if i == maxSteps {
			list = append(list, fmt.Sprintf("and so on over %d tasks", len(ids)))
			break
		}
		next := ids[(i+1)%len(ids)]
		if slices.Contains(o.after(id), next) {
			list = append(list, id+" comes after "+next)
			continue
		}
		n := o.queues.Number(id)
		ln := &lane{}
		if t := o.given[id]; t != nil {
			ln.key = t.Lane()
		} else {
			ln = o.queues.live[n].lane
		}
		list = append(list, fmt.Sprintf("%s is behind %s in %s", id, next, laneName(ln)))
	}
	return strings.Join(list, ", ")
}
