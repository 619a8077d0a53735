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
	"syscall"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
)

// fileID is what tells one state of a file from another without reading it.
type fileID struct {
	dev, ino uint64
	size     int64
	mtime    int64 // Unix nanoseconds
}

func idOf(fi fs.FileInfo) fileID {
	id := fileID{size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		id.dev, id.ino = uint64(st.Dev), st.Ino
	}
	return id
}

// tasksFile is tasks.md. It is as much the person's as ours: it is only ever
// appended to, by path, and only when it is just as it was last seen. When
// another hand has changed it, appending waits until the change has been
// reconciled; nothing is lost by that, because the journal has every record.
type tasksFile struct {
	fs    durable.FS
	path  string
	wrote chan struct{} // something was written that is not synced; holds one word of it

	mu      sync.Mutex // guards what follows; held while the file is written
	seen    fileID     // the file after our last look
	endsInN bool       // it ended with a newline then
	foreign bool       // another hand has changed it since; reconcile must look
	dirty   bool       // written and not yet synced
	unread  bool       // written and not read since: another hand may have saved as many bytes in that moment

	newest      uint64 // the newest record that the file has had: a save without it is of a stale buffer, or has deleted it
	savedAll    uint64 // the newest record when another hand saved the file last, if that save had all records; else 0
	racedAppend uint64 // the first record that was appended to a file which another hand was just saving; 0: none
}

// append writes records behind the file, unless another hand has changed it.
// Errors are no loss: the records are in the journal, and reconcile brings what is missing.
func (t *tasksFile) append(data []byte, first, last uint64, note func(ledger.Notice)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.foreign {
		return
	}
	t.unread = true
	if err := t.write(data, first, last); err != nil {
		t.foreign = true
		var bad *FileError
		if errors.As(err, &bad) {
			return // whoever watches the file tells of it
		}
		note(ledger.Notice{Text: fmt.Sprintf("tasks.md could not be written: %v; it is brought up to date when it can be", err)})
	}
}

// write appends data if the file is as it was seen, and looks again afterwards:
// an editor may have replaced the file meanwhile, and then the bytes went to the
// old one.
func (t *tasksFile) write(data []byte, first, last uint64) (err error) {
	f, err := t.fs.OpenFile(t.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return badTasks(t.path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if idOf(fi) != t.seen {
		t.foreign = true
		return nil
	}
	want := t.seen.size + int64(len(data))
	if !t.endsInN {
		data = append([]byte("\n"), data...)
		want++
	}
	if n, werr := f.Write(data); werr != nil {
		return errors.Join(werr, t.takeBack(f, n))
	}
	t.dirty = true
	select {
	case t.wrote <- struct{}{}:
	default: // it is known
	}
	fi, err = t.fs.Stat(t.path)
	if err != nil {
		return err
	}
	now := idOf(fi)
	if now.ino != t.seen.ino || now.dev != t.seen.dev {
		t.foreign = true
		return nil
	}
	if now.size != want {
		t.foreign, t.racedAppend = true, first
		return nil
	}
	t.seen, t.endsInN, t.newest = now, true, last
	return nil
}

// takeBack cuts off what a write that failed has left of a record, unless another hand
// has changed the file meanwhile: nothing of its text is cut.
func (t *tasksFile) takeBack(f durable.File, n int) error {
	fi, err := f.Stat()
	if err != nil || n == 0 || fi.Size() != t.seen.size+int64(n) {
		return err
	}
	return f.Truncate(t.seen.size)
}

// cutVoid takes zero bytes off the end of the file: a power cut leaves them where
// what was appended last had not reached the disk. Nobody has written them, and the
// journal has what should stand there. It gives the file as it is then.
func (t *tasksFile) cutVoid(snap snapshot) (snapshot, error) {
	f, err := t.fs.OpenFile(t.path, os.O_WRONLY, 0)
	if err != nil {
		return snap, badTasks(t.path, err)
	}
	fi, err := f.Stat()
	if err == nil && idOf(fi) == snap.id {
		err = f.Truncate(int64(len(bytes.TrimRight(snap.data, "\x00"))))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return snap, err
	}
	return t.read(context.Background())
}

// appendTo writes data behind the file if it is as the snapshot has it, which has
// been reconciled; torn says that data goes on in the middle of its last line. It
// gives false if another hand has changed the file since.
func (t *tasksFile) appendTo(snap snapshot, torn bool, data []byte, first, last uint64) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fi, err := t.fs.Stat(t.path)
	if err != nil || idOf(fi) != snap.id {
		return false, nil
	}
	byHand := t.seen != (fileID{}) && t.seen != snap.id
	t.seen, t.endsInN, t.foreign, t.racedAppend, t.unread = snap.id, snap.endsInN() || torn, false, 0, false
	if len(data) == 0 {
		t.newest = last
		if byHand {
			t.savedAll = last
		}
		return true, nil
	}
	t.savedAll = 0
	if err := t.write(data, first, last); err != nil {
		t.foreign = true
		return true, err
	}
	return !t.foreign, nil
}

// isStill reports whether the file is in the state id.
func (t *tasksFile) isStill(id fileID) bool { return t.now() == id }

// restOf returns how long the file must stay as the snapshot has it before that counts:
// whoever wrote it may be writing the rest.
func (t *tasksFile) restOf(snap snapshot) time.Duration {
	switch {
	case ledger.EndsOpen(snap.data):
		return settleOpen
	case t.isCut(snap):
		return settleCut
	}
	return settle
}

// isCut reports whether an editor may be about to write the rest of the snapshot: it is
// empty, or shorter than the file was and ends within a line or a record, or stint has
// appended to it while the editor was saving.
func (t *tasksFile) isCut(snap snapshot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	shorter := int64(len(snap.data)) < t.seen.size
	return len(snap.data) == 0 || shorter && ledger.EndsWithin(snap.data) || t.racedAppend > 0
}

// changed reports whether the file is not as it was last seen.
func (t *tasksFile) changed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.foreign {
		return true
	}
	fi, err := t.fs.Stat(t.path)
	return err != nil || idOf(fi) != t.seen
}

// now returns the state of the file at present; zero if it is not there.
func (t *tasksFile) now() fileID {
	fi, err := t.fs.Stat(t.path)
	if err != nil {
		return fileID{}
	}
	return idOf(fi)
}

// setForeign makes the next look read the file.
func (t *tasksFile) setForeign() {
	t.mu.Lock()
	t.foreign = true
	t.mu.Unlock()
}

// doubtAppended makes the next look read a file that was appended to since it was read.
func (t *tasksFile) doubtAppended() {
	t.mu.Lock()
	t.foreign = t.foreign || t.unread
	t.mu.Unlock()
}

// A snapshot is the content of tasks.md at one moment.
type snapshot struct {
	id   fileID
	data []byte
}

// read returns the file as it is now, and makes it if it is not there.
func (t *tasksFile) read(ctx context.Context) (snapshot, error) {
	f, err := t.fs.OpenFile(t.path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := t.create(); err != nil {
			return snapshot{}, err
		}
		return t.read(ctx)
	}
	if err != nil {
		return snapshot{}, badTasks(t.path, err)
	}
	s, err := readSnapshot(ctx, f, t.path)
	return s, errors.Join(err, f.Close())
}

// create makes the file with its first lines. It never replaces one: an editor that
// has moved the old file away may write the new one in this moment.
func (t *tasksFile) create() (err error) {
	f, err := t.fs.OpenFile(t.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FileMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(ledger.Preamble))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), t.fs.SyncDir(filepath.Dir(t.path)))
}

// A FileError says that tasks.md, or journal.md, is not a file that stint can use.
type FileError struct {
	Path string
	What string // what is wrong with it
	Hint string // what mends it best; "" if there is nothing better than moving it away
	Lost bool   // the journal is not there either
}

// Error returns what is wrong and what to do.
func (e *FileError) Error() string {
	away := "move it away and start again: the journal has every record"
	switch {
	case filepath.Base(e.Path) == ledger.JournalName:
		away = "move it away and start again: " + ledger.TasksName + " has every record"
	case e.Lost:
		away = "move it away and put a good copy there; there is no journal that has its records"
	}
	if e.Hint != "" {
		away = e.Hint + ", or " + away
	}
	return fmt.Sprintf("%s %s; %s", e.Path, e.What, away)
}

// badTasks explains why tasks.md could not be opened, where that is known.
func badTasks(path string, err error) error {
	var bad *durable.BadFileError
	e := &FileError{Path: path}
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EMLINK):
		e.What, e.Hint = "is a symbolic link, and what it points to may be where an agent can write", "put the file itself in its place: mv the file that it points to here"
	case errors.Is(err, fs.ErrPermission):
		e.What, e.Hint = "cannot be read and written by you", "chmod 600 it"
	case errors.Is(err, syscall.EISDIR):
		e.What = "is a directory"
	case errors.Is(err, syscall.ENXIO):
		e.What = "is a FIFO or a socket"
	case errors.As(err, &bad):
		e.What, e.Hint = bad.What, "make it yours with chown"
	default:
		return err
	}
	return e
}

// tooLarge says that an open file has more than a ledger may have; nil if it has not.
func tooLarge(fi fs.FileInfo, path string) error {
	if fi.Size() <= durable.MaxFile {
		return nil
	}
	return &FileError{Path: path, What: fmt.Sprintf("has %d bytes, more than a ledger may have", fi.Size())}
}

func readSnapshot(ctx context.Context, f durable.File, path string) (snapshot, error) {
	fi, err := f.Stat()
	if err != nil {
		return snapshot{}, err
	}
	if err := tooLarge(fi, path); err != nil {
		return snapshot{}, err
	}
	s := snapshot{id: idOf(fi)}
	s.data, err = durable.ReadPieces(ctx, f, fi.Size()) // less, if it was cut meanwhile; the next look sees another size
	if hole := durable.HoleError(0); errors.As(err, &hole) {
		return s, &FileError{Path: path, What: hole.Error()}
	}
	if ledger.IsJournal(s.data) {
		return s, &FileError{Path: path, What: "is a journal and not the ledger, as its first line says"}
	}
	return s, err
}

func (s snapshot) endsInN() bool { return len(s.data) == 0 || s.data[len(s.data)-1] == '\n' }

// sync makes what was appended durable.
func (t *tasksFile) sync() error {
	t.mu.Lock()
	dirty := t.dirty
	t.dirty = false
	t.mu.Unlock()
	if !dirty {
		return nil
	}
	f, err := t.fs.OpenFile(t.path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made anew from the journal
	}
	if err != nil {
		return badTasks(t.path, err)
	}
	return errors.Join(f.Datasync(), f.Close())
}

// secure makes durable what a person saved, before the journal says that it was
// taken over: if a power cut took it back afterwards, that would look like an edit.
func (t *tasksFile) secure() error {
	f, err := t.fs.OpenFile(t.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), t.fs.SyncDir(filepath.Dir(t.path)))
}

// syncEverySecond keeps what a power cut can take from tasks.md small. It takes
// nothing of value: the journal is synced before anything is acknowledged. It sleeps
// as long as nothing is written.
func (t *tasksFile) syncEverySecond(ctx context.Context, note func(ledger.Notice)) {
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
			var bad *FileError // told by whoever watches the file
			if err := t.sync(); err != nil && !errors.As(err, &bad) {
				note(ledger.Notice{Text: fmt.Sprintf("tasks.md could not be synced: %v", err)})
			}
		}
	}
}

// endsWith compares the end of tasks.md with the records of the journal, without
// reading either into memory as a whole. If they are the same, and there is but
// text above, nothing was changed since the file was written, and it is marked as
// seen. With edited, the same bytes may still be an edit that was taken back.
func (t *tasksFile) endsWith(j *journal, edited bool) (same bool, err error) {
	if edited {
		return false, nil
	}
	header, err := j.header()
	if err != nil {
		return false, err
	}
	f, err := t.fs.OpenFile(t.path, os.O_RDONLY, 0)
	if err != nil {
		return false, nil // read it as usual, and fail there if need be
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil || tooLarge(fi, t.path) != nil {
		return false, err
	}
	head := fi.Size() - (j.size - header)
	if head < 0 || head > chunk {
		return false, nil
	}
	text := make([]byte, head)
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if doc := ledger.Parse(text); len(doc.Sections) > 0 || len(doc.Findings) > 0 || doc.Version > ledger.FormatVersion || ledger.IsJournal(text) {
		return false, nil
	}
	same, err = sameBytes(io.NewSectionReader(f, head, j.size), io.NewSectionReader(j.file, header, j.size-header))
	if same {
		t.mu.Lock()
		t.seen, t.endsInN, t.foreign = idOf(fi), true, false
		t.mu.Unlock()
	}
	return same, err
}

// sameBytes reports whether two readers give the same bytes up to the end of b, and end there.
func sameBytes(a io.Reader, b *io.SectionReader) (bool, error) {
	size := min(chunk, b.Size()+1) // a small ledger needs little
	x, y := make([]byte, size), make([]byte, size)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		switch {
		case errA == nil && errB == nil:
		case ended(errA) && ended(errB):
			return true, nil
		default:
			return false, errors.Join(errA, errB)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
