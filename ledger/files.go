package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"
)

// TasksName is the name of the ledger that people edit.
const TasksName = "tasks.md"

// JournalName is the name of the journal, which no person writes.
const JournalName = "journal.md"

// Files says which of the ledgers of a state directory: it is the name of the file without .md.
type Files string

// The ledgers. That of tasks is the zero value.
const (
	TaskFiles Files = ""
	JobFiles  Files = "jobs"
)

// Ledger returns the name of the file that people edit.
func (f Files) Ledger() string { return cmp.Or(string(f), "tasks") + ".md" }

// Journal returns the name of the journal.
func (f Files) Journal() string { return f.prefix() + JournalName }

// Index returns the name of the index of the archive.
func (f Files) Index() string { return f.prefix() + "index" }

func (f Files) prefix() string {
	if f == TaskFiles {
		return ""
	}
	return string(f) + "."
}

// Archive returns the name of the file into which a compaction moves records at t.
func (f Files) Archive(t time.Time) string {
	return cmp.Or(string(f), "tasks") + t.UTC().Format("-2006-01.md")
}

// Kind returns the kind of the records that it is about.
func (f Files) Kind() Kind {
	if f == JobFiles {
		return KindJob
	}
	return KindTask
}

// Preamble returns what begins a new file.
func (f Files) Preamble() string {
	if f == JobFiles {
		return jobsPreamble
	}
	return Preamble
}

const jobsPreamble = VersionLine + `
# Jobs

Anything a person writes here is kept. To queue a job by hand, append a section:

    ## Job some-name
    - status: queued
    - objectType: memory
    - objectId: id of the entry
    - action: verify
    - runAt: 2026-12-01T03:00:00Z
`

// Preamble begins a new tasks.md.
const Preamble = VersionLine + `
# Tasks

Anything a person writes here is kept. To run a task by hand, append a section:

    ## Task some-name
    - status: queued
    - prompt: what to do
`

// EmptyJournal is a journal without records.
const EmptyJournal = JournalLine + "\n\n"

// CheckFormat returns an error if a file is of a later version of the format.
func CheckFormat(path string, v int) error {
	if v <= FormatVersion {
		return nil
	}
	return fmt.Errorf("%s has format %d, this stint knows formats up to %d: use the newer stint that wrote it", path, v, FormatVersion)
}

// ScanPiece takes a record of a journal, or a line that is none and may stand
// there, the first one or an empty one: then more is -1.
func ScanPiece(data []byte, s *Section) (n, more int, err error) {
	if data[0] == '#' {
		return Scan(data, s)
	}
	line, n, ok := CutLine(data, 0)
	switch {
	case !ok:
		return 0, 0, ErrCut
	case VersionOf(line) > 0 && bytes.HasSuffix(line, endClose), len(bytes.TrimSpace(line)) == 0:
		return n, -1, nil
	}
	return 0, 0, errNotStrict
}

// NextRecord returns where behind damaged bytes a record begins; -1 if none does.
func NextRecord(data []byte) int {
	var s Section
	for i := 0; ; {
		next := bytes.Index(data[i:], []byte("\n## "))
		if next < 0 {
			return -1
		}
		i += next + 1
		if _, _, err := Scan(data[i:], &s); err == nil {
			return i
		}
	}
}

// SectionIn reads the record that begins at off in the bytes of a journal. It is a view into them.
func SectionIn(journal []byte, off int64) (*Section, error) {
	s := new(Section)
	if off < 0 || off >= int64(len(journal)) {
		return nil, fmt.Errorf("no record at offset %d", off)
	}
	if _, _, err := Scan(journal[off:], s); err != nil {
		return nil, fmt.Errorf("no record at offset %d: %w", off, err)
	}
	s.Off = off
	return s, nil
}

// EachRecord calls f with the records in data that stand there as stint wrote them.
func EachRecord(data []byte, f func(*Section)) {
	eachPiece(data, func(p Piece, s *Section) {
		if s != nil {
			s.Off = int64(p.Off)
			f(s)
		}
	})
}

// IsJournal reports whether a file that begins so is a journal.
func IsJournal(head []byte) bool { return bytes.HasPrefix(head, journalOpen) }

// IsTasks reports whether a file that begins so can be no journal: those of before have
// the first line of a ledger, but not its title.
func IsTasks(head []byte) bool {
	_, next, ok := CutLine(head, 0)
	return ok && bytes.HasPrefix(head, ledgerOpen) && bytes.HasPrefix(bytes.TrimLeft(head[next:], " \t\r\n"), []byte("# "))
}

// A Notice is something that a person should know: an edit that was taken over, records that were put back, or a finding.
type Notice struct {
	Finding *SyntaxError // nil if nothing is wrong in a file
	Text    string       // what happened, with file and line
	Damage  bool         // a file of ours was changed or lost by another hand, or by the disk
}

// MaxLeap is how far the numbers in tasks.md may be ahead of those in the journal.
const MaxLeap = 1 << 32

// SeqOutOfRange reports whether a person must have made up that seq. To go on from it could use up the numbers that there are.
func SeqOutOfRange(seq, last uint64) bool { return seq > last && seq-last > MaxLeap }

// Digest returns the digest of a section's text, the same with any line ends, trailing blanks and empty lines behind it.
func Digest(raw []byte) string {
	h := sha256.New()
	for line := range bytes.Lines(bytes.TrimRight(raw, " \t\r\n")) {
		_, _ = h.Write(TrimRight(bytes.TrimRight(line, "\n"))) // a hash never fails
		_, _ = h.Write([]byte("\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Stamp returns t as it stands in the ledger.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Plural returns a number with the word for it.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// EndsOpen reports whether something is to come behind text: it ends within a line, within a
// record that stint wrote, with a heading, or with an indented text that a person writes.
func EndsOpen(text []byte) bool {
	last := bytes.TrimRight(text, " \t\r\n")
	if len(last) == 0 || bytes.HasSuffix(last, endClose) { // the end of a record, or of a comment
		return false
	}
	line := last[bytes.LastIndexByte(last, '\n')+1:]
	head, fields, _ := bytes.Cut(last[bytes.LastIndex(last, []byte("\n## "))+1:], newline)
	_, _, isRecord := recordHeading(head)
	inBody := isRecord && (bytes.HasPrefix(line, []byte("  ")) || bytes.HasSuffix(line, []byte(": |")))
	return text[len(text)-1] != '\n' || bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("##")) || (isSeqLine(fields) || inBody) && !bytes.Contains(fields, endOpen)
}

// HasText reports whether data holds more than blanks.
func HasText(data []byte) bool { return len(bytes.TrimSpace(data)) > 0 }

// A Piece is a record of a journal, or bytes that are none.
type Piece struct {
	Raw  []byte
	Off  int
	Seq  uint64 // 0: damaged
	More int    // records of the same change that follow
}

// Pieces returns the pieces of a journal, or of the end of one, without the lines between them.
func Pieces(data []byte) (all []Piece) {
	eachPiece(data, func(p Piece, _ *Section) { all = append(all, p) })
	return all
}

// eachPiece calls f with each of them; s is nil where bytes are damaged.
func eachPiece(data []byte, f func(p Piece, s *Section)) {
	var s Section
	for off := 0; off < len(data); {
		n, more, err := ScanPiece(data[off:], &s)
		switch {
		case err != nil:
			if n = NextRecord(data[off:]); n < 0 {
				n = len(data) - off
			}
			f(Piece{Raw: data[off : off+n], Off: off}, nil)
		case more >= 0:
			f(Piece{data[off : off+n], off, s.Seq, more}, &s)
		}
		off += n
	}
}

// ReadSection reads the record at off of a file, whose name is for the error.
func ReadSection(f io.ReaderAt, name string, off int64) (*Section, error) {
	for size := 4 << 10; ; size *= 4 {
		buf := make([]byte, size)
		n, err := f.ReadAt(buf, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		s := new(Section)
		_, _, serr := Scan(buf[:n], s)
		if serr == nil {
			s.Off = off
			return s, nil
		}
		if serr != ErrCut || n < size {
			return nil, fmt.Errorf("%s: no record at offset %d", name, off)
		}
	}
}
