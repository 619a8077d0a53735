package fold

import (
	"fmt"
	"slices"

	"stint/ledger"
	"stint/ledger/mark"
	"stint/state"
	"stint/state/lanes"
	"stint/state/table"
)

// A Reader returns a record of the journal by the offset that its section had when it was applied. The section must stay valid.
type Reader interface {
	SectionAt(off int64) (*ledger.Section, error)
}

// A State is the fold of all records so far. It is not safe for concurrent use,
// not even for reading: whoever owns it holds a lock around every call.
type State struct {
	lanes.Queues
	reader Reader

	refs    table.Rows[ref]         // the records of all tasks
	files   table.Numbering[string] // of the archive
	byKey   idempotencyKeys
	counts  [len(state.Statuses)]int // of all tasks
	deleted map[uint32]bool          // of all tasks, those that are hidden
	revived []uint32                 // entries of tasks that were brought back, in order: each is the second one of its task
	family  family
	recent  recent
	used    used

	onChange func(before, after *state.Task) // see OnChange

	// For speed alone.
	pool    *state.Pool
	rows    map[bool]*rowCache // by Filter.Text
	titles  rowCache           // of live tasks
	scratch state.Folded
	before  state.Folded      // what scratch was
	run     [1]state.Run      // that a record of it ends
	ended   map[uint32]*ended // what was read last of tasks that have ended, by number
}

// New returns the state of no records. r may be nil as long as no record comes for
// a task that has ended and nobody asks for more than what is in memory.
func New(r Reader) *State {
	s := &State{
		Queues:  lanes.NewQueues(),
		reader:  r,
		files:   table.NewNumbering[string](),
		byKey:   idempotencyKeys{whole: map[string]uint32{}, lists: map[string][]uint32{}},
		deleted: map[uint32]bool{},
		family:  family{parents: map[uint32]parent{}, children: map[string][]string{}},
		used:    used{sums: map[slot]sum{}},
		pool:    state.NewPool(),
		rows:    map[bool]*rowCache{false: {most: maxRows, rows: map[uint32]cachedRow{}}, true: {most: maxLines, rows: map[uint32]cachedRow{}}},
		titles:  rowCache{most: maxTitles, rows: map[uint32]cachedRow{}},
	}
	s.TitleOf = func(n uint32) string {
		title, _ := s.titles.get(n, s.Entries.At(n).Last)
		return string(title)
	}
	s.refs.Add(ref{}) // so that 0 is no record
	return s
}

// Apply folds one record, live and on replay. It keeps nothing of the section's bytes. The error of a record that has no effect
// is a [*state.RecordError]; it is the same on every replay, but for one that says that an earlier record of a task that had
// ended could not be read. Records of other kinds than Task and Control are passed over.
func (s *State) Apply(sec *ledger.Section) error {
	s.recent.begin(sec.Seq)
	switch {
	case sec.IsNote():
		return nil
	case sec.Kind == ledger.KindTask:
		return s.applyTask(sec)
	case sec.Kind != ledger.KindControl:
		return nil
	}
	switch string(sec.ID) {
	case ControlDeleted:
		s.recent.forget() // it changes which tasks there are
		s.applyDeleted(sec)
	case mark.Restore:
		s.recent.forget()
	case controlCarried:
		return s.applyCarried(sec)
	default:
		return s.ApplyControl(sec)
	}
	return nil
}

func (s *State) applyTask(sec *ledger.Section) error {
	n := s.NumberOf(sec.ID)
	back := uint32(0)
	if n != 0 && s.Entries.At(n).Kept == table.InArchive {
		if sec.Get(state.KeyStatus) == nil {
			return state.NewRecordError(sec, nil, errArchived)
		}
		back, n = n, 0 // a whole record brings it back
	}
	before, next, cur := &s.before, &s.scratch, s.Live(n)
	if err := s.readNow(n, before); err != nil {
		return state.NewRecordError(sec, nil, err)
	}
	*next = *before
	if err := next.Apply(sec, s.pool, state.KeepNone); err != nil {
		return err
	}
	had := s.runsSummed(max(n, back))
	replaced, runs, err := s.runsOf(n, sec)
	if err != nil {
		return state.NewRecordError(sec, nil, err)
	}
	if n == 0 {
		n = s.Add(sec.ID, s.firstSeq(sec))
	}
	if back != 0 {
		s.Entries.At(back).Kept = table.BroughtBack
		s.revived = append(s.revived, n)
		s.noteParent(back, "", "") // the new entry has it
		runs = runs[min(int(had), len(runs)):]
	}
	if cur == nil {
		cur = s.Revive(n)
	}
	s.commit(cur, before, next, ref{off: sec.Off, runs: s.sumUp(had, replaced, runs)})
	if s.onChange != nil {
		s.onChange(&before.Task, &next.Task)
	}
	if t, again := s.ended[n]; again && s.Live(n) == nil {
		t.last, t.Folded = s.Entries.At(n).Last, *next
	}
	return nil
}

// An ended is what the records of a task that has ended have made of it, up to one.
type ended struct {
	last uint32
	state.Folded
}

// maxEnded bounds of how many tasks that have ended this is kept: those whose records are
// asked for once more, when as many follow.
const maxEnded = 256

// readNow makes t task n as it is now, without its texts; nothing if n is 0.
func (s *State) readNow(n uint32, t *state.Folded) error {
	if l := s.Live(n); l != nil {
		s.WholeInto(&l.Body, t)
		return nil
	}
	if *t = (state.Folded{}); n == 0 {
		return nil
	}
	if e := s.ended[n]; e != nil && e.last == s.Entries.At(n).Last && s.Entries.At(n).Kept == table.InJournal {
		*t = e.Folded
		return nil
	}
	if err := s.read(n, t, state.KeepNone, nil); err != nil {
		return err
	}
	if s.ended == nil || len(s.ended) == maxEnded {
		s.ended = map[uint32]*ended{}
	}
	s.ended[n] = &ended{s.Entries.At(n).Last, *t}
	return nil
}

// OnChange calls f after each task's record that is applied from now on: with what the task was before, with no status if it is
// new, and what it is after. Both are without ids and texts, and valid during the call. nil: nothing is called.
func (s *State) OnChange(f func(before, after *state.Task)) { s.onChange = f }

// firstSeq returns the number of a new task's first record, which a merged record, sec,
// remembers. Whatever is written there, each task has a higher one than those before.
func (s *State) firstSeq(sec *ledger.Section) uint64 {
	n := sec.Seq
	if f := sec.Get(state.KeyFirstSeq); f != nil {
		if first, _ := ledger.ParseUint(f.Bytes()); first > 0 && first < n { // what cannot be read was refused
			n = first
		}
	}
	return max(n, s.Entries.At(s.Entries.Len()-1).First+1)
}

// commit makes next the task's new content, which was old, after a record. Nothing here can fail.
func (s *State) commit(l *lanes.Item, old, next *state.Folded, at ref) {
	e := s.Entries.At(l.N)
	changed := e.Last == 0 || e.Status() != next.Status
	if e.Last != 0 {
		s.show(l.N)
		s.counts[e.StatusIndex]--
	}
	s.rekey(l.N, string(old.IdempotencyKey), string(next.IdempotencyKey))
	s.noteParent(l.N, next.TriggeredBy, next.Trigger)
	at.prev = e.Last
	e.Last = s.refs.Add(at)
	s.recent.add(l.N, e.Last)
	s.Set(l, old, next, changed)
	s.counts[e.StatusIndex]++
}

// rekey moves the idempotency key of task n. The first task that names a key has it for good, or until it drops it.
func (s *State) rekey(n uint32, old, key string) {
	if old != key && s.byKey.task(old) == n {
		s.byKey.drop(old)
	}
	if key == "" {
		return
	}
	if holder := s.byKey.task(key); holder == 0 || s.Entries.At(holder).Kept == table.BroughtBack {
		s.byKey.set(key, n)
	}
}

// offsets returns where the records of task n stand, in order.
func (s *State) offsets(n uint32) []int64 {
	var list []int64
	for r := s.Entries.At(n).Last; r != 0; r = s.refs.At(r).prev {
		list = append(list, s.refs.At(r).off)
	}
	slices.Reverse(list)
	return list
}

// read folds the records of task n anew, into t. each, if there is one, is called after every record, with what t was before it.
func (s *State) read(n uint32, t *state.Folded, k state.Keep, each func(before *state.Task, sec *ledger.Section)) error {
	*t = state.Folded{}
	t.ID = s.ID(n)
	if s.Entries.At(n).Kept != table.InJournal {
		return fmt.Errorf("read task %s: %w", t.ID, errArchived)
	}
	var before state.Task
	for _, off := range s.offsets(n) {
		sec, err := s.reader.SectionAt(off)
		switch {
		case err != nil:
			return fmt.Errorf("read task %s: %w", t.ID, err)
		case string(sec.ID) != t.ID || sec.Kind != ledger.KindTask:
			return fmt.Errorf("read task %s: at offset %d stands %s %s", t.ID, off, sec.Kind, sec.ID)
		case each != nil:
			before = t.Task
		}
		if err := t.Apply(sec, s.pool, k); err != nil {
			return err
		}
		if each != nil {
			each(&before, sec)
		}
	}
	return nil
}

// ByIdempotencyKey returns the id of the task that was submitted with that key.
func (s *State) ByIdempotencyKey(key string) (id string, ok bool) {
	n := s.byKey.task(key)
	if n == 0 || s.Entries.At(n).Kept == table.BroughtBack {
		return "", false
	}
	return s.ID(n), true
}

// Counts returns the number of tasks of each status; a status that no task has is left out.
func (s *State) Counts() map[state.Status]int {
	m := make(map[state.Status]int, len(state.Statuses))
	for i, n := range s.counts {
		if n > 0 {
			m[state.Statuses[i]] = n
		}
	}
	return m
}

// Queued returns the number of queued tasks, held ones included.
func (s *State) Queued() int { return s.counts[state.Queued.Index()] }

// Idle reports whether nothing is running and nothing waits to run. Drafts, held tasks and
// those of held accounts wait for a person and do not count.
func (s *State) Idle() bool {
	return s.counts[state.Running.Index()] == 0 && s.counts[state.Queued.Index()] == s.ForPerson()
}

// A ref is one record of a task: where it stands, and the one before it, plus 1.
type ref struct {
	off  int64
	prev uint32
	runs uint32 // of the task that are in used then
}
