package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// CheckJournal is [ReadJournal] of bytes.
func CheckJournal(data []byte, apply func(*Section) (more bool)) []*SyntaxError {
	_, found, err := ReadJournal(bytes.NewReader(data), int64(len(data)), apply)
	if err != nil {
		panic("ledger: bytes cannot be read: " + err.Error())
	}
	return found
}

// chunk is how much of a journal is read at a time.
const chunk = 1 << 20

// ReadJournal reads size bytes of a journal, a part at a time. It calls apply with each record
// that counts, in order, until it wants no more; the section is valid during the call. It
// returns where the last change that counts ends, and everything that is wrong, in the order of
// lines. The last finding is Torn if the bytes end within a change, as they may when they
// were read while it was being written, or after a crash: nothing of that was acknowledged.
// The error is r's.
func ReadJournal(r io.ReaderAt, size int64, apply func(*Section) (more bool)) (good int64, found []*SyntaxError, err error) {
	s, group := new(Section), make([]*Section, 0, 8) // of a change that is not complete yet
	goodLine, kept := 1, 0                           // the line at good, and the findings before it
	buf, off, pos, line := []byte{}, int64(0), 0, 1  // what was read from off on, and where in it the next record begins
	for {
		rest, at := buf[pos:], off+int64(pos)
		isEnd := at+int64(len(rest)) >= size
		if len(rest) == 0 && isEnd {
			break
		}
		n, more, lines, cut := 0, 0, 1, ErrCut
		if len(rest) > 0 {
			n, more, cut = ScanPiece(rest, s)
		}
		damaged := cut != nil
		if damaged && (isEnd || cut != ErrCut) {
			n = NextRecord(rest)
			if n < 0 && isEnd {
				break
			}
		} else if damaged {
			n = -1
		}
		if n < 0 { // more must be read
			if need := max(chunk, 2*len(rest)); cap(buf) < need {
				buf = make([]byte, need)
			}
			k := copy(buf[:cap(buf)], rest)
			free := buf[k:cap(buf)]
			n, err := r.ReadAt(free[:min(int64(len(free)), size-at-int64(k))], at+int64(k))
			if buf, off, pos = buf[:k+n], at, 0; errors.Is(err, io.EOF) { // it has become shorter
				size, err = at+int64(len(buf)), nil
			}
			if err != nil {
				return good, found, err
			}
			continue
		}
		switch {
		case damaged:
			lines = bytes.Count(rest[:n], newline)
			found = append(found, &SyntaxError{File: JournalName, Line: line, Msg: fmt.Sprintf("%d bytes at offset %d are damaged and are passed over", n, at)})
		case more < 0 && len(group) == 0 && len(found) == kept: // an empty line, or the first one
			good, goodLine = at+int64(n), line+1
		case more >= 0:
			s.Off, s.Line, lines = at, line, s.lines
			if more > 0 {
				group = append(group, s.Clone())
				break
			}
			if slices.ContainsFunc(append(group, s), func(s *Section) bool { return !apply(s) }) { // with what is left of a damaged change before it
				return good, found, nil
			}
			group, good, goodLine, kept = group[:0], at+int64(n), line+lines, len(found)
		}
		pos, line = pos+n, line+lines
	}
	if torn := size - good; torn > 0 {
		found = append(found[:kept], &SyntaxError{
			File: JournalName, Line: goodLine, Torn: int(torn),
			Msg: fmt.Sprintf("the last %d bytes are of a change that is not complete; it was never acknowledged", torn),
		})
	}
	return good, found, nil
}
