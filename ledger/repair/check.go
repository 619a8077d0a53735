package repair

import (
	"slices"

	"stint/ledger"
)

// CheckFile returns everything that is wrong in one ledger file by itself, in the
// order of its lines. name is what the findings call the file. check is given the
// records as a new state directory with this file alone would take them in: those
// with a seq in the order of the file, then what people wrote. It says what is
// wrong with a record; nil: nothing is.
func CheckFile(name string, data []byte, check func(*ledger.Section) error) []*ledger.SyntaxError {
	doc := ledger.Parse(data)
	found := slices.Clone(doc.Findings)
	if doc.Version > ledger.FormatVersion {
		found = append(found, &ledger.SyntaxError{Line: 1, Msg: ledger.NewerFormat(name, doc.Version).Error()})
	}
	for _, r := range refusals(doc, check) {
		found = append(found, r.finding)
	}
	for _, f := range found {
		f.File = name
	}
	slices.SortStableFunc(found, func(a, b *ledger.SyntaxError) int { return a.Line - b.Line })
	return found
}

// A refusal is a section that parses and that the reader of the fold refuses.
type refusal struct {
	section *ledger.Section
	finding *ledger.SyntaxError
}

// refusals asks check about the sections that count when the file is all there
// is: of several with one seq the first, and of what people wrote that which no
// record of the file has taken over. What check says of a section that a later
// record has taken over once more is of no account.
func refusals(doc *ledger.Document, check func(*ledger.Section) error) (list []refusal) {
	if check == nil {
		return nil
	}
	adopted, edited := takenOver(doc)
	originals := doc.Originals()
	ask := func(s *ledger.Section) {
		as := s
		if r, known := originals.Record(s); known {
			if enc, err := ledger.Encode(&r); err == nil {
				as = enc
			}
		}
		if err := check(as); err != nil && !edited[s.Seq] {
			list = append(list, refusal{s, ledger.RefusedAt(s, err)})
		}
	}
	seen := map[uint64]bool{}
	var written []*ledger.Section
	for i := range doc.Sections {
		s := &doc.Sections[i]
		switch {
		case s.Seq > 0 && !seen[s.Seq]:
			seen[s.Seq] = true
			ask(s)
		case s.Seq == 0 && !adopted.take(ledger.Digest(s.Raw)):
			written = append(written, s)
		}
	}
	for _, s := range written {
		ask(s)
	}
	return list
}

// counts says how often a digest was adopted.
type counts map[string]int

// take takes one away, if there is one.
func (c counts) take(digest string) bool {
	c[digest]--
	return c[digest] >= 0
}

// takenOver returns what the file's own records say they have taken over: the
// digests of hand-written sections, and the seqs of edited ones.
func takenOver(doc *ledger.Document) (adopted counts, edited map[uint64]bool) {
	adopted, edited = counts{}, map[uint64]bool{}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq == 0 || s.Get(ledger.KeyAdopts) == nil {
			continue
		}
		seq, isSeq := ledger.ParseUint([]byte(s.Value(ledger.KeyEdits)))
		if isSeq {
			edited[seq] = true
		} else {
			adopted[s.Value(ledger.KeyAdopts)]++
		}
	}
	return adopted, edited
}
