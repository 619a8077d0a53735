// Package follow reads the records of a journal one after another, as they are written: a
// [Follower] misses none, however slow its reader is.
package follow

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/mark"
)

// followEvery is how often the journal of another process is looked at.
const followEvery = 200 * time.Millisecond

// ErrClosed is the error of a follower that was closed, or whose log was.
var ErrClosed = errors.New("the ledger is closed")

// window is how much of a file is read at a time, unless a change is larger.
const window = 1 << 20

// A Log is what a follower of a log in this process knows of it.
type Log struct {
	Done   <-chan struct{}       // closed when nothing more comes
	Size   func() int64          // bytes of the journal that are durable
	Is     func(durable.ID) bool // reports whether that file is the one that is written
	Closed func(*Follower)       // is called by Close; it may come twice
}

// A Follower returns the records of a journal in their order, from one seq on, and misses none, however slow
// its reader is. It has one reader; Close may come from any goroutine.
//
// What compaction merged is told once: a reader that had read all records gets the mark of the compaction
// ("Control compaction") and then what is new; one that had not gets the merged records instead of those that
// it missed. A new follower knows of that what its seq tells: see Place.
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

	off  int64             // the changes before it were read
	next []*ledger.Section // the records of these that were not given yet
}

// New returns the records of the log with that journal after that seq, as soon as they are durable.
// The log calls Poke when there is more, and Replaced when its journal is another file.
func New(fsys durable.FS, journal string, after uint64, log *Log) *Follower {
	return &Follower{
		fs: cmp.Or(fsys, durable.OS), path: journal, after: after, last: after, place: after, log: log,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Dir returns the records of the journal in dir after that seq, which a master in another process may be writing. A change of
// several records is given whole. A record may be seen a moment before it is durable. A nil fsys is the machine's.
func Dir(fsys durable.FS, dir string, after uint64) *Follower {
	return New(fsys, filepath.Join(dir, ledger.JournalName), after, nil)
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
	f.file, f.off, f.next, f.read, f.stale = nil, 0, nil, 0, false
	return err
}

// Next returns the next record. It waits until there is one, or until ctx ends; its error is ctx's cause
// then. The next call says that the reader has done with the record: a log is not compacted before. The error
// is ErrClosed when the follower or its log was closed.
func (f *Follower) Next(ctx context.Context) (*ledger.Section, error) {
	var logDone <-chan struct{}
	if f.log != nil {
		logDone = f.log.Done
	}
	for ended := false; ; { // known before looking, so that nothing is missed
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
			ended = true
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
	for {
		if f.file == nil {
			if err := f.open(); err != nil {
				return nil, err
			}
		}
		if f.file != nil {
			for len(f.next) > 0 {
				s := f.next[0]
				f.next, f.read = f.next[1:], s.Off
				if f.wanted(s) {
					return s, nil
				}
			}
			if err := f.fill(); err != nil {
				return nil, err
			}
			if len(f.next) > 0 {
				continue
			}
		}
		if again, err := f.refresh(); err != nil || !again {
			return nil, err
		}
	}
}

// open opens the journal, if it is there.
func (f *Follower) open() error {
	file, err := f.fs.OpenFile(f.path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	fi, err := file.Stat()
	if err != nil || f.log != nil && !f.log.Is(durable.IDOf(fi)) { // it was renamed this moment; the log wakes us when it uses it
		return errors.Join(err, file.Close())
	}
	head, err := io.ReadAll(io.NewSectionReader(file, 0, 4<<10))
	if err = cmp.Or(err, ledger.CheckFormat(f.path, ledger.VersionOf(head))); err != nil {
		return errors.Join(err, file.Close())
	}
	f.file = file
	return nil
}

// Place returns the seq from which a new follower goes on where this one is: behind the record that Next gave last. Behind the
// mark of a compaction it is that of the last merged record if the reader does not get those, and if it does, as before the mark.
func (f *Follower) Place() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.place
}

// wanted reports whether the reader is to get the record, and notes that it has.
func (f *Follower) wanted(s *ledger.Section) bool {
	m, isMark := mark.In(s)
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

// fill reads the next changes that are whole.
func (f *Follower) fill() error {
	fi, err := f.file.Stat()
	if err != nil {
		return err
	}
	size := fi.Size()
	if f.log != nil {
		size = min(size, f.log.Size())
	}
	for most := int64(window); f.off < size; most *= 2 {
		part := min(most, size-f.off)
		n, _, err := ledger.ReadJournal(io.NewSectionReader(f.file, f.off, part), part, func(s *ledger.Section) bool {
			s = s.Clone()
			s.Off += f.off
			f.next = append(f.next, s)
			return true
		})
		if f.off += n; err != nil {
			return err
		}
		if len(f.next) > 0 {
			return nil
		}
		if part < most {
			break
		}
	}
	f.read = size // what is left is no change, or none yet
	return nil
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
		if id.Size > f.read {
			return true, nil // what was written before it was replaced
		}
		return true, f.reopen(f.last)
	case id.Size < f.off: // its writer took back what it had not acknowledged (its disk was full): these numbers are given again
		data := make([]byte, id.Size)
		n, err := f.file.ReadAt(data, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		last := uint64(0)
		ledger.EachRecord(data[:n], func(s *ledger.Section) { last = max(last, s.Seq) })
		return true, f.reopen(min(f.last, last))
	}
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
