package ledger

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// ControlCompaction is the id of the control record that begins a compacted journal.
const ControlCompaction = "compaction"

// Keys of that record.
const (
	keyThrough = "through" // all records up to that seq were merged or moved out
	keyMerged  = "merged"  // so many records that follow it are merged ones
	keyArchive = "archive" // the file that has what was superseded
)

// A Mark is the record that begins a compacted journal.
type Mark struct {
	Seq, Through uint64
	Merged       int
}

// MarkOf returns the mark at the beginning of a journal's bytes, and where it ends;
// a zero mark if there is none.
func MarkOf(data []byte) (m Mark, end int) {
	_, pos, ok := CutLine(data, 0) // the version line
	for ok && pos < len(data) && data[pos] == '\n' {
		pos++
	}
	var s Section
	if !ok || pos >= len(data) {
		return m, 0
	}
	n, _, err := Scan(data[pos:], &s)
	if err != nil {
		return m, 0
	}
	if m, ok = MarkIn(&s); !ok {
		return m, 0
	}
	return m, pos + n
}

// MarkIn reads the mark of a compaction; ok is false if s is none.
func MarkIn(s *Section) (m Mark, ok bool) {
	if s.Kind != KindControl || string(s.ID) != ControlCompaction {
		return m, false
	}
	through, ok1 := ParseUint([]byte(s.Value(keyThrough)))
	merged, ok2 := ParseUint([]byte(s.Value(keyMerged)))
	if !ok1 || !ok2 || through >= s.Seq || merged > MaxSeq {
		return m, false
	}
	return Mark{s.Seq, through, int(merged)}, true
}

// ControlRestored is the id of the control record that a restore writes. The numbers between its
// "through", the newest record of the copy, and its own belong to what was taken back.
const ControlRestored = "restored"

// Restored sets what a restore to a copy with the numbers up to through says of them.
func Restored(note *Record, through uint64) {
	note.Set(Pair{keyThrough, strconv.FormatUint(through, 10)})
}

// Superseded returns a function that reports whether the record of that number counts no more: a compaction
// has merged it or moved it out, or a restore has taken it back. The text of an old buffer may still have it.
func (d *Document) Superseded() (is func(seq uint64) bool) {
	var spans [][2]uint64 // the newest first: what is superseded itself says nothing of others
	is = func(seq uint64) bool {
		return slices.ContainsFunc(spans, func(s [2]uint64) bool { return s[0] < seq && seq < s[1] })
	}
	var marks []*Section
	for i := range d.Sections {
		if s := &d.Sections[i]; s.Seq > 0 && s.Kind == KindControl {
			marks = append(marks, s)
		}
	}
	slices.SortFunc(marks, func(a, b *Section) int { return cmp.Compare(b.Seq, a.Seq) })
	for _, s := range marks {
		m, isMark := MarkIn(s)
		through, ok := ParseUint([]byte(s.Value(keyThrough)))
		switch {
		case is(s.Seq):
		case isMark:
			spans = append(spans, [2]uint64{0, m.Through + 1})
		case ok && string(s.ID) == ControlRestored:
			spans = append(spans, [2]uint64{through, s.Seq})
		}
	}
	return is
}

// MarkRecord returns the record that begins a journal in which all records up to through
// were merged, into the merged ones that follow it, or moved out to that file of the archive.
func MarkRecord(through uint64, merged int, archive string, at time.Time) Record {
	r := Record{Kind: KindControl, ID: ControlCompaction, Seq: through + 1}
	r.Add(keyThrough, strconv.FormatUint(through, 10)).Add(keyMerged, strconv.Itoa(merged)).
		Add(keyArchive, archive).Add(KeyUpdated, Stamp(at))
	return r
}
