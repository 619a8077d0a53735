package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
)

// JSONLine returns a value as JSON on one line, with its break. What means something in HTML stays: people grep such files.
func JSONLine(v any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return line.Bytes(), err
}

// AppendLine adds a value as a [JSONLine] to a file, with one write; the file is made if there
// is none. What a crash or a full disk has cut off there before is first closed with a break,
// so that it cannot spoil this line. With sync the line is durable then.
func AppendLine(fsys FS, path string, v any, sync bool) error {
	line, err := JSONLine(v)
	if err != nil {
		return err
	}
	return With(fsys, path, os.O_RDWR|os.O_APPEND|os.O_CREATE, func(f File, fi fs.FileInfo) error {
		if last := []byte("\n"); fi.Size() > 0 {
			if _, err := f.ReadAt(last, fi.Size()-1); err != nil {
				return err
			}
			if last[0] != '\n' {
				line = append([]byte("\n"), line...)
			}
		}
		_, err := f.Write(line)
		if err == nil && sync {
			err = f.Sync()
		}
		return err
	})
}

// KeepLines takes out of a file the lines for which keep returns false. One that does not exist has none.
func KeepLines(fsys FS, path string, keep func(line []byte) bool) error {
	text, err := ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(text) {
		if keep(line) {
			kept = append(kept, line...)
		}
	}
	return ReplaceFile(fsys, path, kept)
}

// Newest passes on the lines of a file from the last to the first, until f returns false. Of one that does not exist there are none.
func Newest(fsys FS, path string, f func(line []byte) bool) error {
	const most = 1 << 20 // bytes of a line
	err := With(fsys, path, os.O_RDONLY, func(file File, fi fs.FileInfo) error {
		for lines := (Backward{R: file, Begin: fi.Size(), Limit: most}); ; {
			line, _, err := lines.Line()
			if err == nil && f(line) {
				continue
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Backward reads the lines of a file from the last to the first.
type Backward struct {
	R     io.ReaderAt
	Begin int64  // in the file, of buf; at first where the last line ends
	Limit int    // bytes: of a longer line nothing is returned
	buf   []byte // what was read and not yet returned
}

// firstChunk is how much is read at once; of a line that is longer, as much again as is known of it.
const firstChunk = 64 << 10

// Line returns the next line and where it begins, or io.EOF before the first one.
func (b *Backward) Line() (line []byte, begin int64, err error) {
	if len(b.buf) == 0 && b.Begin == 0 {
		return nil, 0, io.EOF
	}
	tooLong := false
	for searched := 0; ; {
		end := len(b.buf) - searched
		if searched == 0 && end > 0 && b.buf[end-1] == '\n' {
			end-- // its own line break
		}
		i := bytes.LastIndexByte(b.buf[:end], '\n')
		if i >= 0 || b.Begin == 0 {
			line, b.buf = b.buf[i+1:], b.buf[:i+1]
			if tooLong || len(line) > b.Limit {
				line = nil
			}
			return line, b.Begin + int64(i) + 1, nil
		}
		if searched = len(b.buf); searched > b.Limit {
			tooLong, searched, b.buf = true, 1, []byte{' '} // no more than that there is something
		}
		if err := b.more(); err != nil {
			return nil, 0, err
		}
	}
}

// more reads what stands before buf.
func (b *Backward) more() error {
	n := min(b.Begin, int64(max(firstChunk, len(b.buf))))
	buf := make([]byte, int(n)+len(b.buf))
	if _, err := b.R.ReadAt(buf[:n], b.Begin-n); err != nil {
		return err
	}
	copy(buf[n:], b.buf)
	b.Begin, b.buf = b.Begin-n, buf
	return nil
}
