package ledger

import (
	"bytes"
	"fmt"
	"slices"
)

// CheckJournal returns everything that is wrong in the bytes of a journal, in the
// order of its lines, and calls apply with each record that counts, in order, until it
// wants no more. The section is valid during the call. The
// last finding is Torn if the bytes end within a change, as they may when they
// were read while it was being written, or after a crash: nothing of that was
// acknowledged. Lines and offsets are those of data.
func CheckJournal(data []byte, apply func(*Section) (more bool)) (found []*SyntaxError) {
	s, group := new(Section), []*Section(nil) // of a change that is not complete yet
	line, counted, off := 1, 0, 0
	good, kept := 0, 0 // the end of the last change that counts, and the findings before it
	for off < len(data) {
		n, more, err := ScanPiece(data[off:], off == 0, s)
		line += bytes.Count(data[counted:off], newline)
		counted = off
		if err != nil {
			if n = NextRecord(data[off:]); n < 0 {
				break
			}
			found = append(found, &SyntaxError{File: JournalName, Line: line, Msg: fmt.Sprintf("%d bytes at offset %d are damaged and are passed over", n, off)})
		}
		switch {
		case err == nil && more < 0 && len(group) == 0 && len(found) == kept: // an empty line, or the first one
			good = off + n
		case err == nil && more >= 0:
			s.Off, s.Line = int64(off), line
			if group = append(group, s); more > 0 {
				s = new(Section)
				break
			}
			if slices.ContainsFunc(group, func(s *Section) bool { return !apply(s) }) { // with what is left of a damaged change before it
				return found
			}
			group, good, kept = group[:0], off+n, len(found)
		}
		off += n
	}
	if good < len(data) {
		found = append(found[:kept], &SyntaxError{
			File: JournalName, Line: 1 + bytes.Count(data[:good], newline), Torn: len(data) - good,
			Msg: fmt.Sprintf("the last %d bytes are of a change that is not complete; it was never acknowledged", len(data)-good),
		})
	}
	return found
}
