package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"stint/ledger/durable"
)

// journal is journal.md: written by one process, never by a person. All of it
// is owned by the log's goroutine, but for readAt.
type journal struct {
	fs   durable.FS
	path string
	file durable.File
	size int64 // bytes that are durable

	durable atomic.Int64 // size, for other goroutines
}

const journalName = "journal.md"

// chunk is how much of a file is read at a time on replay.
const chunk = 1 << 20

func openJournal(fsys durable.FS, dir string) (*journal, error) {
	j := &journal{fs: fsys, path: filepath.Join(dir, journalName)}
	_, err := fsys.Stat(j.path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		if err := durable.WriteFile(fsys, j.path, []byte(VersionLine+"\n\n")); err != nil {
			return nil, err
		}
	}
	j.file, err = fsys.OpenFile(j.path, os.O_RDWR|os.O_APPEND, 0)
	return j, err
}

// replay gives every record of the journal to apply, in order, cuts a torn tail
// off, and gives the highest seq. What is damaged in the middle is reported and
// passed over: the rest must not be lost for it.
func (j *journal) replay(apply func(*Section), report func(*SyntaxError)) (seq uint64, err error) {
	r := replayer{journal: j, apply: apply, report: report}
	if err := r.run(); err != nil {
		return 0, err
	}
	fi, err := j.file.Stat()
	if err != nil {
		return 0, err
	}
	j.setSize(r.good)
	if fi.Size() > r.good {
		if err := j.cutTail(fi.Size()); err != nil {
			return 0, err
		}
	}
	return r.seq, nil
}

func (j *journal) setSize(n int64) {
	j.size = n
	j.durable.Store(n)
}

// cutTail removes what was never acknowledged. The bytes are kept aside, in case
// that a person wants to see them.
func (j *journal) cutTail(end int64) error {
	tail := make([]byte, end-j.size)
	if _, err := j.file.ReadAt(tail, j.size); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(bytes.TrimSpace(tail)) > 0 {
		if err := durable.WriteFile(j.fs, j.path+".torn", tail); err != nil {
			return err
		}
	}
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	return j.file.Sync()
}

// A replayer reads a journal in chunks and scans the records in them.
type replayer struct {
	*journal
	apply  func(*Section)
	report func(*SyntaxError)

	buf    []byte // unread bytes from offset off on
	off    int64
	eof    bool
	good   int64 // end of the last record that counts
	seq    uint64
	group  []*Section // records of a change that is not complete yet
	record Section
}

func (r *replayer) run() error {
	header := true
	for {
		if err := r.fill(); err != nil {
			return err
		}
		if header {
			header = false
			if v := versionOf(r.buf); v > FormatVersion {
				return newerFormat(r.path, v)
			}
		}
		if err := r.scan(); err != nil {
			return err
		}
		if r.eof {
			return nil
		}
	}
}

func newerFormat(path string, v int) error {
	return fmt.Errorf("%s has format %d, this stint knows formats up to %d: use the newer stint that wrote it", path, v, FormatVersion)
}

// fill reads more behind the bytes that are left.
func (r *replayer) fill() error {
	need := max(chunk, len(r.buf)*2)
	if cap(r.buf) < need {
		r.buf = append(make([]byte, 0, need), r.buf...)
	}
	n, err := r.file.ReadAt(r.buf[len(r.buf):cap(r.buf)], r.off+int64(len(r.buf)))
	r.buf = r.buf[:len(r.buf)+n]
	if errors.Is(err, io.EOF) {
		r.eof, err = true, nil
	}
	return err
}

// scan takes all whole records from buf and moves the rest to its beginning.
func (r *replayer) scan() error {
	pos := 0
	for pos < len(r.buf) {
		if r.buf[pos] != '#' {
			next := bytes.IndexByte(r.buf[pos:], '\n')
			if next < 0 {
				break
			}
			first := r.off+int64(pos) == 0 // the version line
			empty := len(bytes.TrimSpace(r.buf[pos:pos+next])) == 0
			if pos += next + 1; first || empty && len(r.group) == 0 {
				r.good = r.off + int64(pos)
			}
			continue
		}
		n, more, err := scanStrict(r.buf[pos:], &r.record)
		if err == errCut {
			break
		}
		if err != nil {
			skipped, ok := r.skipDamage(pos)
			if !ok {
				break
			}
			pos = skipped
			continue
		}
		r.record.Off = r.off + int64(pos)
		pos += n
		r.take(more, r.off+int64(pos))
	}
	r.off += int64(pos)
	r.buf = r.buf[:copy(r.buf, r.buf[pos:])]
	return nil
}

// take applies the record, or keeps it until its change is complete.
func (r *replayer) take(more int, end int64) {
	r.seq = max(r.seq, r.record.Seq)
	if more > 0 {
		r.group = append(r.group, r.record.Clone())
		return
	}
	for _, s := range r.group {
		r.apply(s)
	}
	r.group = r.group[:0]
	r.apply(&r.record)
	r.good = end
}

// skipDamage gives where the next record begins behind bytes that are none. It
// gives false if there is no such record in buf: then it is a torn tail, or more
// must be read.
func (r *replayer) skipDamage(pos int) (int, bool) {
	for i := pos; ; {
		next := bytes.Index(r.buf[i:], []byte("\n## "))
		if next < 0 {
			return 0, false
		}
		i += next + 1
		var s Section
		if _, _, err := scanStrict(r.buf[i:], &s); err == nil {
			r.report(&SyntaxError{
				File: journalName,
				Msg:  fmt.Sprintf("%d bytes at offset %d are damaged and were passed over", i-pos, r.off+int64(pos)),
			})
			return i, true
		}
	}
}

// append writes batch behind the journal and makes it durable. An error that
// wraps errNotWritten left the journal as it was; after any other error nobody
// knows what is on the disk, and the log must stop.
func (j *journal) append(batch []byte) error {
	if _, err := j.file.Write(batch); err != nil {
		if terr := j.file.Truncate(j.size); terr != nil {
			return fmt.Errorf("write %s: %w, and then truncate: %w", j.path, err, terr)
		}
		return fmt.Errorf("%w: write %s: %w", errNotWritten, j.path, err)
	}
	if err := j.file.Datasync(); err != nil {
		return fmt.Errorf("fdatasync %s: %w", j.path, err)
	}
	j.setSize(j.size + int64(len(batch)))
	return nil
}

// sectionAt reads the record at off. It may be called by any goroutine.
func (j *journal) sectionAt(off int64) (*Section, error) {
	for size := 4 << 10; ; size *= 4 {
		buf := make([]byte, size)
		n, err := j.file.ReadAt(buf, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		s := new(Section)
		_, _, serr := scanStrict(buf[:n], s)
		if serr == nil {
			s.Off = off
			return s, nil
		}
		if serr != errCut || n < size {
			return nil, fmt.Errorf("%s: no record at offset %d", j.path, off)
		}
	}
}
