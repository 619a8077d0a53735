package coordinator

import (
	"fmt"
	"io"
	"math"

	"golang.org/x/sys/unix"
)

// An Output reads a file that a run may still be writing. What was cut out of it, because
// it grew too long, is a hole: in its place stands a line that says so.
type Output struct {
	File interface { // an [os.File]
		io.ReaderAt
		io.Seeker
	}
	Off  int64 // of the next byte
	line []byte
}

// Read gives the next bytes, and io.EOF where there are no more yet.
func (o *Output) Read(p []byte) (int, error) {
	if len(o.line) == 0 {
		n, err := o.File.ReadAt(p, o.Off)
		from, to := DataAt(o.File, o.Off) // after the read, before which it may not yet have been cut
		if n == 0 || from == o.Off {
			n = int(min(int64(n), to-o.Off))
			o.Off += int64(n)
			return n, err
		}
		o.line = fmt.Appendf(nil, "\n[%d bytes of this output were not kept]\n", from-o.Off)
		o.Off = from
	}
	n := copy(p, o.line)
	o.line = o.line[n:]
	return n, nil
}

// DataAt gives where the next bytes begin that are no hole, from an offset on, and where
// they end. If the file system knows of no holes, it is all of the file.
func DataAt(f io.Seeker, off int64) (from, to int64) {
	from, err := f.Seek(off, unix.SEEK_DATA)
	if err != nil {
		return off, math.MaxInt64
	}
	if to, err = f.Seek(from, unix.SEEK_HOLE); err != nil {
		to = math.MaxInt64
	}
	return from, to
}
