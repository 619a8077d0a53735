// Package tasksfile reads and appends to tasks.md, the file of the ledger that people edit.
//
// tasks.md is as much the person's as ours. It is only ever appended to, by path, and only when it is just as it was last seen
// ([File.Append]). When another hand has changed it, appending waits until the change has been reconciled; nothing is lost by
// that, because the journal has every record. A save counts when the file has rested ([File.Rest]). A whole new text takes its
// place in one step that misses no save ([Copy.Replace], [File.Swap]).
package tasksfile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/plain"
)

// A File is tasks.md. Its methods may be called by any goroutine.
type File struct {
	fs    durable.FS
	path  string
	files ledger.Files
	wrote chan struct{} // something was written that is not synced; holds one word of it
	held  atomic.Bool   // nothing is appended until Release

	mu      sync.Mutex // guards what follows; held while the file is written
	seen    durable.ID // the file after our last look
	blank   bool       // what is appended needs no line break before it
	foreign bool       // another hand has changed it since; reconcile must look
	dirty   bool       // written and not yet synced
	marks   int        // see Snapshot
	unread  bool       // written and not read since: another hand may have saved as many bytes in that moment
	state   State
}

// State is what decides, beside the file itself, what a save of it means.
type State struct {
	Newest   uint64 // the newest record that the file has had: a save without it is of a stale buffer, or has deleted it
	SavedAll uint64 // the newest record when another hand changed the file last, if that save had all records; else 0
	Rest     string // digest of that save without what SavedAll belongs to; see [reconcile.Plan]
	Raced    uint64 // the first record that was appended to a file which another hand was just saving; 0: none
}

// New returns the tasks.md of dir, or what is its like in another ledger.
func New(fsys durable.FS, dir string, files ledger.Files) *File {
	return &File{fs: fsys, path: filepath.Join(dir, files.Ledger()), files: files, wrote: make(chan struct{}, 1)}
}

// Path returns the name of the file.
func (t *File) Path() string { return t.path }

// Append writes the records first to last behind the file, unless another hand has changed it. data is used up.
// Errors are no loss: the records are in the journal, and reconcile brings what is missing.
func (t *File) Append(data []byte, first, last uint64, note func(ledger.Notice)) {
	if t.held.Load() {
		return // and does not wait for Swap
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.append(data, first, last, note)
}

func (t *File) append(data []byte, first, last uint64, note func(ledger.Notice)) {
	if t.foreign {
		return
	}
	t.unread = true
	if err := t.write(data, first, last); err != nil {
		t.foreign = true
		if bad := (*durable.BadFileError)(nil); !errors.As(err, &bad) { // whoever watches the file reports that
			note(ledger.Notice{Text: fmt.Sprintf("%s could not be written: %v; it is brought up to date when it can be", t.files.Ledger(), err)})
		}
	}
}

// Hold lets nothing be appended until Release, so that whatever changes the file is another hand's. It
// returns the file as it was last seen.
func (t *File) Hold() durable.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held.Store(true)
	return t.seen
}

// Release lets records be appended again.
func (t *File) Release() { t.held.Store(false) }

// AppendHeld appends the records first to last, which came since Hold.
func (t *File) AppendHeld(data []byte, first, last uint64, note func(ledger.Notice)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.foreign = t.foreign || t.state.Newest >= first // a reconciliation has brought some of them
	t.append(data, first, last, note)
}

// write appends data if the file is as it was seen, and looks again afterwards: an editor may have replaced
// the file meanwhile, and then the bytes went to the old one. The empty line behind each record is written
// before the next one, because an editor may save a text without a line break at its end in this very moment.
func (t *File) write(data []byte, first, last uint64) error {
	return durable.With(t.fs, t.path, os.O_WRONLY|os.O_APPEND, func(f durable.File, fi fs.FileInfo) error {
		if durable.IDOf(fi) != t.seen {
			t.foreign = true
			return nil
		}
		data = bytes.TrimSuffix(data, []byte("\n"))
		if !t.blank {
			data = slices.Insert(data, 0, '\n') // where its own last one was: nobody reads data any more
		}
		want := t.seen.Size + int64(len(data))
		if n, err := f.Write(data); err != nil {
			// What is left of a record is cut off, unless another hand has changed the file meanwhile.
			if fi, serr := f.Stat(); serr == nil && n > 0 && fi.Size() == t.seen.Size+int64(n) {
				err = errors.Join(err, f.Truncate(t.seen.Size))
			}
			return err
		}
		t.dirty = true
		select {
		case t.wrote <- struct{}{}:
		default: // it is known
		}
		now, err := durable.IDAt(t.fs, t.path)
		switch {
		case err != nil:
			return err
		case !now.SameFile(t.seen):
			t.foreign = true
		case now.Size != want:
			t.foreign, t.state.Raced = true, first
		default:
			t.seen, t.blank, t.state.Newest = now, false, last
		}
		return nil
	})
}

// CutVoid takes zero bytes off the end of the file: a power cut leaves them where what was appended last had not reached the
// disk. Nobody has written them, and the journal has what should stand there. It reports whether the file is to be read again.
func (t *File) CutVoid(snap Snapshot) (cut bool, err error) {
	if !bytes.HasSuffix(snap.Data, []byte{0}) {
		return false, nil
	}
	return true, durable.With(t.fs, t.path, os.O_WRONLY, func(f durable.File, fi fs.FileInfo) error {
		if durable.IDOf(fi) != snap.ID {
			return nil
		}
		return f.Truncate(snap.ID.Size - int64(len(snap.Data)-len(bytes.TrimRight(snap.Data, "\x00"))))
	})
}

// AppendTo writes the records first to last behind the file if it is as the snapshot has it,
// which has been reconciled; torn says that data goes on in the middle of its last line, rest is
// for the State. done is false if another hand has changed the file since.
func (t *File) AppendTo(snap Snapshot, torn bool, data []byte, first, last uint64, rest string) (done bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, err := durable.IDAt(t.fs, t.path); err != nil || now != snap.ID {
		return false, nil
	}
	byHand := t.seen != (durable.ID{}) && t.seen != snap.ID && t.marks != snap.Marks // a touched file may be followed by a stale buffer
	t.marks = snap.Marks
	t.seen, t.blank, t.foreign, t.unread = snap.ID, torn || bytes.HasSuffix(snap.Data, []byte("\n\n")), false, false
	t.state.Raced = 0
	if len(data) == 0 {
		t.state.Newest = last
		if byHand {
			t.state.SavedAll, t.state.Rest = last, rest
		}
		return true, nil
	}
	t.state.SavedAll = 0
	if err := t.write(data, first, last); err != nil {
		t.foreign = true
		return true, err
	}
	return !t.foreign, nil
}

// Solid returns how many bytes are no blanks: some editors add and remove those.
func Solid(data []byte) int {
	n := len(data)
	for _, blank := range []string{" ", "\t", "\r", "\n"} {
		n -= bytes.Count(data, []byte(blank))
	}
	return n
}

// Changed reports whether the file is not as it was last seen.
func (t *File) Changed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.foreign || t.now() != t.seen
}

// Is reports whether the file is in the state id; the zero ID says that it is not there.
func (t *File) Is(id durable.ID) bool { return t.now() == id }

func (t *File) now() durable.ID {
	id, err := durable.IDAt(t.fs, t.path)
	if err != nil {
		return durable.ID{}
	}
	return id
}

// State returns what is known of the file as the snapshot has it, and whether it was seen so.
func (t *File) State(snap Snapshot) (s State, isSeen bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.seen == snap.ID
}

// Code writes how the file was last seen, or goes on from there. What is known of saves before is forgotten.
func (t *File) Code(c *plain.Coder) {
	plain.Numbers(c, &t.seen.Dev, &t.seen.Ino, &t.state.Newest)
	plain.Numbers(c, &t.seen.Size, &t.seen.Mtime)
	plain.Numbers(c, &t.marks)
	c.Flags(&t.blank, &t.unread)
}

// SetNewest notes the newest record that the file has.
func (t *File) SetNewest(seq uint64) {
	t.mu.Lock()
	t.state.Newest = seq
	t.mu.Unlock()
}

// SetForeign makes the next look read the file.
func (t *File) SetForeign() {
	t.mu.Lock()
	t.foreign = true
	t.mu.Unlock()
}

// DoubtAppended makes the next look read a file that was appended to since it was read.
func (t *File) DoubtAppended() {
	t.mu.Lock()
	t.foreign = t.foreign || t.unread
	t.mu.Unlock()
}

// How long the file must have rested before a save counts as complete: some editors truncate
// a file and write it in pieces. What seems to lack its end must rest for settleOpen.
const (
	settle     = 100 * time.Millisecond
	settleOpen = 3 * time.Second
)

// Rest waits until the file has rested for a moment, if another hand has changed it. It reports false if ctx ends before.
func (t *File) Rest(ctx context.Context) bool {
	for t.Changed() {
		if ctx.Err() != nil {
			return false
		}
		now, long := t.now(), settle
		if now == (durable.ID{}) { // an editor that moves the old file away first is writing the new one
			long = settleOpen
		}
		if t.stays(ctx, now, long) {
			return true
		}
	}
	return true
}

// Stays reports whether the file stays as the snapshot has it for as long as that must rest
// before it counts: whoever wrote it may be writing the rest. It reports false if ctx ends before.
func (t *File) Stays(ctx context.Context, snap Snapshot) bool {
	t.mu.Lock()
	isOpen := len(snap.Data) == 0 || t.state.Raced > 0 || ledger.EndsOpen(bytes.TrimRight(snap.Data, "\x00"))
	t.mu.Unlock()
	return !isOpen || !t.Changed() || t.stays(ctx, snap.ID, settleOpen)
}

// stays reports whether the file stays in the state id for that long. Of one that was never
// seen its age counts; one that is not there is old.
func (t *File) stays(ctx context.Context, id durable.ID, long time.Duration) bool {
	t.mu.Lock()
	if age := time.Since(time.Unix(0, id.Mtime)); age > 0 && t.seen == (durable.ID{}) {
		long -= age
	}
	t.mu.Unlock()
	for ; long > 0; long -= settle {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(settle):
		}
		if t.now() != id {
			return false
		}
	}
	return true
}

// A Snapshot is the content of tasks.md at one moment.
type Snapshot struct {
	ID    durable.ID
	Data  []byte // perhaps without whole records in the middle
	Marks int    // how many more bytes than the records of the journal it has that are no blanks
}

// Read returns the file as it is now, and makes it if it is not there.
func (t *File) Read(ctx context.Context) (Snapshot, error) {
	return t.ReadBy(readAll(ctx))
}

// ReadBy is Read of what read reads of the file. It never replaces one: an editor
// that has moved the old file away may write the new one in this moment.
func (t *File) ReadBy(read func(f io.ReaderAt, size int64) ([]byte, error)) (Snapshot, error) {
	snap, err := readSnapshot(t.fs, t.path, read)
	if !errors.Is(err, fs.ErrNotExist) {
		return snap, err
	}
	err = durable.With(t.fs, t.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, func(f durable.File, _ fs.FileInfo) error {
		_, err := f.Write([]byte(t.files.Preamble()))
		return cmp.Or(err, f.Sync())
	})
	if err == nil {
		err = t.fs.SyncDir(filepath.Dir(t.path))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return Snapshot{}, err
	}
	return t.ReadBy(read)
}

// ReadSnapshot reads the tasks.md of dir. The error is a [*durable.BadFileError] if something else is in
// its place, and wraps fs.ErrNotExist if nothing is.
func ReadSnapshot(ctx context.Context, fsys durable.FS, dir string, files ledger.Files) (Snapshot, error) {
	return readSnapshot(fsys, filepath.Join(dir, files.Ledger()), readAll(ctx))
}

func readAll(ctx context.Context) func(io.ReaderAt, int64) ([]byte, error) {
	return func(f io.ReaderAt, size int64) ([]byte, error) {
		return durable.ReadPieces(ctx, io.NewSectionReader(f, 0, size), size) // less, if it was cut meanwhile; the next look sees another size
	}
}

func readSnapshot(fsys durable.FS, path string, read func(io.ReaderAt, int64) ([]byte, error)) (s Snapshot, err error) {
	f, fi, err := Open(fsys, path, os.O_RDONLY)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s.ID = durable.IDOf(fi)
	s.Data, err = read(f, fi.Size())
	if ledger.IsJournal(s.Data) {
		return s, &durable.BadFileError{Path: path, What: "is a journal and not the ledger, as its first line says", Hint: "move it away"}
	}
	return s, err
}

// Sync makes what was appended durable.
func (t *File) Sync() error {
	t.mu.Lock()
	dirty := t.dirty
	t.dirty = false
	t.mu.Unlock()
	if !dirty {
		return nil
	}
	err := durable.With(t.fs, t.path, os.O_RDONLY, func(f durable.File, _ fs.FileInfo) error { return f.Datasync() })
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made anew from the journal
	}
	return err
}

// Secure makes durable what a person saved, before the journal says that it was
// taken over: if a power cut took it back afterwards, that would look like an edit.
func (t *File) Secure() error {
	return errors.Join(durable.With(t.fs, t.path, os.O_RDONLY, func(f durable.File, _ fs.FileInfo) error { return f.Sync() }), t.fs.SyncDir(filepath.Dir(t.path)))
}

// SyncEverySecond keeps what a power cut can take from tasks.md small, until ctx ends. It takes nothing of
// value: the journal is synced before anything is acknowledged. It sleeps as long as nothing is written.
func (t *File) SyncEverySecond(ctx context.Context, note func(ledger.Notice)) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wrote:
			if due == nil {
				due = time.After(time.Second)
			}
		case <-due:
			due = nil
			bad := (*durable.BadFileError)(nil) // whoever watches the file reports that
			if err := t.Sync(); err != nil && !errors.As(err, &bad) {
				note(ledger.Notice{Text: fmt.Sprintf("%s could not be synced: %v", t.files.Ledger(), err)})
			}
		}
	}
}

// endsBlank reports whether what is written behind a file of that size needs no line break before it.
func endsBlank(f io.ReaderAt, size int64) bool {
	end := make([]byte, 2)
	n, _ := f.ReadAt(end, max(0, size-2)) // who reads more of it sees the error
	return string(end[:n]) == "\n\n"
}

// maxText is how much text may stand above the records for EndsWith.
const maxText = 1 << 20

// EndsWith compares the end of tasks.md with the records of a journal, without reading either
// into memory as a whole. If they are the same, and there is but text above, nothing was changed
// since the file was written; see, which is nil otherwise, marks it as seen.
func (t *File) EndsWith(records *io.SectionReader) (see func(), err error) {
	f, fi, err := Open(t.fs, t.path, os.O_RDONLY)
	if err != nil {
		return nil, nil // read it as usual, and fail there if need be
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	all, blank := records.Size(), endsBlank(f, fi.Size())
	if !blank {
		all-- // the last record has no empty line behind it
	}
	head := fi.Size() - all
	if all < 0 || head < 0 || head > maxText {
		return nil, nil
	}
	text := make([]byte, head)
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if doc := ledger.Parse(text); len(doc.Sections) > 0 || len(doc.Findings) > 0 || doc.Version > ledger.FormatVersion || ledger.IsJournal(text) {
		return nil, nil
	}
	size := min(maxText, all) // a small ledger needs little
	x, y := make([]byte, size), make([]byte, size)
	for rest, off := all, head; rest > 0; {
		size = min(size, rest)
		if _, err := io.ReadFull(records, y[:size]); err != nil {
			return nil, err
		}
		if n, err := f.ReadAt(x[:size], off); int64(n) < size || !bytes.Equal(x[:size], y[:size]) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return nil, err
		}
		rest, off = rest-size, off+size
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.seen, t.blank, t.foreign, t.marks = durable.IDOf(fi), blank, false, Solid(text)
	}, nil
}

// Open opens one of the two files of the ledger, and returns its state then.
func Open(fsys durable.FS, path string, flag int) (f durable.File, fi fs.FileInfo, err error) {
	if f, err = fsys.OpenFile(path, flag, 0); err != nil {
		return nil, nil, err
	}
	fi, err = f.Stat()
	if err == nil && fi.Size() > durable.MaxFile {
		err = &durable.BadFileError{Path: path, What: fmt.Sprintf("has %d bytes, more than a ledger may have", fi.Size()), Hint: "move it away"}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, fi, nil
}
