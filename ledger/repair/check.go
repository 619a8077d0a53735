package repair

import (
	"slices"

	"stint/ledger"
	"stint/ledger/salvage"
)

// CheckFile returns everything that is wrong in one ledger file by itself, in the
// order of its lines. name is what the findings call the file. check is given the
// records as a new state directory with this file alone would accept them: those of stint
// by their numbers, then what people wrote. It says what is
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

// refusals asks check about the sections that count when the file is all there is: its
// records, as they were written, and then what people wrote that no record has taken over.
func refusals(doc *ledger.Document, check func(*ledger.Section) error) (list []refusal) {
	if check == nil {
		return nil
	}
	originals := doc.Originals()
	ask := func(s *ledger.Section) {
		as := s
		if r, edited := originals.Record(s); edited {
			if enc, err := ledger.Encode(&r); err == nil {
				as = enc
			}
		}
		if err := check(as); err != nil {
			list = append(list, refusal{s, ledger.RefusedAt(s, err)})
		}
	}
	adopted := map[string]int{} // how often, by digest: of equal ones each once
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if _, isSeq := ledger.ParseUint([]byte(s.Value(ledger.KeyEdits))); s.Seq > 0 && s.Get(ledger.KeyAdopts) != nil && !isSeq {
			adopted[s.Value(ledger.KeyAdopts)]++
		}
	}
	for _, s := range salvage.Records(doc) {
		ask(s)
	}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq > 0 {
			continue
		}
		if digest := ledger.Digest(s.Raw); adopted[digest] > 0 {
			adopted[digest]--
			continue
		}
		ask(s)
	}
	return list
}
