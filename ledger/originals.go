package ledger

import (
	"fmt"
	"slices"
)

// Originals has the records that people have edited, by their seq, as they were written.
type Originals map[uint64]Record

// Originals returns what the adoptions in d have kept of edited records. A journal that is
// made anew of tasks.md has them so, and each edit where it was taken over: what came in
// between may be impossible behind it.
func (d *Document) Originals() Originals {
	o := Originals{}
	for i := range d.Sections {
		s := &d.Sections[i]
		if s.Seq == 0 || s.Get(KeyUnedited) == nil {
			continue
		}
		seq, isSeq := ParseUint([]byte(s.Value(KeyEdits)))
		if _, known := o[seq]; known || !isSeq {
			continue
		}
		kept := Parse(fmt.Appendf(nil, "## %s\n- seq: %d\n%s\n<!-- end %d -->\n", s.Name(), seq, s.Value(KeyUnedited), seq))
		if len(kept.Sections) == 1 && len(kept.Findings) == 0 {
			o[seq] = kept.Sections[0].Record()
		}
	}
	return o
}

// Record returns the record of a section as it was written, as far as that is known, and
// whether the section says something else.
func (o Originals) Record(s *Section) (r Record, edited bool) {
	stands := s.Record()
	r, known := o[s.Seq]
	if !known || r.Name() != stands.Name() || slices.Equal(r.Fields, stands.Fields) {
		return stands, false
	}
	return r, true
}
