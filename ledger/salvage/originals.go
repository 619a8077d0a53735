package salvage

import (
	"fmt"
	"slices"

	"stint/ledger"
)

// Originals has the records that people have edited, by their seq, as they were written.
type Originals map[uint64]ledger.Record

// OriginalsOf returns what the adoptions in a tasks.md have kept of edited records. A journal that is made anew of it has them
// so, and each edit where it was taken over: what came in between may be impossible behind it.
func OriginalsOf(doc *ledger.Document) Originals {
	o := Originals{}
	for _, s := range slices.Backward(Records(doc)) { // an adoption may have been edited in its turn
		if _, edited := o[s.Seq]; !edited && s.Get(ledger.KeyUnedited) == nil {
			continue
		}
		r := o.Record(s)
		edits, _ := r.Get(ledger.KeyEdits)
		seq, isSeq := ledger.ParseUint([]byte(edits))
		fields, kept := r.Get(ledger.KeyUnedited)
		if !kept || !isSeq {
			continue
		}
		doc := ledger.Parse(fmt.Appendf(nil, "## %s\n- seq: %d\n%s\n<!-- end %d -->\n", r.Name(), seq, fields, seq))
		if len(doc.Sections) == 1 && len(doc.Findings) == 0 {
			o[seq] = doc.Sections[0].Record()
		}
	}
	return o
}

// Record returns the record of a section as it was written, as far as that is known.
func (o Originals) Record(s *ledger.Section) ledger.Record {
	stands := s.Record()
	if r, known := o[s.Seq]; known && r.Name() == stands.Name() {
		return r
	}
	return stands
}
