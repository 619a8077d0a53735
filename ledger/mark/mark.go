// Package mark reads and writes the control records that say which numbers of a ledger count no more: the mark of a
// compaction, with which a compacted journal begins, and that of a restore.
package mark

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"stint/ledger"
)

// Compaction is the id of the control record that begins a compacted journal.
const Compaction = "compaction"

// Keys of that record.
const (
	keyThrough = "through" // all records up to that seq were merged or moved out
	keyMerged  = "merged"  // so many records that follow it are merged ones
	keyArchive = "archive" // the file of the archive that was written to last
	keySize    = "size"    // of it; older versions did not write it
)

// A Mark is the record that begins a compacted journal.
type Mark struct {
	Seq, Through uint64
	Merged       int
	Archive      string // the file of the archive that was written to last
	Size         int64  // of it; 0: not known
}

// In reads the mark of a compaction; ok is false if s is none.
func In(s *ledger.Section) (m Mark, ok bool) {
	if s.Kind != ledger.KindControl || string(s.ID) != Compaction {
		return m, false
	}
	through, ok1 := ledger.ParseUint([]byte(s.Value(keyThrough)))
	merged, ok2 := ledger.ParseUint([]byte(s.Value(keyMerged)))
	if !ok1 || !ok2 || through >= s.Seq || merged > ledger.MaxSeq {
		return m, false
	}
	size, _ := ledger.ParseUint([]byte(s.Value(keySize)))
	return Mark{s.Seq, through, int(merged), s.Value(keyArchive), int64(min(size, math.MaxInt64))}, true
}

// Restore is the id of the control record that a restore writes. The numbers between its
// "through", the newest record of the copy, and its own belong to what was taken back.
const Restore = "restored"

// Restored sets what a restore to a copy with the numbers up to through says of them.
func Restored(note *ledger.Record, through uint64) {
	note.Set(ledger.Pair{Key: keyThrough, Value: strconv.FormatUint(through, 10)})
}

// Superseded returns a function that reports whether the record of that number counts no more, as sections say:
// a compaction has merged it or moved it out, or a restore has taken it back. The text of an old buffer may still have it.
func Superseded(sections []ledger.Section) (is func(seq uint64) bool) {
	var spans [][2]uint64 // the newest first: what is superseded itself says nothing of others
	is = func(seq uint64) bool {
		return slices.ContainsFunc(spans, func(s [2]uint64) bool { return s[0] < seq && seq < s[1] })
	}
	var marks []*ledger.Section
	for i := range sections {
		if s := &sections[i]; s.Seq > 0 && s.Kind == ledger.KindControl {
			marks = append(marks, s)
		}
	}
	slices.SortFunc(marks, func(a, b *ledger.Section) int { return cmp.Compare(b.Seq, a.Seq) })
	for _, s := range marks {
		m, isMark := In(s)
		through, ok := ledger.ParseUint([]byte(s.Value(keyThrough)))
		switch {
		case is(s.Seq):
		case isMark:
			spans = append(spans, [2]uint64{0, m.Through + 1})
		case ok && string(s.ID) == Restore:
			spans = append(spans, [2]uint64{through, s.Seq})
		}
	}
	return is
}

// Record returns the record that begins a journal in which all records up to through
// were merged, into the merged ones that follow it, or moved out to the archive, of which that file has that size then.
func Record(through uint64, merged int, archive string, size int64, at time.Time) ledger.Record {
	r := ledger.Record{Kind: ledger.KindControl, ID: Compaction, Seq: through + 1}
	r.Add(keyThrough, strconv.FormatUint(through, 10)).Add(keyMerged, strconv.Itoa(merged)).
		Add(keyArchive, archive).Add(keySize, strconv.FormatInt(size, 10)).Add(ledger.KeyUpdated, ledger.Stamp(at))
	return r
}
