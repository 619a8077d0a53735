package state

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/ledger"
)

// A Reader gives a record of the journal by the offset that its section had when
// it was applied. The section must stay valid.
type Reader interface {
	SectionAt(off int64) (*ledger.Section, error)
}

// A State is the fold of all records so far. It is not safe for concurrent use,
// not even for reading: whoever owns it holds a lock around every call.
type State struct {
	reader Reader

	// Of every task.
	ids     ids
	entries table[entry]
	refs    table[ref]
	names   names
	tags    tagTable
	byKey   idempotencyKeys

	// Of the tasks that have not ended.
	live    map[uint32]*live
	running []*live          // in no order; live.at is the place
	orphans map[uint32]*live // see Task.Orphaned
	lanes   map[string]*lane
	waiting map[string]map[*lane]bool // id of a task to the lanes that depend on its status
	counts  [len(statuses)]int        // of all tasks
	held    int                       // queued ones on hold
	due     dueHeap                   // the other queued ones
	after   dependants
	hasty   map[uint32]*live // queued ones that may not wait for a cool-down to end
	deleted map[uint32]bool  // of all tasks, those that are hidden
	away    int              // entries that are not in the journal
	revived []uint32         // entries of tasks that were brought back, in order: each is the second one of its task
	family  family
	recent  recent

	dispatch control
	accounts map[string]*account
	ran      map[string]bool // agents of which a run has begun a session
	sessions sessions
	homes    map[uint32]home  // by session key, as in entry
	bare     map[uint32]*live // queued ones without a workspace of their own
	plan     plan

	tell func(before, after *Task) // see OnChange

	// For speed alone.
	pool    *pool
	rows    rowCache
	titles  rowCache // of live tasks
	packer  packer
	scratch folded
	before  folded // what scratch was
	spare   []*live
	ended   map[uint32]*ended // what was read last of tasks that have ended, by number
	runs    []*folded         // as spare
	idle    []*lane
}

// live is a task that has not ended.
type live struct {
	row
	n                uint32   // in State.entries; the age of the task
	at               uint32   // in State.running
	dueAt            uint32   // place in State.due, plus 1
	implies, current bool     // it implies its session, which is the current one of its place
	lane             *lane    // where it is queued or running, or nil
	acct             *account // whose slot it uses while it is running, or will need; nil if it has no lane
	sess             *session // that it uses, or nil if there is none or the task implies it
	since            int64    // when it was queued, or last released, as entry.updated is; 0 if no record says
	run              *folded  // all of it, while it is running, or comes after many
	packed           string   // the rest of it, while it is not: see State.whole
}

// row is what dispatch looks at of each live task, under the names that Task has for it.
type row struct {
	status    uint8 // in statuses
	level     uint8 // see Task.rank
	Hold      bool
	isTried   bool // see Task.tried
	orphaned  bool // see Task.Orphaned
	homeless  bool // it has no workspace of its own
	backed    bool // it names a fallback
	after     bool // it comes after others
	afterAny  bool // its afterPolicy is any
	named     bool // it names a native session
	judged    bool // it is at its verify command or its evaluation
	NotBefore time.Time
	Order     int64
}

func rowOf(t *folded) row {
	return row{
		status: t.Status.index(), level: uint8(t.rank()), Hold: t.Hold, isTried: t.tried(), orphaned: t.Orphaned(), homeless: t.Workspace == "",
		backed: len(t.Fallback) > 0, after: len(t.After) > 0, afterAny: t.AfterPolicy == AfterAny, named: t.AgentSession != "", judged: t.Phase != "",
		NotBefore: t.NotBefore, Order: t.Order,
	}
}

// is reports whether the task has that status.
func (x *row) is(st Status) bool { return statuses[x.status] == st }

// whole gives the folded task, as it was after its last record. It is not to be changed.
func (s *State) whole(l *live) *folded {
	if l.run != nil {
		return l.run
	}
	t := new(folded)
	s.wholeTo(l, t)
	return t
}

func (s *State) wholeTo(l *live, t *folded) {
	if l.run != nil {
		*t = *l.run
		return
	}
	e := s.entries.at(l.n)
	tag := s.tags.list[e.tags]
	*t = folded{}
	t.Status, t.SessionKey = statuses[e.status], s.keyOf(l.n, e)
	t.Label, t.TenantID, t.Queue, t.Agent = tag.label, tag.tenant, tag.queue, tag.agent
	s.packer.unpack(l.packed, t)
	t.AgentSession, _ = t.native(t.Agent)
}

// sessionID gives the id of stint's session that the task names.
func (s *State) sessionID(l *live) string {
	if l.run != nil {
		return l.run.SessionID
	}
	return s.packer.session(l.packed)
}

// afterOf gives the ids of the tasks that the task comes after.
func (s *State) afterOf(l *live) []string {
	if !l.after {
		return nil
	}
	return s.whole(l).After
}

// agent gives the agent that the task names.
func (s *State) agent(l *live) string { return s.tags.list[s.entries.at(l.n).tags].agent }

// New gives the state of no records. r may be nil as long as no record comes for
// a task that has ended and nobody asks for more than what is in memory.
func New(r Reader) *State {
	s := &State{
		reader:   r,
		ids:      ids{uuids: map[[16]byte]uint32{}, others: map[string]uint32{}, names: map[uint32]string{}},
		names:    newNames(),
		tags:     newTagTable(),
		byKey:    newIdempotencyKeys(),
		live:     map[uint32]*live{},
		orphans:  map[uint32]*live{},
		after:    newDependants(),
		hasty:    map[uint32]*live{},
		deleted:  map[uint32]bool{},
		family:   newFamily(),
		lanes:    map[string]*lane{},
		waiting:  map[string]map[*lane]bool{},
		accounts: map[string]*account{},
		ran:      map[string]bool{},
		sessions: newSessions(),
		homes:    map[uint32]home{},
		bare:     map[uint32]*live{},
		plan:     plan{after: map[*lane][]string{}},
		pool:     &pool{seed: maphash.MakeSeed()},
		rows:     rowCache{most: maxRows},
		titles:   rowCache{most: maxTitles},
	}
	words := newNames()
	s.packer.words = &words
	s.entries.add(entry{}) // so that 0 is no task
	s.refs.add(ref{})      // and no record
	return s
}

// Apply folds one record, live and on replay. It keeps nothing of the section's
// bytes. The error of a record that has no effect is a [*RecordError]; it is the
// same on every replay, but for one that says that an earlier record of a task
// that had ended could not be read. Records of other kinds than Task and Control
// are passed over.
func (s *State) Apply(sec *ledger.Section) error {
	s.recent.begin(sec.Seq)
	if changesLists(sec) {
		s.recent.forget()
	}
	switch sec.Kind {
	case ledger.KindTask:
		return s.applyTask(sec)
	case ledger.KindControl:
		return s.applyControl(sec)
	}
	return nil
}

func (s *State) applyTask(sec *ledger.Section) error {
	n, _ := s.ids.find(sec.ID)
	back := uint32(0)
	if n != 0 && s.entries.at(n).kept == inArchive {
		if sec.Get(KeyStatus) == nil {
			return recordError(sec, nil, errArchived)
		}
		back, n = n, 0 // a whole record brings it back
	}
	before, next, cur := &s.before, &s.scratch, s.live[n]
	switch {
	case cur != nil:
		s.wholeTo(cur, before)
	case n != 0:
		if err := s.readEnded(n, before); err != nil {
			return recordError(sec, nil, fmt.Errorf("read the task's earlier records: %w", err))
		}
	default:
		*before = folded{}
	}
	*next = *before
	if err := next.apply(sec, s.pool, keepNone); err != nil {
		return err
	}
	if n == 0 {
		n = s.add(sec.ID, s.firstSeq(sec))
	}
	if back != 0 {
		s.entries.at(back).kept = broughtBack
		s.revived = append(s.revived, n)
		s.noteParent(back, "", "") // the new entry has it
	}
	if cur == nil {
		cur = s.thaw(n)
	}
	s.commit(cur, before, next, sec.Off)
	if s.tell != nil {
		s.tell(&before.Task, &next.Task)
	}
	if t, again := s.ended[n]; again && s.live[n] == nil {
		t.last, t.folded = s.entries.at(n).last, *next
	}
	return nil
}

// An ended is what the records of a task that has ended have made of it, up to one.
type ended struct {
	last uint32
	folded
}

// maxEnded bounds of how many tasks that have ended this is kept: those whose records are
// asked for once more, when as many follow.
const maxEnded = 256

// readEnded is read for a task that has ended, without what the state needs no more.
func (s *State) readEnded(n uint32, t *folded) error {
	if e := s.ended[n]; e != nil && e.last == s.entries.at(n).last && s.entries.at(n).kept == inJournal {
		*t = e.folded
		return nil
	}
	if err := s.read(n, t, keepNone); err != nil {
		return err
	}
	if s.ended == nil || len(s.ended) == maxEnded {
		s.ended = map[uint32]*ended{}
	}
	s.ended[n] = &ended{s.entries.at(n).last, *t}
	return nil
}

// OnChange makes f hear of each task's record that is applied from now on: what the
// task was before, with no status if it is new, and what it is after. Both are without
// ids and texts, and valid during the call. nil: nobody hears.
func (s *State) OnChange(f func(before, after *Task)) { s.tell = f }

// firstSeq gives the number of a new task's first record, which a merged record, sec,
// remembers. Whatever is written there, each task has a higher one than those before.
func (s *State) firstSeq(sec *ledger.Section) uint64 {
	n := sec.Seq
	if f := sec.Get(KeyFirstSeq); f != nil {
		if first, _ := parseSeq(f.Bytes()); first > 0 && first < n { // what cannot be read was refused
			n = first
		}
	}
	return max(n, s.entries.at(s.entries.len()-1).first+1)
}

// parseSeq reads the number of a record; "" is 0.
func parseSeq(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not the number of a record", b)
	}
	return n, nil
}

// add makes the entry of a new task.
func (s *State) add(id []byte, first uint64) uint32 {
	n := s.entries.add(entry{first: first})
	s.ids.add(id, n, s.entries.at(n))
	return n
}

// thaw gives task n a place among the living; what it is comes with commit.
func (s *State) thaw(n uint32) *live {
	var l *live
	if i := len(s.spare) - 1; i >= 0 {
		l, s.spare = s.spare[i], s.spare[:i]
	} else {
		l = new(live)
	}
	l.n = n
	s.live[n] = l
	return l
}

// maxSpare bounds the memory that is kept for tasks to come.
const maxSpare = 256

// freeze lets go of what was held of a task that has ended.
func (s *State) freeze(l *live) {
	s.leaveSession(l, true)
	delete(s.after.maybe, l.n)
	delete(s.live, l.n)
	s.letGo(l)
	*l = live{}
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, l)
	}
}

// commit makes next the task's new content, which was old, after a record at off.
// Nothing here can fail.
func (s *State) commit(l *live, old, next *folded, off int64) {
	e := s.entries.at(l.n)
	fresh := e.last == 0
	changed := fresh || statuses[e.status] != next.Status
	if !fresh {
		s.show(l.n)
		s.counts[e.status]--
	}
	s.rekey(l.n, string(old.IdempotencyKey), string(next.IdempotencyKey))
	s.noteParent(l.n, next.TriggeredBy, next.Trigger)
	left := l.lane
	s.hold(l, old)
	s.leaveLane(l)
	s.leaveDue(l)
	native, after, waited := old.AgentSession, old.After, l.waits()
	if l.run == nil && l.packed == "" {
		native, after = "", nil // it had ended: neither counts any more
	}
	if l.row = rowOf(next); !waited {
		l.since = unixMilli(cmp.Or(next.UpdatedAt, next.CreatedAt))
	}
	s.after.noteAfter(l.n, after, next.After)
	s.counts[l.status]++
	s.note(l, next, e, off)
	s.joinLane(l, next, left)
	s.noteDue(l)
	s.useSession(l, next, native)
	s.noteHome(l, next)
	s.noteHasty(l, next)
	s.noteEnd(l)
	if next.RunID != "" && next.AgentSession != "" && !s.ran[next.Agent] {
		s.ran[next.Agent] = true
	}
	if changed && len(s.waiting) > 0 {
		s.wakeWaiting(s.id(l.n))
	}
	if next.Status.Terminal() {
		s.after.noteAfter(l.n, next.After, nil)
		s.freeze(l)
		return
	}
	s.put(l, next)
}

// manyAfter is how many tasks one may come after, and still be packed: who looks for circles
// asks for them again and again.
const manyAfter = 64

// put keeps what is not noted elsewhere of a task that has not ended.
func (s *State) put(l *live, t *folded) {
	switch {
	case t.Status != Running && len(t.After) <= manyAfter:
		s.letGo(l)
		l.packed = s.packer.pack(t)
		return
	case l.run != nil:
	case len(s.runs) > 0:
		last := len(s.runs) - 1
		l.run, s.runs = s.runs[last], s.runs[:last]
	default:
		l.run = new(folded)
	}
	*l.run, l.packed = *t, ""
}

// letGo ends that the task is held as a whole.
func (s *State) letGo(l *live) {
	if l.run != nil && len(s.runs) < maxSpare {
		*l.run = folded{}
		s.runs = append(s.runs, l.run)
	}
	l.run = nil
}

// note writes down in its entry what is kept of a task for ever.
func (s *State) note(l *live, t *folded, e *entry, off int64) {
	e.last = s.refs.add(ref{off: off, prev: e.last})
	s.recent.add(l.n, e.last)
	e.status = l.status
	e.updated = unixMilli(t.UpdatedAt)
	e.tags = s.tags.number(tagsOf(&t.Task), e.tags)
	switch {
	case s.isOwnLane(t.SessionKey, l.n):
		e.key = ownLane
	case s.names.list[e.key] != t.SessionKey || e.key == ownLane:
		e.key = s.names.number(t.SessionKey)
	}
}

// isOwnLane reports whether key is the one of the lane that task n has for itself.
func (s *State) isOwnLane(key string, n uint32) bool {
	id, ok := strings.CutPrefix(key, LanePrefixTask)
	if !ok {
		return false
	}
	var buf [128]byte
	return string(s.ids.appendTo(buf[:0], n, s.entries.at(n))) == id
}

// rekey moves the idempotency key of task n. The first task that names a key has
// it for good, or until it drops it.
func (s *State) rekey(n uint32, old, key string) {
	if old != key && s.byKey.task(old) == n {
		s.byKey.drop(old)
	}
	if key == "" {
		return
	}
	if holder := s.byKey.task(key); holder == 0 || s.entries.at(holder).kept == broughtBack {
		s.byKey.set(key, n)
	}
}

// id gives the id of task n.
func (s *State) id(n uint32) string {
	var buf [128]byte
	return string(s.ids.appendTo(buf[:0], n, s.entries.at(n)))
}

// offsets gives where the records of task n stand, in order.
func (s *State) offsets(n uint32) []int64 {
	var list []int64
	for r := s.entries.at(n).last; r != 0; r = s.refs.at(r).prev {
		list = append(list, s.refs.at(r).off)
	}
	slices.Reverse(list)
	return list
}

// read folds the records of task n anew, into t.
func (s *State) read(n uint32, t *folded, k keep) error { return s.readEach(n, t, k, nil) }

// readEach is read that calls each, if there is one, after every record, with what t
// was before it.
func (s *State) readEach(n uint32, t *folded, k keep, each func(before *Task, sec *ledger.Section)) error {
	*t = folded{}
	var before Task
	if s.entries.at(n).kept != inJournal {
		return errArchived
	}
	for _, off := range s.offsets(n) {
		sec, err := s.reader.SectionAt(off)
		if err != nil {
			return err
		}
		if m, _ := s.ids.find(sec.ID); m != n || sec.Kind != ledger.KindTask {
			return fmt.Errorf("at offset %d stands %s %s", off, sec.Kind, sec.ID)
		}
		if each != nil {
			before = t.Task
		}
		if err := t.apply(sec, s.pool, k); err != nil {
			return err
		}
		if each != nil {
			each(&before, sec)
		}
	}
	return nil
}

// ByIdempotencyKey gives the id of the task that was submitted with that key.
func (s *State) ByIdempotencyKey(key string) (id string, ok bool) {
	n := s.byKey.task(key)
	if n == 0 || s.entries.at(n).kept == broughtBack {
		return "", false
	}
	return s.id(n), true
}

// Running gives the ids of the running tasks, oldest first.
func (s *State) Running() []string {
	tasks := slices.SortedFunc(slices.Values(s.running), func(a, b *live) int { return int(a.n) - int(b.n) })
	list := make([]string, len(tasks))
	for i, l := range tasks {
		list[i] = s.id(l.n)
	}
	return list
}

// Orphaned gives the ids of the tasks that are held because their last agent may
// still be alive ([Task.Orphaned]).
func (s *State) Orphaned() []string {
	var list []string
	for n := range s.orphans {
		list = append(list, s.id(n))
	}
	slices.Sort(list)
	return list
}

// Counts gives the number of tasks of each status; a status that no task has is
// left out.
func (s *State) Counts() map[Status]int {
	m := make(map[Status]int, len(statuses))
	for i, n := range s.counts {
		if n > 0 {
			m[statuses[i]] = n
		}
	}
	return m
}

// Queued gives the number of queued tasks, held ones included.
func (s *State) Queued() int { return s.counts[Queued.index()] }

// Idle reports whether nothing is running and nothing waits to run. Drafts and
// held tasks wait for a person and do not count.
func (s *State) Idle() bool {
	return len(s.running) == 0 && s.counts[Queued.index()] == s.held
}

// Len gives the number of tasks, ended ones included and archived ones not.
func (s *State) Len() int { return int(s.entries.len()) - 1 - s.away }

// unixMilli gives t as an entry has it: 0 for the zero time.
func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// updatedAt gives the time of the last record of an entry.
func (e *entry) updatedAt() time.Time {
	if e.updated == 0 {
		return time.Time{}
	}
	return time.UnixMilli(e.updated).UTC()
}
