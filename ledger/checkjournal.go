package ledger

import (
	"bytes"
	"fmt"
	"slices"
)

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
	isLast := func(s *Section) bool { return !apply(s) }
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
			if slices.ContainsFunc(group, isLast) {
				return found
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
		if slices.ContainsFunc(group, isLast) {
			return found
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
