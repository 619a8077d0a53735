package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A SyntaxError says where a file does not follow the grammar. It is reported as file:line: message.
type SyntaxError struct {
	File string // base name; "" if the bytes came from no file
	Line int    // from 1; 0: the file as a whole
	Msg  string
	Torn int // so many bytes are a cut tail: they end before the record does
}

func (e *SyntaxError) Error() string {
	switch {
	case e.File == "":
		return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
	case e.Line == 0:
		return e.File + ": " + e.Msg
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
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

// MaxSeq is the highest number that a record can have: a larger one is a
// person's mistake, and numbers after it would soon run out.
const MaxSeq = 1 << 53

// errNotStrict says that bytes are not a record just as stint writes it.
var (
	errNotStrict = errors.New("not a record as stint writes it")
	ErrCut       = errors.New("the bytes end before the record does")
)

func kindOf(word []byte) (Kind, bool) {
	for _, k := range [...]Kind{KindTask, KindJob, KindControl} {
		if string(word) == string(k) {
			return k, true
		}
	}
	return "", false
}

var (
	newline  = []byte("\n")
	hashes   = []byte("## ")
	seqField = []byte("- seq: ")
	endOpen  = []byte("<!-- end ")
	endClose = []byte(" -->")
	moreWord = []byte(" more")
)

// Scan reads the record that begins at data[0] if it stands there just as stint wrote it. It returns the length up to and with
// the end line, and how many records of the same change follow. It reuses the memory of s.
//
// This is the fast way, for the journal and the untouched parts of tasks.md. It
// looks at each byte about once and allocates nothing.
func Scan(data []byte, s *Section) (n, more int, err error) {
	line, pos, ok := CutLine(data, 0)
	if !ok {
		return 0, 0, ErrCut
	}
	if !bytes.HasPrefix(line, hashes) {
		return 0, 0, errNotStrict
	}
	word, id, _ := bytes.Cut(line[len(hashes):], []byte(" "))
	kind, known := kindOf(word)
	if !known || !ValidID(id) {
		return 0, 0, errNotStrict
	}
	line, pos, ok = CutLine(data, pos)
	if !ok {
		return 0, 0, ErrCut
	}
	if !bytes.HasPrefix(line, seqField) {
		return 0, 0, errNotStrict
	}
	seq, okSeq := ParseUint(line[len(seqField):])
	if !okSeq || seq == 0 || seq > MaxSeq {
		return 0, 0, errNotStrict
	}
	s.Kind, s.ID, s.Seq, s.Fields, s.keys = kind, id, seq, s.Fields[:0], 0
	pos, lines, err := scanFields(data, pos, s)
	if err != nil {
		return 0, 0, err
	}
	line, pos, ok = CutLine(data, pos)
	if !ok {
		return 0, 0, ErrCut
	}
	endSeq, more, ok := parseEnd(line)
	if !ok || endSeq != seq {
		return 0, 0, errNotStrict
	}
	if bytes.IndexByte(data[:pos], 0) >= 0 {
		return 0, 0, errNotStrict // stint writes none: a power cut has left them
	}
	s.Raw = data[:pos]
	s.lines = lines + 1
	return pos, more, nil
}

// scanFields reads the fields up to the first line that is none. lines counts the lines from the heading to there.
func scanFields(data []byte, pos int, s *Section) (next, lines int, err error) {
	lines = 2
	for {
		line, after, ok := CutLine(data, pos)
		if !ok {
			return 0, 0, ErrCut
		}
		if len(line) < 3 || line[0] != '-' || line[1] != ' ' {
			return pos, lines, nil
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 0 || !validKey(line[2:colon]) || string(line[2:colon]) == KeySeq {
			return 0, 0, errNotStrict
		}
		f := Field{Key: line[2:colon], line: lines}
		value := line[colon+1:]
		pos, lines = after, lines+1
		if len(value) > 0 {
			if value[0] != ' ' || len(value) == 1 || hasBlankEnd(value[1:]) {
				return 0, 0, errNotStrict
			}
			value = value[1:]
		}
		if len(value) > 0 && value[0] == '|' && (len(value) == 1 || string(value) == markEscaped) {
			f.form = formBlock
			if len(value) > 1 {
				f.form = formEscaped
			}
			end, bodyLines := scanBody(data, pos)
			value = data[pos:end]
			pos, lines = end, lines+bodyLines
		}
		f.raw = value
		s.Fields, s.keys = append(s.Fields, f), s.keys|keyBit(f.Key)
	}
}

// hasBlankEnd reports whether a value begins or ends with a blank of any kind, which stint never writes on a line.
func hasBlankEnd(value []byte) bool {
	first, last := value[0], value[len(value)-1]
	if first > ' ' && first < utf8.RuneSelf && last > ' ' && last < utf8.RuneSelf {
		return false
	}
	return len(trimBoth(value)) < len(value)
}

// scanBody returns the end of the indented or empty lines from pos on.
func scanBody(data []byte, pos int) (end, lines int) {
	for pos < len(data) {
		c := data[pos]
		if c != '\n' && (c != ' ' || pos+1 >= len(data) || data[pos+1] != ' ') {
			break
		}
		i := bytes.IndexByte(data[pos:], '\n')
		if i < 0 {
			break
		}
		pos += i + 1
		lines++
	}
	return pos, lines
}

// CutLine returns the line at pos without its newline, and where the next begins.
func CutLine(data []byte, pos int) (line []byte, next int, ok bool) {
	i := bytes.IndexByte(data[pos:], '\n')
	if i < 0 {
		return nil, 0, false
	}
	return data[pos : pos+i], pos + i + 1, true
}

// lineAt is CutLine for text whose last line may have no newline.
func lineAt(data []byte, pos int) (line []byte, next int) {
	line, _, _ = bytes.Cut(data[pos:], newline)
	return line, min(len(data), pos+len(line)+1)
}

// parseEnd reads "<!-- end 12 -->" or "<!-- end 12, 3 more -->".
func parseEnd(line []byte) (seq uint64, more int, ok bool) {
	line, ok1 := bytes.CutPrefix(line, endOpen)
	line, ok2 := bytes.CutSuffix(line, endClose)
	if !ok1 || !ok2 {
		return 0, 0, false
	}
	if i := bytes.IndexByte(line, ','); i >= 0 {
		count, ok := bytes.CutSuffix(bytes.TrimPrefix(line[i+1:], []byte(" ")), moreWord)
		n, okN := ParseUint(count)
		if !ok || !okN || n > 1<<30 {
			return 0, 0, false
		}
		line, more = line[:i], int(n)
	}
	seq, ok = ParseUint(line)
	return seq, more, ok
}

// ParseUint reads a number as stint writes it.
func ParseUint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b), 10, 64)
	return v, err == nil
}

// parseOne reads the one record that raw holds.
func parseOne(raw []byte) (*Section, error) {
	s := new(Section)
	if _, _, err := Scan(raw, s); err == nil {
		s.Line = 1
		return s, nil
	}
	doc := Parse(raw)
	switch {
	case len(doc.Findings) > 0:
		return nil, doc.Findings[0]
	case len(doc.Sections) != 1:
		return nil, fmt.Errorf("%d records where one was expected", len(doc.Sections))
	}
	return &doc.Sections[0], nil
}

// CheckJournal is [ReadJournal] of bytes.
func CheckJournal(data []byte, apply func(*Section) (more bool)) []*SyntaxError {
	_, found, err := ReadJournal(bytes.NewReader(data), int64(len(data)), apply)
	if err != nil {
		panic("ledger: bytes cannot be read: " + err.Error())
	}
	return found
}

// chunk is how much of a journal is read at a time.
const chunk = 256 << 10

// ReadJournal reads size bytes of a journal, a part at a time. It calls apply with each record that counts, in order, until it
// wants no more; the section is valid during the call. It returns where the last change that counts ends, and everything that
// is wrong, in the order of lines. The last finding is Torn if the bytes end within a change, as they may when they were read
// while it was being written, or after a crash: nothing of that was acknowledged. The error is r's.
func ReadJournal(r io.ReaderAt, size int64, apply func(*Section) (more bool)) (good int64, found []*SyntaxError, err error) {
	var buf []byte
	return readJournal(r, size, apply, func(n int) []byte {
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		return buf[:cap(buf)]
	})
}

// A part of a journal is on its way from the scanner to who applies its records.
type part struct {
	buf      []byte
	sections []Section
	fields   []Field // of the sections
}

// ReplayJournal is ReadJournal for who wants all records. A goroutine reads and scans ahead of apply.
func ReplayJournal(r io.ReaderAt, size int64, apply func(*Section)) (good int64, found []*SyntaxError, err error) {
	scanned, free := make(chan *part, 1), make(chan *part, 3) // the end of one is copied into the next one, so it takes two
	for range cap(free) {
		free <- new(part)
	}
	go func() {
		defer close(scanned)
		p := <-free
		good, found, err = readJournal(r, size, func(s *Section) bool {
			from := len(p.fields)
			p.fields, p.sections = append(p.fields, s.Fields...), append(p.sections, *s)
			p.sections[len(p.sections)-1].Fields = p.fields[from:]
			return true
		}, func(n int) []byte {
			scanned <- p
			if p = <-free; cap(p.buf) < n {
				p.buf = make([]byte, n)
			}
			p.sections, p.fields = p.sections[:0], p.fields[:0]
			return p.buf[:cap(p.buf)]
		})
		scanned <- p
	}()
	for p := range scanned {
		for i := range p.sections {
			apply(&p.sections[i])
		}
		free <- p
	}
	return good, found, err
}

// readJournal is ReadJournal with the memory that room returns for the next part, of n bytes or more.
func readJournal(r io.ReaderAt, size int64, apply func(*Section) (more bool), room func(n int) []byte) (good int64, found []*SyntaxError, err error) {
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
			buf = room(max(int(min(chunk, size-at)), 2*len(rest)))
			k := copy(buf, rest)
			n, err := r.ReadAt(buf[k:min(int64(len(buf)), size-at)], at+int64(k))
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
