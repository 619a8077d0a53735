package fold

import (
	"iter"
	"sort"

	"stint/state"
	"stint/state/table"
)

// maxRecent is how many of the newest records of tasks are remembered, in 256 KB. The
// largest batch of tasks has more: whoever follows then lists anew.
const maxRecent = 16 << 10

// recent remembers the newest records of tasks, so that a reader who knows all up to
// some record can learn what has changed since.
type recent struct {
	seq   uint64           // highest number of a record of any kind
	since uint64           // who knows all up to this record, or a later one, can learn the rest
	ring  table.Rows[mark] // in the order of seq from next on, round and round
	next  uint32           // in ring: the oldest one once it is full
}

// A mark is one record of a task. Like an entry it has no pointers.
type mark struct {
	seq uint64
	n   uint32 // the task, in State.Entries
	ref uint32 // the record, in State.refs
}

// begin notes that record seq is folded now. Where a number is missing, or comes again,
// a compaction, a restore or damage has made another ledger of it: what a reader knows
// of the one before is no beginning of this one.
func (x *recent) begin(seq uint64) {
	next := seq == x.seq+1
	if x.seq = max(x.seq, seq); !next {
		x.forget()
	}
}

// forget lets nobody learn what has changed since a record before this one.
func (x *recent) forget() {
	x.since, x.next = x.seq, 0
	x.ring.Clear()
}

// add remembers that the present record is record ref of task n.
func (x *recent) add(n, ref uint32) {
	m := mark{x.seq, n, ref}
	if x.ring.Len() < maxRecent {
		x.ring.Add(m)
		return
	}
	oldest := x.ring.At(x.next)
	x.since, *oldest = oldest.seq, m
	x.next = (x.next + 1) % maxRecent
}

// at returns the i-th oldest mark.
func (x *recent) at(i int) *mark { return x.ring.At((x.next + uint32(i)) % x.ring.Len()) }

// Seq returns the highest number of a record so far, of any kind; 0 if there was none.
func (s *State) Seq() uint64 { return s.recent.seq }

// Covers reports whether Since returns all that has changed since record seq. It
// cannot if that was too long ago, if it is no record of this ledger, or if tasks have
// come to lists or gone from them without a record of their own: by a compaction, a
// restore, or because a person has deleted their sections.
func (s *State) Covers(seq uint64) bool { return s.recent.since <= seq && seq <= s.recent.seq }

// Since returns the tasks that have changed since record seq, with the numbers of their newest records,
// in the order of these, each once and as it is in memory now (see [State.Peek]). It is only to be asked
// where Covers says so.
func (s *State) Since(seq uint64) iter.Seq2[uint64, state.Task] {
	return func(yield func(uint64, state.Task) bool) {
		x := &s.recent
		first := sort.Search(int(x.ring.Len()), func(i int) bool { return x.at(i).seq > seq })
		for i := first; i < int(x.ring.Len()); i++ {
			m := x.at(i)
			if s.Entries.At(m.n).Last == m.ref && !yield(m.seq, s.PeekAt(m.n)) {
				return
			}
		}
	}
}
