// Package salvage makes a whole journal of a damaged one and tasks.md, which has the same
// records. It works on bytes, reads no file and writes none.
//
// [Merge] puts records into a journal by their numbers. [Journal] makes one of tasks.md alone. [Gaps] knows which numbers a journal
// lacks for a good reason, so that others are noticed.
package salvage

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"stint/ledger"
	"stint/ledger/mark"
)

// Known returns the records of sections, by seq, as stint wrote them, as far as originals knows that of those
// that a person has edited. Each is a change of its own: what belonged to it may be lost.
func Known(sections []ledger.Section, originals Originals) map[uint64][]byte {
	known := map[uint64][]byte{}
	for i := range sections {
		s := &sections[i]
		if s.Seq == 0 || ledger.SeqOutOfRange(s.Seq, 0) || known[s.Seq] != nil {
			continue
		}
		_, edited := originals[s.Seq]
		var own ledger.Section
		if n, more, err := ledger.Scan(s.Raw, &own); err == nil && n == len(s.Raw) && more == 0 && !edited {
			known[s.Seq] = s.Raw
			continue
		}
		r := originals.Record(s)
		if raw, err := ledger.AppendRecord(nil, &r); err == nil {
			known[s.Seq] = bytes.TrimSuffix(raw, []byte("\n"))
		}
	}
	return known
}

// Merge makes a journal of pieces of one and of records that it may lack, by their numbers. Records that the journal has are taken
// out of known. Damage stays where numbers are still missing; out is what does not. newest is the highest number in tasks.md.
func Merge(pieces []ledger.Piece, known map[uint64][]byte, newest uint64) (journal, out []byte) {
	var all []ledger.Piece
	last := uint64(0)
	for i := 0; i < len(pieces); i++ {
		p := pieces[i]
		if p.Seq > 0 {
			delete(known, p.Seq)
			last = p.Seq
			all = append(all, p)
			continue
		}
		next := uint64(0) // the record behind the damage; 0: none
		if k := slices.IndexFunc(pieces[i:], func(q ledger.Piece) bool { return q.Seq > 0 }); k > 0 {
			next = pieces[i+k].Seq
		}
		found := uint64(0)
		for seq := range known {
			if last < seq && seq < next {
				found++
			}
		}
		switch {
		case next > last && found == next-last-1:
			out = append(out, p.Raw...)
		case next > 0 && bytes.IndexByte(p.Raw, 0) >= 0 && newest <= last:
			// A power cut has left a piece of a batch that was never acknowledged: there are zeros
			// in it, and tasks.md, which gets a batch when it has been acknowledged, has nothing as
			// new. The rest of the change that it may have been a part of goes too.
			for n := len(all) - 1; n >= 0 && all[n].More > 0; n-- {
				out, all, last = append(out, all[n].Raw...), all[:n], all[n].Seq-1
			}
			for ; i < len(pieces); i++ {
				if out = append(out, pieces[i].Raw...); pieces[i].Seq > 0 && pieces[i].More == 0 {
					break
				}
			}
		default:
			p.Seq = last
			all = append(all, p)
		}
	}
	for seq, raw := range known {
		all = append(all, ledger.Piece{Raw: raw, Seq: seq})
	}
	slices.SortStableFunc(all, func(a, b ledger.Piece) int { return cmp.Compare(a.Seq, b.Seq) })
	journal = []byte(ledger.EmptyJournal)
	for i := range all {
		journal = append(append(journal, all[i].Raw...), '\n')
	}
	return journal, out
}

// Written returns how often sections of that digest were written or copied by a person, as records
// say: if they have a seq, he made it up, or it is another record's.
func Written(doc *ledger.Document) map[string]int {
	written := map[string]int{}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Get(ledger.KeyAdopts) == nil {
			continue
		}
		if _, isSeq := ledger.ParseUint([]byte(s.Value(ledger.KeyEdits))); !isSeq {
			written[s.Value(ledger.KeyAdopts)]++
		}
	}
	return written
}

// Records returns the sections of a tasks.md that are records, in the order of their seqs, each seq once. Their order in the
// file is not always that one: a record may have landed behind an old buffer, and those before it were put back below. What a
// person wrote or copied is no record, and what a later compaction or restore has superseded is of an old buffer.
func Records(doc *ledger.Document) []*ledger.Section {
	written, superseded := Written(doc), mark.Superseded(doc.Sections)
	records := map[uint64]*ledger.Section{}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq > 0 && !superseded(s.Seq) && records[s.Seq] == nil && (len(written) == 0 || written[ledger.Digest(s.Raw)] == 0) {
			records[s.Seq] = s
		}
	}
	return slices.SortedFunc(maps.Values(records), func(a, b *ledger.Section) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Journal returns the journal that the records of a tasks.md make, as they were written, and how many there are.
func Journal(doc *ledger.Document) (journal []byte, n int) {
	var records []ledger.Section
	for _, s := range Records(doc) {
		records = append(records, *s)
	}
	known := Known(records, OriginalsOf(doc))
	journal, _ = Merge(nil, known, 0)
	return journal, len(known)
}

// Gaps are the numbers that a journal did not have when it was read: those of before a
// compaction, those that a restore has taken back, and lost ones.
type Gaps struct {
	Last  uint64      // of the records that were read
	Spans [][2]uint64 // first and last number of each
	Notes [][]byte    // the records that say which numbers count no more
}

// Read notes a record of the journal.
func (g *Gaps) Read(s *ledger.Section) {
	if s.Seq > g.Last+1 {
		g.Spans = append(g.Spans, [2]uint64{g.Last + 1, s.Seq - 1})
	}
	g.Last = max(g.Last, s.Seq)
	if s.Kind == ledger.KindControl && (string(s.ID) == mark.Compaction || string(s.ID) == mark.Restore) {
		g.Notes = append(g.Notes, bytes.Clone(s.Raw))
	}
}

// Skip notes that these numbers are not given to records of the journal.
func (g *Gaps) Skip(first, last uint64) {
	g.Spans = append(g.Spans[:len(g.Spans):len(g.Spans)], [2]uint64{first, last})
}

// Superseded is that of the journal's own records.
func (g *Gaps) Superseded() (is func(seq uint64) bool) {
	return mark.Superseded(ledger.Parse(bytes.Join(g.Notes, nil)).Sections)
}

// Has reports whether the journal lacked that number.
func (g *Gaps) Has(seq uint64) bool {
	return slices.ContainsFunc(g.Spans, func(span [2]uint64) bool { return span[0] <= seq && seq <= span[1] })
}

// New says which numbers up to last a journal lacks that the one that was read did not; "" if none.
func (g *Gaps) New(journal []byte, last uint64) (text string) {
	now := Gaps{}
	for _, p := range ledger.Pieces(journal) {
		if p.Seq > 0 {
			now.Read(&ledger.Section{Seq: p.Seq})
		}
	}
	now.Read(&ledger.Section{Seq: last + 1})
	for _, span := range now.Spans {
		if !slices.ContainsFunc(g.Spans, func(before [2]uint64) bool { return before[0] <= span[0] && span[1] <= before[1] }) {
			text += fmt.Sprintf("; of the numbers %d to %d nothing was found, in %s neither", span[0], span[1], ledger.TasksName)
		}
	}
	return text
}
