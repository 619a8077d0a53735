package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// A SparseFile can have holes, as an [os.File] can.
type SparseFile interface {
	io.ReaderAt
	io.Seeker
}

// OpenOutput opens a file of a run's directory for reading. A command may have put
// another thing there: it follows no link and waits for no pipe, which is an error with
// [CodeConflict].
func OpenOutput(runDir, name string) (*os.File, error) {
	path := filepath.Join(runDir, name)
	f, err := durable.Open(path, os.O_RDONLY, 0)
	var bad *durable.BadFileError
	if errors.As(err, &bad) && !bad.File {
		return nil, &task.Error{Code: task.CodeConflict, Message: path + " is no longer a file, and is not read: it " + bad.What, Hint: "a command has put something else there: ls -l " + path}
	}
	return f, err
}

// ReadOutput reads a whole file of a run's directory, as [OpenOutput] opens it.
func ReadOutput(runDir, name string) ([]byte, error) {
	f, err := OpenOutput(runDir, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}

// An Output reads a file that a run may still be writing. What was cut out of it, because
// it grew too long, is a hole: in its place stands a line that says so.
type Output struct {
	File SparseFile
	Off  int64 // of the next byte
	line []byte
}

// Read gives the next bytes, and io.EOF where there are no more yet.
func (o *Output) Read(p []byte) (int, error) {
	if len(o.line) == 0 {
		n, from, err := ReadData(o.File, p, o.Off)
		if from == o.Off {
			o.Off += int64(n)
			return n, err
		}
		o.line = holeLine(from - o.Off)
		o.Off = from
	}
	n := copy(p, o.line)
	o.line = o.line[n:]
	return n, nil
}

// holeLine is what stands in the place of a hole.
func holeLine(size int64) []byte {
	return fmt.Appendf(nil, "\n[%d bytes of this output were not kept]\n", size)
}

// ReadData reads the bytes at an offset up to the next hole. Where a hole is, it reads none
// and gives where that ends, else the offset itself.
func ReadData(f SparseFile, p []byte, off int64) (n int, from int64, err error) {
	n, err = f.ReadAt(p, off)
	if bytes.IndexByte(p[:n], 0) < 0 {
		return n, off, err // nothing of it is a hole, also if it has become one since
	}
	from, to := DataAt(f, off) // after the read, before which it may not yet have been cut
	if from > off {
		return 0, from, nil
	}
	if most := to - off; int64(n) > most {
		n, err = int(most), nil // an end of the file is behind the hole
	}
	return n, off, err
}

// DataAt gives where the next bytes begin that are no hole, from an offset on, and where
// they end. If only a hole follows, that is the end of the file; if the file system knows
// of no holes, it is all of the file.
func DataAt(f io.Seeker, off int64) (from, to int64) {
	from, err := f.Seek(off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		end, _ := f.Seek(0, io.SeekEnd) // 0 if it fails, which it cannot
		return max(off, end), math.MaxInt64
	}
	if err != nil {
		return off, math.MaxInt64
	}
	if to, err = f.Seek(from, unix.SEEK_HOLE); err != nil {
		to = math.MaxInt64
	}
	return from, to
}
