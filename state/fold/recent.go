package fold

import (
	"iter"
	"slices"
	"sort"

	"stint/state"
)

// maxRecent is how many of the newest records of tasks are remembered, in 256 KB at most. The
// largest batch of tasks has more: whoever follows then lists anew.
const maxRecent = 8 << 10

// recent remembers the newest records of tasks, so that a reader who knows all up to some record can learn what has changed since.
type recent struct {
	seq     uint64   // highest number of a record of any kind
	since   uint64   // who knows all up to this record, or a later one, can learn the rest
	changes []change // in the order of seq; those up to since are not needed any more
}

// A change is one record of a task. Like an entry it has no pointers.
type change struct {
	seq uint64
	n   uint32 // the task, in State.Entries
	ref uint32 // the record, in State.refs
}

// begin notes that record seq is folded now. Where a number is missing, or comes again, a compaction, a restore or damage has
// made another ledger of it: what a reader knows of the one before is no beginning of this one.
func (x *recent) begin(seq uint64) {
	next := seq == x.seq+1
	if x.seq = max(x.seq, seq); !next {
		x.forget()
	}
}

// forget lets nobody learn what has changed since a record before this one.
func (x *recent) forget() {
	x.since, x.changes = x.seq, x.changes[:0]
}

// add remembers that the present record is record ref of task n.
func (x *recent) add(n, ref uint32) {
	if len(x.changes) == 2*maxRecent {
		x.changes = slices.Delete(x.changes, 0, maxRecent)
	}
	x.changes = append(x.changes, change{x.seq, n, ref})
	if old := len(x.changes) - maxRecent; old > 0 {
		x.since = x.changes[old-1].seq
	}
}

// Seq returns the highest number of a record so far, of any kind; 0 if there was none.
func (s *State) Seq() uint64 { return s.recent.seq }

// Covers reports whether Since returns all that has changed since record seq. It cannot if that was too long
// ago, if it is no record of this ledger, or if tasks have come to lists or gone from them without a record
// of their own: by a compaction, a restore, or because a person has deleted their sections.
func (s *State) Covers(seq uint64) bool { return s.recent.since <= seq && seq <= s.recent.seq }

// Since returns the tasks that have changed since record seq, with the numbers of their newest records, in the order of these,
// each once and as it is in memory now (see [State.Peek]). It is only to be asked where Covers says so.
func (s *State) Since(seq uint64) iter.Seq2[uint64, state.Task] {
	return func(yield func(uint64, state.Task) bool) {
		changes := s.recent.changes
		first := sort.Search(len(changes), func(i int) bool { return changes[i].seq > seq })
		for _, m := range changes[first:] {
			if s.Entries.At(m.n).Last == m.ref && !yield(m.seq, s.PeekAt(m.n)) {
				return
			}
		}
	}
}
