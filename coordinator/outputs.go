package coordinator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sort"
	"syscall"
)

// Outputs are the files of some runs, one behind the other, as far as they went when
// they were opened: what a reader of them gets has a length, and each byte a place. As
// with [Output], a line stands where something was cut out. They are safe for
// concurrent reading.
type Outputs struct {
	parts []part
	files []*os.File
	size  int64
	begin hash.Hash // of which files they are, how they begin, and what was cut out of them
}

// A part is a piece of a file without a hole, or the line in the place of one.
type part struct {
	at   int64 // where it begins in the whole
	size int64
	file SparseFile // nil: it is line
	off  int64      // in file
	line []byte
}

// errCut says that a piece of a file is gone.
var errCut = errors.New("a part of the output was cut out while it was read")

// OpenOutputs opens files as [OpenOutput] does. The caller closes them.
func OpenOutputs(paths []string) (*Outputs, error) {
	o := &Outputs{begin: sha256.New()}
	for _, path := range paths {
		f, err := OpenOutput(filepath.Split(path))
		if err == nil {
			o.files = append(o.files, f)
			err = errors.Join(o.identify(f), o.add(f))
		}
		if err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	return o, nil
}

// firstBlock is how much of a file tells one content of it from another.
const firstBlock = 4096

// identify notes which file it is and how it begins: another may get its name, and a run
// may empty its own and write on. Of a short file it takes 1, 16 or 256 bytes, so that
// these change seldom while it grows.
func (o *Outputs) identify(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	n := int64(0)
	for k := int64(1); k <= min(fi.Size(), firstBlock); k *= 16 {
		n = k
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) { // it may have been emptied
		return err
	}
	o.begin.Write(fmt.Appendf(nil, "%q %d %q\n", f.Name(), n, b))
	if id, ok := fi.Sys().(*syscall.Stat_t); ok {
		o.begin.Write(fmt.Appendf(nil, "%d %d\n", id.Dev, id.Ino))
	}
	return nil
}

// add puts a file behind those that are there.
func (o *Outputs) add(f SparseFile) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for off := int64(0); off < end; {
		from, to := DataAt(f, off)
		from, to = min(from, end), min(to, end)
		if from > off {
			line := holeLine(from - off)
			o.begin.Write(fmt.Appendf(nil, "%d %d\n", off, from))
			o.append(part{size: int64(len(line)), line: line})
		}
		if to > from {
			o.append(part{size: to - from, file: f, off: from})
		}
		off = max(from, to)
	}
	return nil
}

func (o *Outputs) append(p part) {
	p.at = o.size
	o.size += p.size
	o.parts = append(o.parts, p)
}

// Close closes the files.
func (o *Outputs) Close() error {
	var err error
	for _, f := range o.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Begin names what the whole begins with: while it stays the same, what comes later is
// only added at the end. It changes when more is cut out, when a file is replaced or begins
// with other bytes, when another run follows, and a few times while a file is short.
func (o *Outputs) Begin() string { return hex.EncodeToString(o.begin.Sum(nil)[:16]) }

// Size gives the length of the whole in bytes.
func (o *Outputs) Size() int64 { return o.size }

// ReadAt implements [io.ReaderAt]. What was cut out since is an error, as zeros in its
// place would be no output.
func (o *Outputs) ReadAt(b []byte, off int64) (n int, err error) {
	i := sort.Search(len(o.parts), func(i int) bool { return o.parts[i].at+o.parts[i].size > off })
	for ; i < len(o.parts) && n < len(b); i++ {
		k, err := o.parts[i].readAt(b[n:], off+int64(n)-o.parts[i].at)
		n += k
		if err != nil {
			return n, err
		}
	}
	if n < len(b) {
		err = io.EOF
	}
	return n, err
}

// readAt reads up to the end of the part, from an offset in it.
func (p *part) readAt(b []byte, off int64) (int, error) {
	if p.file == nil {
		return copy(b, p.line[off:]), nil
	}
	b = b[:min(int64(len(b)), p.size-off)]
	off += p.off
	n, err := p.file.ReadAt(b, off)
	switch {
	case n < len(b) && (err == nil || errors.Is(err, io.EOF)):
		return n, errCut // it was emptied
	case n < len(b):
		return n, err
	case bytes.IndexByte(b, 0) < 0:
		return n, nil // nothing of it is a hole
	}
	if from, to := DataAt(p.file, off); from > off || to < off+int64(n) {
		return 0, errCut
	}
	return n, nil
}

// Tail gives where the last so many lines begin; 0 is none. A line without its end counts.
func (o *Outputs) Tail(lines int) (off int64, err error) {
	const most = 64 << 10
	buf := make([]byte, most)
	for end := o.size; lines > 0 && end > 0; {
		b := buf[:min(most, end)]
		begin := end - int64(len(b))
		if n, err := o.ReadAt(b, begin); n < len(b) {
			return 0, err
		}
		if end == o.size && b[len(b)-1] == '\n' {
			b = b[:len(b)-1] // the end of the last line
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if lines--; lines == 0 {
				return begin + int64(i) + 1, nil
			}
		}
		end = begin
	}
	if lines == 0 {
		return o.size, nil
	}
	return 0, nil
}
