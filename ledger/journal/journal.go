package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
)

// journal is journal.md: written by one process, never by a person. All of it is owned by the log's goroutine, but for readAt.
type journal struct {
	fs   durable.FS
	name string // of the file, for findings
	path string
	file durable.File // other goroutines hold mu
	size int64        // bytes that are durable

	mu      sync.RWMutex // held for reading by who reads file from elsewhere, for writing while it is swapped
	durable atomic.Int64 // size, for other goroutines
	doubted atomic.Bool  // a reader has missed a record: it must be looked at whole

	near [4]atomic.Pointer[window] // what was read last: the records of a task may be far from each other, and so may those of its neighbours
	turn atomic.Uint32             // the next of them to be replaced
}

// replay passes every record of the journal to apply, in order, cuts a torn tail off, makes durable what is left, and returns
// the highest seq. Damage in the middle is reported and passed over: the rest must not be lost for it ([Log.restoreMissing]).
func (j *journal) replay(apply func(*ledger.Section), report func(*ledger.SyntaxError), note func(ledger.Notice)) (seq uint64, err error) {
	fi, err := j.file.Stat()
	if err != nil {
		return 0, err
	}
	head, err := io.ReadAll(io.NewSectionReader(j.file, 0, 4<<10))
	if err = cmp.Or(err, ledger.CheckFormat(j.path, ledger.VersionOf(head))); err != nil {
		return 0, err
	}
	good, found, err := ledger.ReplayJournal(j.file, fi.Size(), func(s *ledger.Section) {
		seq = max(seq, s.Seq)
		apply(s)
	})
	if err != nil {
		return 0, fmt.Errorf("%s %w", j.path, err)
	}
	for _, f := range found {
		if f.File = j.name; f.Torn == 0 {
			report(f)
		}
	}
	j.setSize(good)
	tail, err := io.ReadAll(io.NewSectionReader(j.file, good, fi.Size()-good))
	if err != nil {
		return 0, err
	}
	if len(tail) > 0 { // it was never acknowledged; a person may want to see it
		if len(bytes.Trim(tail, "\x00 \t\r\n")) > 0 { // a power cut may leave a file longer than what was written, with zeros in it
			path := durable.FreeName(j.fs, j.path+".torn")
			if err := durable.WriteFile(j.fs, path, tail); err != nil {
				return 0, err
			}
			name := filepath.Base(path)
			n := ledger.Notice{Text: fmt.Sprintf("%s: the last %d bytes are of a change that was cut off before it was acknowledged; they are now in %s", j.name, len(tail), name)}
			if first := bytes.TrimLeft(tail, " \t\r\n")[0]; first != '#' && first != 0 { // a record, or what a power cut has left of one
				n = ledger.Notice{Damage: true, Text: fmt.Sprintf("%s: another hand has written the last %d bytes; they are now in %s", j.name, len(tail), name)}
			}
			note(n)
		}
		if err := j.file.Truncate(j.size); err != nil {
			return 0, err
		}
	}
	// What another master has written may be in the kernel's memory alone. It must be
	// durable before anyone, or tasks.md, hears of it.
	return seq, j.file.Datasync()
}

// change makes another file of that size the journal, and returns the old one.
func (j *journal) change(file durable.File, size int64) (old durable.File) {
	j.mu.Lock()
	defer j.mu.Unlock()
	old, j.file = j.file, file
	j.setSize(size)
	return old
}

func (j *journal) setSize(n int64) {
	j.size = n
	j.durable.Store(n)
}

// append writes batch behind the journal and makes it durable, and says how long that fdatasync took. An error that wraps
// errNotWritten left the journal as it was; after any other error nobody knows what is on the disk, and the log must stop.
func (j *journal) append(batch []byte, now func() time.Time) (took time.Duration, err error) {
	if _, err := j.file.Write(batch); err != nil {
		if terr := j.cutBack(); terr != nil {
			return took, fmt.Errorf("write %s: %w, and then truncate: %w", j.path, err, terr)
		}
		return took, fmt.Errorf("%w: write %s: %w", errNotWritten, j.path, err)
	}
	begun := now()
	err = j.file.Datasync()
	took = now().Sub(begun)
	if err != nil {
		// The kernel may hold the bytes as clean and never write them. A restart must
		// not read them from its memory and build upon them.
		return took, errors.Join(fmt.Errorf("fdatasync %s: %w", j.path, err), j.cutBack())
	}
	j.setSize(j.size + int64(len(batch)))
	return took, nil
}

// cutBack takes back what was written and not acknowledged. A file that another hand has made shorter must not get longer by it.
func (j *journal) cutBack() error {
	fi, err := j.file.Stat()
	if err != nil || fi.Size() <= j.size {
		return err
	}
	return j.file.Truncate(j.size)
}

// sectionAt reads the record at off. It may be called by any goroutine.
func (j *journal) sectionAt(off int64) (s *ledger.Section, err error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	defer func() {
		if err != nil {
			j.doubted.Store(true)
		}
	}()
	for i := range j.near {
		if s := j.near[i].Load().section(j.file, off); s != nil {
			return s, nil
		}
	}
	near := &window{file: j.file, off: max(0, off-windowBefore)}
	near.data = make([]byte, max(0, min(off+windowAfter, j.durable.Load())-near.off))
	if _, err := j.file.ReadAt(near.data, near.off); err == nil {
		j.near[j.turn.Add(1)%uint32(len(j.near))].Store(near)
		if s := near.section(j.file, off); s != nil {
			return s, nil
		}
	}
	return ledger.ReadSection(j.file, j.path, off)
}

// A window is a piece of the journal in memory: who reads one record often reads
// its neighbours next. It has only what is durable, which never changes.
type window struct {
	file durable.File
	off  int64
	data []byte
}

// How much of the journal is read around a record. Lists go from the newest to the oldest, so more lies before it.
const (
	windowBefore = 48 << 10
	windowAfter  = 16 << 10
)

// section returns the record at off, nil if it is not whole in the window.
func (w *window) section(f durable.File, off int64) *ledger.Section {
	if w == nil || w.file != f || off < w.off || off >= w.off+int64(len(w.data)) {
		return nil
	}
	s, err := ledger.SectionIn(w.data, off-w.off)
	if err != nil {
		return nil
	}
	s.Off = off
	return s
}
