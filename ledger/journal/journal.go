package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/salvage"
	"stint/ledger/tasksfile"
)

// journal is journal.md: written by one process, never by a person. All of it
// is owned by the log's goroutine, but for readAt.
type journal struct {
	fs   durable.FS
	path string
	file durable.File // other goroutines hold mu
	head int64        // where the first line ends, which says what the file is
	size int64        // bytes that are durable

	mu      sync.RWMutex // held for reading by who reads file from elsewhere, for writing while it is swapped
	durable atomic.Int64 // size, for other goroutines
	doubted atomic.Bool  // a reader has missed a record: it must be looked at whole

	near [4]atomic.Pointer[window] // what was read last: the records of a task may be far from each other, and so may those of its neighbours
	turn atomic.Uint32             // the next of them to be replaced
}

// chunk is how much of a file is read at a time on replay.
const chunk = 1 << 20

// readTasks returns tasks.md; nil if there is none that can be read.
func (j *journal) readTasks() (doc *ledger.Document, err error) {
	snap, err := tasksfile.ReadSnapshot(context.Background(), j.fs, filepath.Dir(j.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !ledger.IsJournal(snap.Data) { // one of those has the same records
		return nil, err
	}
	return ledger.Parse(snap.Data), nil
}

// keepAside writes data to a free name: the journal's with that ending.
func (j *journal) keepAside(data []byte, ending string) (string, error) {
	name := freeName(j.fs, j.path+ending)
	return filepath.Base(name), durable.WriteFile(j.fs, name, data)
}

// A listener hears what a replay finds.
type listener struct {
	apply  func(*ledger.Section)     // each record, in order
	report func(*ledger.SyntaxError) // damage that stays
	note   func(ledger.Notice)       // damage that was repaired
}

// replay passes every record of the journal to apply, in order, cuts a torn tail
// off, makes durable what is left, and gives the highest seq. Damage in the middle
// is mended from tasks.md ([replayer.mend]); what cannot be is reported and passed
// over: the rest must not be lost for it.
//
// Where data is not nil it is what was just written there, and no record is read from the
// file: another hand may change that meanwhile.
func (j *journal) replay(data []byte, to listener) (seq uint64, err error) {
	r := replayer{journal: j, listener: to, data: data, mended: data != nil}
	if data != nil {
		j.near[0].Store(&window{file: j.file, data: data})
		defer j.near[0].Store(nil)
	}
	if err := r.run(); err != nil {
		return 0, err
	}
	if data != nil { // what is left of a change is all that there is of it
		r.applyGroup()
		r.good = r.size
	}
	j.setSize(r.good)
	if r.size > r.good { // it was never acknowledged; a person may want to see it
		tail := make([]byte, r.size-r.good)
		if _, err := j.file.ReadAt(tail, r.good); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if !isVoid(tail) {
			name, err := j.keepAside(tail, ".torn")
			if err != nil {
				return 0, err
			}
			n := ledger.Notice{Text: fmt.Sprintf("%s: the last %d bytes are of a change that was cut off before it was acknowledged; they are now in %s", ledger.JournalName, len(tail), name)}
			if first := bytes.TrimLeft(tail, " \t\r\n")[0]; first != '#' && first != 0 { // a record, or what a power cut has left of one
				n = ledger.Notice{Damage: true, Text: fmt.Sprintf("%s: another hand has written the last %d bytes; they are now in %s", ledger.JournalName, len(tail), name)}
			}
			to.note(n)
		}
		if err := j.file.Truncate(r.good); err != nil {
			return 0, err
		}
	}
	// What another master has written may be in the kernel's memory alone. It must be
	// durable before anyone, or tasks.md, hears of it.
	return r.seq, j.file.Datasync()
}

func (j *journal) setSize(n int64) {
	j.size = n
	j.durable.Store(n)
}

// isVoid reports whether nobody has written anything in data: a power cut may
// leave a file longer than what was written, with zeros in it.
func isVoid(data []byte) bool { return len(bytes.Trim(data, "\x00 \t\r\n")) == 0 }

// A replayer reads a journal in chunks and scans the records in them.
type replayer struct {
	*journal
	listener
	data []byte // what the file has; nil: it is read

	buf    []byte // unread bytes from offset off on
	off    int64
	size   int64 // of the file
	good   int64 // end of the last change that counts
	last   uint64
	seq    uint64            // highest
	group  []*ledger.Section // records of a change that is not complete yet
	record ledger.Section
	mended bool // mend was tried

	counted int64 // bytes of which the lines were counted, for what is reported
	lines   int
}

func (r *replayer) run() error {
	if err := r.restart(); err != nil {
		return err
	}
	if v := ledger.VersionOf(r.buf); v > ledger.FormatVersion {
		return ledger.NewerFormat(r.path, v)
	}
	for {
		damaged := r.scan()
		if !damaged && r.off+int64(len(r.buf)) < r.size {
			if err := r.fill(); err != nil {
				return err
			}
			continue
		}
		again := false
		if !r.mended && (damaged || !isVoid(r.buf) || len(r.group) > 0) {
			var err error
			if again, err = r.mend(); err != nil {
				return err
			}
		}
		switch {
		case again:
			if err := r.restart(); err != nil {
				return err
			}
		case !damaged:
			return nil
		}
	}
}

// restart begins to read behind the last change that counts.
func (r *replayer) restart() error {
	r.size, r.off, r.buf, r.group = int64(len(r.data)), r.good, r.buf[:0], r.group[:0]
	if r.data == nil {
		fi, err := r.file.Stat()
		if err != nil {
			return err
		}
		r.size = fi.Size()
	}
	return r.fill()
}

// fill reads more behind the bytes that are left.
func (r *replayer) fill() error {
	need := int(min(max(chunk, int64(len(r.buf))*2), r.size-r.off))
	if cap(r.buf) < need {
		r.buf = append(make([]byte, 0, need), r.buf...)
	}
	var from io.ReaderAt = r.file
	if r.data != nil {
		from = bytes.NewReader(r.data)
	}
	n, err := from.ReadAt(r.buf[len(r.buf):need], r.off+int64(len(r.buf)))
	r.buf = r.buf[:len(r.buf)+n]
	if errors.Is(err, io.EOF) { // it has become shorter
		r.size, err = r.off+int64(len(r.buf)), nil
	}
	if void := len(r.buf) - len(bytes.TrimRight(r.buf, "\x00")); err == nil && void > durable.MaxVoid {
		return fmt.Errorf("%s %w", r.path, durable.HoleError(r.off+int64(len(r.buf)-void)))
	}
	return err
}

// scan takes all whole records from buf and moves the rest to its beginning. It
// stops at damage once, so that it can be mended.
func (r *replayer) scan() (damaged bool) {
	pos := 0
loop:
	for pos < len(r.buf) {
		n, more, err := ledger.ScanPiece(r.buf[pos:], r.off+int64(pos) == 0, &r.record)
		switch {
		case err == ledger.ErrCut:
			break loop
		case err != nil:
			next := ledger.NextRecord(r.buf[pos:])
			if next < 0 {
				break loop // a torn tail, or more must be read
			}
			if !r.mended {
				damaged = true
				break loop
			}
			for part, off := make([]byte, chunk), r.off+int64(pos); r.counted < off; {
				n, err := r.file.ReadAt(part[:min(chunk, off-r.counted)], r.counted)
				r.lines += bytes.Count(part[:n], []byte("\n"))
				if r.counted += int64(n); err != nil {
					break // what is damaged can still be said
				}
			}
			r.report(&ledger.SyntaxError{File: ledger.JournalName, Line: 1 + r.lines, Msg: fmt.Sprintf("%d bytes are damaged and were passed over", next)})
			pos += next
		case more < 0: // no record
			if r.off+int64(pos) == 0 {
				r.head = int64(n)
			}
			if pos += n; len(r.group) == 0 {
				r.good = r.off + int64(pos)
			}
		default:
			r.record.Off = r.off + int64(pos)
			pos += n
			if k := len(r.group); k > 0 && r.record.Seq != r.group[k-1].Seq+1 {
				r.applyGroup() // what is left of a change that was damaged is all that there is of it
			}
			r.seq = max(r.seq, r.record.Seq)
			if more > 0 {
				r.group = append(r.group, r.record.Clone())
				continue
			}
			r.applyGroup()
			r.apply(&r.record)
			r.good, r.last = r.off+int64(pos), r.record.Seq
		}
	}
	r.off += int64(pos)
	r.buf = r.buf[:copy(r.buf, r.buf[pos:])]
	return damaged
}

// mend puts back from tasks.md what is damaged in the journal behind the last
// change that was applied. It writes a new journal and keeps the damaged one
// beside it. It returns false if there was nothing to repair it with.
func (r *replayer) mend() (bool, error) {
	r.mended = true
	data, err := durable.ReadFile(r.fs, r.path)
	if err != nil {
		return false, err
	}
	doc, err := r.readTasks()
	if err != nil || doc == nil {
		return false, err
	}
	whole, what := salvage.Mend(data, int(min(int64(len(data)), r.good)), r.last, doc)
	if what == "" {
		return false, nil
	}
	aside, err := r.keepAside(data, ".damaged")
	if err != nil {
		return false, err
	}
	if err := durable.WriteFile(r.fs, r.path, whole); err != nil {
		return false, err
	}
	f, err := r.fs.OpenFile(r.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return false, err
	}
	if err := r.swap(f).Close(); err != nil {
		return false, err
	}
	r.note(ledger.Notice{Damage: true, Text: fmt.Sprintf("%s was damaged: %s; the damaged file is now %s", ledger.JournalName, what, aside)})
	return true, nil
}

func (r *replayer) applyGroup() {
	for _, s := range r.group {
		r.apply(s)
	}
	r.group = r.group[:0]
}

// append writes batch behind the journal and makes it durable, and says how long that
// fdatasync took. An error that wraps errNotWritten left the journal as
// it was; after any other error nobody knows what is on the disk, and the log must stop.
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

// cutBack takes back what was written and not acknowledged. A file that another hand has
// made shorter must not get longer by it.
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

// read returns what is durable, and the file that it stands in. It may be called by any
// goroutine.
func (j *journal) read() (data []byte, file durable.File, err error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	data = make([]byte, j.durable.Load())
	if n, err := j.file.ReadAt(data, 0); n < len(data) {
		return nil, nil, fmt.Errorf("%s has become shorter: %w", j.path, err)
	}
	return data, j.file, nil
}

// A window is a piece of the journal in memory: who reads one record often reads
// its neighbours next. It has only what is durable, which never changes.
type window struct {
	file durable.File
	off  int64
	data []byte
}

// How much of the journal is read around a record. Lists go from the newest to the
// oldest, so more lies before it.
const (
	windowBefore = 48 << 10
	windowAfter  = 16 << 10
)

// section returns the record at off, nil if it is not whole in the window.
func (w *window) section(f durable.File, off int64) *ledger.Section {
	if w == nil || w.file != f || off < w.off || off >= w.off+int64(len(w.data)) {
		return nil
	}
	s := new(ledger.Section)
	if _, _, err := ledger.Scan(w.data[off-w.off:], s); err != nil {
		return nil
	}
	s.Off = off
	return s
}
