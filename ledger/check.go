package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CheckFile returns everything that is wrong in one ledger file by itself, in the
// order of its lines. name is what the findings call the file. check is given the
// records as a new state directory with this file alone would take them in: those
// with a seq in the order of the file, then what people wrote. It says what is
// wrong with a record; nil: nothing is.
func CheckFile(name string, data []byte, check func(*Section) error) []*SyntaxError {
	doc := Parse(data)
	found := slices.Clone(doc.Findings)
	if doc.Version > FormatVersion {
		found = append(found, &SyntaxError{Line: 1, Msg: NewerFormat(name, doc.Version).Error()})
	}
	for _, r := range refusals(doc, check) {
		found = append(found, r.finding)
	}
	for _, f := range found {
		f.File = name
	}
	slices.SortStableFunc(found, func(a, b *SyntaxError) int { return a.Line - b.Line })
	return found
}

// A refusal is a section that parses and that the reader of the fold refuses.
type refusal struct {
	section *Section
	finding *SyntaxError
}

// refusals asks check about the sections that count when the file is all there
// is: of several with one seq the first, and of what people wrote that which no
// record of the file has taken over. What check says of a section that a later
// record has taken over once more is of no account.
func refusals(doc *Document, check func(*Section) error) (list []refusal) {
	if check == nil {
		return nil
	}
	adopted, edited := takenOver(doc)
	ask := func(s *Section) {
		if err := check(s); err != nil && !edited[s.Seq] {
			list = append(list, refusal{s, RefusedAt(s, err)})
		}
	}
	seen := map[uint64]bool{}
	var written []*Section
	for i := range doc.Sections {
		s := &doc.Sections[i]
		switch {
		case s.Seq > 0 && !seen[s.Seq]:
			seen[s.Seq] = true
			ask(s)
		case s.Seq == 0 && !adopted.take(Digest(s.Raw)):
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
func takenOver(doc *Document) (adopted counts, edited map[uint64]bool) {
	adopted, edited = counts{}, map[uint64]bool{}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq == 0 || s.Get(KeyAdopts) == nil {
			continue
		}
		seq, isSeq := ParseUint([]byte(s.Value(KeyEdits)))
		if isSeq {
			edited[seq] = true
		} else {
			adopted[s.Value(KeyAdopts)]++
		}
	}
	return adopted, edited
}

// RefusedAt makes a finding of what check said, at the line of the field that it
// names: there the reason alone is enough, if it says what it speaks of.
func RefusedAt(s *Section, err error) *SyntaxError {
	f := &SyntaxError{Line: s.Line, Msg: strings.Join(strings.Fields(err.Error()), " ")}
	var at interface {
		FieldKey() string
		Unwrap() error
	}
	if !errors.As(err, &at) {
		return f
	}
	if field := s.Get(at.FieldKey()); field != nil {
		f.Line = s.LineOf(field)
		if f.Msg = strings.Join(strings.Fields(at.Unwrap().Error()), " "); !strings.Contains(f.Msg, at.FieldKey()) {
			f.Msg = at.FieldKey() + ": " + f.Msg
		}
	}
	return f
}

// CheckJournal returns everything that is wrong in the bytes of a journal, in the
// order of its lines, and calls apply with each record that counts, in order. The
// last finding is Torn if the bytes end within a change, as they may when they
// were read while it was being written, or after a crash: nothing of that was
// acknowledged. Lines and offsets are those of data.
func CheckJournal(data []byte, apply func(*Section)) (found []*SyntaxError) {
	return CheckJournalWhile(data, func(s *Section) bool { apply(s); return true })
}

// CheckJournalWhile is CheckJournal that ends as soon as apply wants no more. What it
// returns is what was found until then.
func CheckJournalWhile(data []byte, apply func(*Section) (more bool)) (found []*SyntaxError) {
	var group []*Section // of a change that is not complete yet
	line, counted := 1, 0
	for _, p := range Pieces(data, true) {
		line += bytes.Count(data[counted:p.Off], newline)
		counted = p.Off
		end := p.Off + len(p.Raw)
		if p.Seq == 0 {
			if end < len(data) {
				found = append(found, &SyntaxError{File: JournalName, Line: line, Msg: fmt.Sprintf("%d bytes at offset %d are damaged and are passed over", len(p.Raw), p.Off)})
				continue
			}
			if len(group) == 0 { // it is torn there
				group = []*Section{{Off: int64(p.Off), Line: line}}
			}
			break
		}
		if k := len(group); k > 0 && p.Seq != group[k-1].Seq+1 { // what is left of a change that was damaged
			for _, s := range group {
				if !apply(s) {
					return found
				}
			}
			group = nil
		}
		s, err := SectionIn(data, int64(p.Off))
		if err != nil {
			panic("ledger: a record that was read cannot be read again: " + err.Error())
		}
		s.Line = line
		if group = append(group, s); p.More > 0 {
			continue
		}
		for _, s := range group {
			if !apply(s) {
				return found
			}
		}
		group = nil
	}
	if len(group) > 0 {
		first := group[0]
		found = append(found, &SyntaxError{
			File: JournalName, Line: first.Line, Torn: true,
			Msg: fmt.Sprintf("the last %d bytes are of a change that is not complete; it was never acknowledged", len(data)-int(first.Off)),
		})
	}
	return found
}
