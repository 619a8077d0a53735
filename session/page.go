package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"stint/ledger/durable"
)

// A Page is a piece of a transcript.
type Page struct {
	Messages []Message // in their order
	Begin    int64     // where the first of them stands in the file, for ReadPage to go on before it; 0: nothing is before it
}

// ErrNoPlace means that a transcript cannot be read from a place on: no line begins
// there. It is the place of another transcript, or the file was changed.
var ErrNoPlace = errors.New("there is no such place in the transcript")

// maxPage bounds a page of several messages, in bytes of the file.
const maxPage = 8 << 20

// ReadPage returns the last n messages of a transcript, or with before the last n of those
// that stand before that place, a Page.Begin. They may be fewer where they are large; with 0
// it is all of them. It reads no more of the file than it must. Lines that are no message
// are passed over: cut off, damaged, of another type, or longer than 64 MiB.
func ReadPage(path string, before int64, n int) (p Page, err error) {
	f, err := durable.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return p, fmt.Errorf("transcript: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return p, fmt.Errorf("transcript: %w", err)
	}
	if before == 0 {
		before = fi.Size()
	} else if !beginsLine(f, before, fi.Size()) {
		return p, ErrNoPlace
	}
	p, err = readPage(&backward{r: f, begin: before, limit: maxLine}, n)
	if err != nil {
		return Page{}, fmt.Errorf("transcript: %w", err)
	}
	return p, nil
}

// beginsLine reports whether a line may begin at an offset of a file of that size.
func beginsLine(r io.ReaderAt, off, size int64) bool {
	var last [1]byte
	if off < 0 || off > size {
		return false
	}
	_, err := r.ReadAt(last[:], off-1)
	return err == nil && last[0] == '\n'
}

func readPage(b *backward, n int) (p Page, err error) {
	end := b.begin + int64(len(b.buf))
	for n == 0 || len(p.Messages) < n && (len(p.Messages) == 0 || end-p.Begin < maxPage) {
		line, begin, err := b.line()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return p, err
		}
		p.Begin = begin
		if m, ok := parseLine(line); ok {
			p.Messages = append(p.Messages, m)
		}
	}
	slices.Reverse(p.Messages)
	return p, nil
}

// backward reads the lines of a file from the last to the first.
type backward struct {
	r     io.ReaderAt
	begin int64  // of buf in the file
	buf   []byte // what was read and not yet returned
	limit int    // of a longer line nothing is returned
}

// firstChunk is how much is read at once; of a line that is longer, as much again as is
// known of it.
const firstChunk = 64 << 10

// line returns the next line and where it begins, or io.EOF before the first one.
func (b *backward) line() (line []byte, begin int64, err error) {
	if len(b.buf) == 0 && b.begin == 0 {
		return nil, 0, io.EOF
	}
	tooLong := false
	for searched := 0; ; {
		end := len(b.buf) - searched
		if searched == 0 && end > 0 && b.buf[end-1] == '\n' {
			end-- // its own line break
		}
		i := bytes.LastIndexByte(b.buf[:end], '\n')
		if i >= 0 || b.begin == 0 {
			line, b.buf = b.buf[i+1:], b.buf[:i+1]
			if tooLong || len(line) > b.limit {
				line = nil
			}
			return line, b.begin + int64(i) + 1, nil
		}
		if searched = len(b.buf); searched > b.limit {
			tooLong, searched, b.buf = true, 1, []byte{' '} // no more than that there is something
		}
		if err := b.more(); err != nil {
			return nil, 0, err
		}
	}
}

// more reads what stands before buf.
func (b *backward) more() error {
	n := min(b.begin, int64(max(firstChunk, len(b.buf))))
	buf := make([]byte, int(n)+len(b.buf))
	if _, err := b.r.ReadAt(buf[:n], b.begin-n); err != nil {
		return err
	}
	copy(buf[n:], b.buf)
	b.begin, b.buf = b.begin-n, buf
	return nil
}
