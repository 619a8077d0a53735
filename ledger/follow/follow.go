// Package follow reads the records of a journal one after another, as they are written: a
// [Follower] misses none, however slow its reader is.
package follow

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
)

// followEvery is how often the journal of another process is looked at.
const followEvery = 200 * time.Millisecond

// ErrClosed is the error of a follower that was closed, or whose log was.
var ErrClosed = errors.New("the ledger is closed")

// chunk is how much of a file is read at a time.
const chunk = 1 << 20

// A Log is what a follower of a log in this process knows of it.
type Log struct {
	Done   <-chan struct{}       // closed when nothing more comes
	Size   func() int64          // bytes of the journal that are durable
	Is     func(durable.ID) bool // reports whether that file is the one that is written
	Closed func(*Follower)       // is called by Close; it may come twice
}

// A Follower returns the records of a journal in their order, from one seq on, and
// misses none, however slow its reader is. It has one reader; Close may come from
// any goroutine.
//
// What compaction merged is told once: a reader that had read all records gets the
// mark of the compaction ("Control compaction") and then what is new; one that had
// not gets the merged records instead of those that it missed. A new follower knows of
// that what its seq tells: see Place.
type Follower struct {
	fs   durable.FS
	path string
	log  *Log          // nil: the journal is another process's
	wake chan struct{} // capacity 1: there is more, or the journal was replaced
	done chan struct{} // closed by Close

	mu     sync.Mutex // guards what follows; held while reading, not while waiting
	file   durable.File
	after  uint64 // records up to it are not asked for
	last   uint64 // highest seq that was given
	merged uint64 // merged records up to that seq say what the reader has read already
	place  uint64 // see Place
	read   int64  // the reader has done with the file up to here
	stale  bool   // the file is not the journal any more
	closed bool

	buf    []byte // bytes of the file from off on
	off    int64
	pos    int // in buf: the next record
	end    int // in buf: the end of the change of several records that is being given
	record ledger.Section
}

// New returns the records of the log in dir after that seq, as soon as they are durable. The
// log calls Poke when there is more, and Replaced when its journal is another file.
func New(fsys durable.FS, dir string, after uint64, log *Log) *Follower {
	f := Dir(fsys, dir, after)
	f.log = log
	return f
}

// Dir returns the records of the journal in dir after that seq, which a master
// in another process may be writing. A change of several records is given whole. A
// record may be seen a moment before it is durable. A nil fsys is the machine's.
func Dir(fsys durable.FS, dir string, after uint64) *Follower {
	return &Follower{
		fs: cmp.Or(fsys, durable.OS), path: filepath.Join(dir, ledger.JournalName), after: after, last: after, place: after,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Close ends the follower; a Next that waits returns ErrClosed.
func (f *Follower) Close() error {
	if f.log != nil {
		f.log.Closed(f)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	close(f.done)
	return f.letGo()
}

// letGo closes the file and forgets what was read of it.
func (f *Follower) letGo() (err error) {
	if f.file != nil {
		err = f.file.Close()
	}
	f.file, f.buf, f.off, f.pos, f.end, f.read, f.stale = nil, f.buf[:0], 0, 0, 0, 0, false
	return err
}

// Next returns the next record. It waits until there is one, or until ctx ends; its
// error is ctx's cause then. The section is a view that is valid until the next
// call, which also says that the reader has done with it: a log is not compacted
// before. The error is ErrClosed when the follower or its log was closed.
func (f *Follower) Next(ctx context.Context) (*ledger.Section, error) {
	var logDone <-chan struct{}
	if f.log != nil {
		logDone = f.log.Done
	}
	for {
		ended := false // asked before looking, so that nothing is missed
		select {
		case <-logDone:
			ended = true
		default:
		}
		s, err := f.step()
		if s != nil || err != nil {
			return s, err
		}
		if ended {
			return nil, ErrClosed
		}
		var again <-chan time.Time
		if f.log == nil {
			again = time.After(followEvery)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-f.wake:
		case <-f.done:
		case <-again:
		case <-logDone:
		}
	}
}

// step returns the next record that is there and whose change is whole, or nil.
func (f *Follower) step() (*ledger.Section, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrClosed
	}
	f.read = f.off + int64(f.pos)
	for {
		if f.file == nil {
			file, err := f.fs.OpenFile(f.path, os.O_RDONLY, 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if err == nil && f.log != nil {
				fi, err := file.Stat()
				if err != nil || !f.log.Is(durable.IDOf(fi)) { // it was renamed this moment; the log wakes us when it uses it
					if err = errors.Join(err, file.Close()); err != nil {
						return nil, err
					}
					file = nil
				}
			}
			f.file = file
		}
		n := 0
		if f.file != nil {
			if f.scan() {
				if f.wanted(&f.record) {
					return &f.record, nil
				}
				continue
			}
			var err error
			if n, err = f.fill(); err != nil {
				return nil, err
			}
		}
		if n > 0 {
			continue
		}
		f.read = f.off + int64(len(f.buf))
		if again, err := f.refresh(); err != nil || !again {
			return nil, err
		}
	}
}

// Place returns the seq from which a new follower goes on where this one is: behind the
// record that Next gave last. Behind the mark of a compaction it is that of the last
// merged record if the reader does not get those, and if it does, as before the mark.
func (f *Follower) Place() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.place
}

// wanted reports whether the reader is to get the record, and notes that it has.
func (f *Follower) wanted(s *ledger.Section) bool {
	m, isMark := ledger.MarkIn(s)
	comesMerged := isMark && m.Merged > 0 && f.last < m.Through
	if isMark && f.last >= m.Through && f.after <= m.Seq { // behind it, merged records have been given before
		f.merged = max(f.merged, m.Seq+uint64(m.Merged))
	}
	f.last = max(f.last, s.Seq)
	if s.Seq <= f.after || s.Seq <= f.merged && !isMark {
		return false
	}
	if !comesMerged {
		f.place = max(s.Seq, f.merged)
	}
	return true
}

// scan scans the next record in buf whose change is whole into f.record.
func (f *Follower) scan() bool {
	for f.pos < len(f.buf) {
		n, more, err := ledger.ScanPiece(f.buf[f.pos:], &f.record)
		switch {
		case errors.Is(err, ledger.ErrCut):
			return false
		case err != nil:
			next := ledger.NextRecord(f.buf[f.pos:])
			if next < 0 {
				return false
			}
			f.pos += next
			continue
		case more < 0:
			f.pos += n
			continue
		case more > 0 && f.pos >= f.end: // is the change whole? damage ends one, as it does on replay
			at := f.pos + n
			for more != 0 && err == nil {
				if at >= len(f.buf) {
					return false
				}
				if n, more, err = ledger.ScanPiece(f.buf[at:], &f.record); errors.Is(err, ledger.ErrCut) {
					return false
				}
				at += n
			}
			f.end = at
			continue // scanned again: the memory of the section served to look ahead
		}
		f.record.Off = f.off + int64(f.pos)
		f.pos += n
		return true
	}
	return false
}

// fill reads more behind what is left in buf, and returns how much.
func (f *Follower) fill() (int, error) {
	f.off += int64(f.pos)
	f.end -= f.pos
	f.buf, f.pos = f.buf[:copy(f.buf, f.buf[f.pos:])], 0
	room := int64(math.MaxInt64)
	if f.log != nil {
		room = f.log.Size() - f.off - int64(len(f.buf))
	}
	if room <= 0 {
		return 0, nil
	}
	if need := max(chunk, 2*len(f.buf)); cap(f.buf) < need {
		f.buf = append(make([]byte, 0, need), f.buf...)
	}
	into := f.buf[len(f.buf):cap(f.buf)]
	into = into[:min(int64(len(into)), room)]
	n, err := f.file.ReadAt(into, f.off+int64(len(f.buf)))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	first := f.off == 0 && len(f.buf) == 0
	f.buf = f.buf[:len(f.buf)+n]
	if v := ledger.VersionOf(f.buf); first && v > ledger.FormatVersion {
		return 0, ledger.NewerFormat(f.path, v)
	}
	return n, err
}

// refresh looks at a journal that gave nothing more, and reports whether that may
// be different now: it was replaced by a compaction, or cut back.
func (f *Follower) refresh() (again bool, err error) {
	if f.log != nil {
		if !f.stale {
			return false, nil
		}
		return true, f.reopen(f.last)
	}
	if f.file == nil {
		return false, nil
	}
	now, err := f.fs.Stat(f.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it is being replaced by hand
		}
		return false, err
	}
	ours, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	switch n, id := durable.IDOf(now), durable.IDOf(ours); {
	case !n.SameFile(id):
		if id.Size > f.off+int64(len(f.buf)) {
			return true, nil // what was written before it was replaced
		}
		return true, f.reopen(f.last)
	case id.Size < f.off+int64(f.pos): // its writer took back what it had not acknowledged (its disk was full): these numbers are given again
		data := make([]byte, id.Size)
		n, err := f.file.ReadAt(data, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		last := uint64(0)
		ledger.EachRecord(data[:n], func(s *ledger.Section) { last = max(last, s.Seq) })
		return true, f.reopen(min(f.last, last))
	}
	f.buf, f.end = f.buf[:f.pos], 0 // half a change may be cut back and written anew: it is read again
	return false, nil
}

// reopen begins again with the journal that is there now, after that seq.
func (f *Follower) reopen(after uint64) error {
	f.after, f.last, f.merged, f.place = after, after, 0, after
	return f.letGo()
}

// Poke wakes the reader.
func (f *Follower) Poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// IsBehind reports whether the reader has not done with the journal up to size.
func (f *Follower) IsBehind(size int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stale || f.read < size
}

// Replaced says that the journal is another file now.
func (f *Follower) Replaced() {
	f.mu.Lock()
	f.stale = true
	f.mu.Unlock()
	f.Poke()
}
