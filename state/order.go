package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stint/ledger"
)

// A CycleError says that tasks would wait for each other for ever.
type CycleError struct {
	IDs  []string // of the tasks, each waiting for the next, and the last for the first
	Text string   // says how
}

// Error gives the sentence.
func (e *CycleError) Error() string { return "it would wait for itself: " + e.Text }

// CheckOrder says whether tasks can be as they are given here, new ones or others
// than now: nothing that waits may come, by after and by the order of lanes, behind
// itself. Of the tasks their ids, statuses, lanes, sessions, orders and what they
// come after count; those that are new are the youngest, in the order given. Held
// tasks and those of a later time are taken as if they waited in their places. The
// error is a [*CycleError].
func (s *State) CheckOrder(tasks []Task) error {
	o := ordering{state: s, given: map[string]*Task{}}
	return o.check(tasks)
}

func (o *ordering) check(tasks []Task) error {
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
	state  *State
	given  map[string]*Task
	before map[string]string             // of the tasks in the lanes that would change: the one before; "": none
	seen   map[string]bool               // true: on the path of the search; false: searched already
	refuse func(*CycleError) (id string) // of a cycle gives the task that is not to be as given; the search goes on without it. nil: the first cycle ends the search
}

// mayCycle reports whether there can be a cycle at all. Behind a new task without
// an explicit order there is nobody, unless its id was named before it came.
func (o *ordering) mayCycle(tasks []Task) bool {
	for i := range tasks {
		t := &tasks[i]
		known := !o.isNew(t.ID)
		if (known || t.Order != 0 || len(o.state.after.of[t.ID]) > 0) && (len(o.state.after.of) > 0 || len(t.After) > 0) {
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
func (o *ordering) isLast(t *Task) bool {
	s := o.state
	n, _ := s.ids.find([]byte(t.ID))
	l := s.live[n]
	if l != nil && l.lane != nil {
		if l.lane.key == t.Lane() && l.Order == t.Order && s.sessionID(l) == t.SessionID {
			o.before = map[string]string{t.ID: s.beforeInLane(l)}
		}
		return false
	}
	last := (*live)(nil)
	if n == 0 {
		n = s.entries.len()
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
		if byOrder(last.Order, t.Order, last.n, n) > 0 {
			o.before = nil
			return false
		}
		o.before[t.ID] = s.id(last.n)
	}
	return len(s.after.of[t.ID]) == 0 && !slices.Contains(t.After, t.ID)
}

func (o *ordering) isNew(id string) bool {
	n, _ := o.state.ids.find([]byte(id))
	return n == 0 || o.state.entries.at(n).kept != inJournal
}

// A slot is a task's place in a lane.
type slot struct {
	id    string
	chain string // tasks of one lane wait for those before them with the same one
	order int64
	age   uint32
}

// chainOf gives the chain of a task in a lane: in that of a directory, which only
// excludes, it waits for those before it in its session alone.
func chainOf(lane, session, id string) string {
	if !strings.HasPrefix(lane, LanePrefixDir) {
		return ""
	}
	return cmp.Or(session, id)
}

// place makes the lanes anew that the given tasks are in now, or would be in.
func (o *ordering) place(tasks []Task) {
	s := o.state
	lanes := map[string][]slot{}
	for i := range tasks {
		t := &tasks[i]
		n, _ := s.ids.find([]byte(t.ID))
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
		age, _ := s.ids.find([]byte(t.ID))
		if o.isNew(t.ID) {
			age = s.entries.len() + uint32(i)
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
func waits(st Status) bool { return st == Queued || st == Running }

// unchanged gives the tasks of a lane that are not among the given ones.
func (o *ordering) unchanged(key string) (list []slot) {
	s := o.state
	ln := s.lanes[key]
	if ln == nil {
		return nil
	}
	add := func(l *live) {
		if id := s.id(l.n); o.given[id] == nil {
			list = append(list, slot{id, chainOf(key, s.sessionID(l), id), l.Order, l.n})
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

// stepsFrom gives the tasks that a task waits for: those that it comes after, then
// the one before it in its lane. What has ended, or is not there, waits for nothing.
func (o *ordering) stepsFrom(id string) []string {
	n, _ := o.state.ids.find([]byte(id))
	t, l := o.given[id], o.state.live[n]
	if t == nil && l == nil || t != nil && !waits(t.Status) || t == nil && !waits(statuses[l.status]) {
		return nil
	}
	steps := slices.Clone(o.after(id))
	before, placed := o.before[id]
	if !placed {
		before = o.state.beforeInLane(l)
	}
	if before != "" {
		steps = append(steps, before)
	}
	return steps
}

// after gives the ids of the tasks that a task comes after.
func (o *ordering) after(id string) []string {
	if t := o.given[id]; t != nil {
		return t.After
	}
	n, _ := o.state.ids.find([]byte(id))
	return o.state.afterOf(o.state.live[n])
}

// beforeInLane gives the id of the task that is before l in its lane, or would be if
// the running ones came back; "" if there is none.
func (s *State) beforeInLane(l *live) string {
	if l.lane.excludes() && (l.sess == nil || l.sess.uses < 2) {
		return "" // there is no other task of its session
	}
	follows := func(b *live) bool { return !l.lane.excludes() || b.sess == l.sess }
	i, _ := slices.BinarySearchFunc(l.lane.queue, l, inLane)
	var before *live
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
	return s.id(before.n)
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
		n, _ := o.state.ids.find([]byte(id))
		ln := &lane{}
		if t := o.given[id]; t != nil {
			ln.key = t.Lane()
		} else {
			ln = o.state.live[n].lane
		}
		list = append(list, fmt.Sprintf("%s is behind %s in %s", id, next, laneName(ln)))
	}
	return strings.Join(list, ", ")
}

// nowOf gives the task of that id as it is now; zero if there is none.
func (s *State) nowOf(id []byte) (now folded, err error) {
	n, _ := s.ids.find(id)
	if l := s.live[n]; l != nil {
		s.wholeTo(l, &now)
	} else if n != 0 {
		if err := s.readEnded(n, &now); err != nil {
			return now, fmt.Errorf("read the task's earlier records: %w", err)
		}
	}
	return now, nil
}

// CheckTogether says whether the tasks of sections, each of which [Save.Check] has
// passed, wait for each other for ever once all are taken over. Of each circle that it
// finds it gives the last section, by its index, with a [*RecordError]. Without those
// there may be others: none are left when it gives nothing.
func (s *State) CheckTogether(list []*ledger.Section) map[int]error {
	next, ids := map[string]*folded{}, []string{}
	for _, sec := range list {
		if sec.Kind != ledger.KindTask {
			continue
		}
		id := string(sec.ID)
		if next[id] == nil {
			now, err := s.nowOf(sec.ID)
			if err != nil {
				continue // Check has reported it
			}
			now.ID, next[id], ids = id, &now, append(ids, id)
		}
		after := *next[id]
		if after.apply(sec, nil, keepNone) == nil {
			*next[id] = after
		}
	}
	var tasks []Task
	for _, id := range ids {
		if waits(next[id].Status) {
			tasks = append(tasks, next[id].Task)
		}
	}
	last, bad := map[string]int{}, map[int]error{}
	for _, only := range []bool{false, true} { // a section with after or order, before one that only may cause the circle
		for i, sec := range list {
			if f := orderField(sec); f != nil && (!only || slices.Contains([]string{KeyAfter, KeyOrder}, string(f.Key))) {
				last[string(sec.ID)] = i
			}
		}
	}
	o := ordering{state: s, given: map[string]*Task{}}
	o.refuse = func(circle *CycleError) string {
		worst, at := -1, 0
		for k, id := range circle.IDs {
			if i, has := last[id]; has && i > worst {
				worst, at = i, k
			}
		}
		if worst >= 0 {
			o.begin(circle, at)
			bad[worst] = recordError(list[worst], orderField(list[worst]), circle)
		}
		return circle.IDs[0]
	}
	_ = o.check(tasks) // it goes on behind each circle
	return bad
}

// orderField gives the field of a section that most likely makes a task wait for
// another; nil if none can.
func orderField(sec *ledger.Section) *ledger.Field {
	for _, key := range []string{KeyAfter, KeyOrder, KeySessionKey, KeyWorkspace, KeyStatus} {
		if f := sec.Get(key); f != nil {
			return f
		}
	}
	return nil
}
