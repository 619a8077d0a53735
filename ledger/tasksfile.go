package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"stint/ledger/durable"
)

// TasksName is the name of the ledger that people edit.
const TasksName = "tasks.md"

const preamble = VersionLine + `
# Tasks

Anything a person writes here is kept. To run a task by hand, append a section:

    ## Task some-name
    - status: queued
    - prompt: what to do

`

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
	fs   durable.FS
	path string

	mu      sync.Mutex // guards what follows; held while the file is written
	seen    fileID     // the file after our last look
	endsInN bool       // it ended with a newline then
	foreign bool       // another hand has changed it since; reconcile must look
	dirty   bool       // written and not yet synced
}

// append writes records behind the file, unless another hand has changed it.
// Errors are no loss: the records are in the journal, and reconcile brings what is missing.
func (t *tasksFile) append(data []byte, note func(Notice)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.foreign {
		return
	}
	if err := t.write(data); err != nil {
		t.foreign = true
		note(Notice{Text: fmt.Sprintf("tasks.md could not be written: %v; it is brought up to date when it can be", err)})
	}
}

// write appends data if the file is as it was seen, and looks again afterwards:
// an editor may have replaced the file meanwhile, and then the bytes went to the
// old one.
func (t *tasksFile) write(data []byte) (err error) {
	f, err := t.fs.OpenFile(t.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
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
	if _, werr := f.Write(data); werr != nil {
		return errors.Join(werr, f.Truncate(t.seen.size)) // the file was ours a moment ago: take the half record back
	}
	t.dirty = true
	fi, err = t.fs.Stat(t.path)
	if err != nil {
		return err
	}
	now := idOf(fi)
	if now.ino != t.seen.ino || now.dev != t.seen.dev || now.size != want {
		t.foreign = true
		return nil
	}
	t.seen, t.endsInN = now, true
	return nil
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

// now gives the state of the file at present; zero if it is not there.
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

// markSeen says that the file was read whole in the state id, and that all of it
// has been reconciled.
func (t *tasksFile) markSeen(id fileID, endsInN bool) {
	t.seen, t.endsInN, t.foreign = id, endsInN, false
}

// A snapshot is the content of tasks.md at one moment.
type snapshot struct {
	id   fileID
	data []byte
}

// read gives the file as it is now, and makes it if it is not there.
func (t *tasksFile) read() (snapshot, error) {
	f, err := t.fs.OpenFile(t.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := durable.WriteFile(t.fs, t.path, []byte(preamble)); err != nil {
			return snapshot{}, err
		}
		return t.read()
	}
	if err != nil {
		return snapshot{}, err
	}
	s, err := readSnapshot(f, t.path)
	return s, errors.Join(err, f.Close())
}

// maxTasks bounds what is read of tasks.md: far above any ledger, below what a
// sparse file may claim.
const maxTasks = 4 << 30

func readSnapshot(f durable.File, path string) (snapshot, error) {
	fi, err := f.Stat()
	if err != nil {
		return snapshot{}, err
	}
	switch {
	case !fi.Mode().IsRegular():
		return snapshot{}, fmt.Errorf("%s is not a regular file; move it away and start again: the journal has every record", path)
	case fi.Size() > maxTasks:
		return snapshot{}, fmt.Errorf("%s has %d bytes, more than a ledger may have; move it away and start again: the journal has every record", path, fi.Size())
	}
	s := snapshot{id: idOf(fi), data: make([]byte, fi.Size())}
	n, err := io.ReadFull(f, s.data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // it was cut meanwhile; the next look sees another size
	}
	s.data = s.data[:n]
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
	if err != nil {
		return err
	}
	return errors.Join(f.Datasync(), f.Close())
}

// syncEverySecond keeps what a power cut can take from tasks.md small. It takes
// nothing of value: the journal is synced before anything is acknowledged.
func (t *tasksFile) syncEverySecond(ctx context.Context, note func(Notice)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := t.sync(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				note(Notice{Text: fmt.Sprintf("tasks.md could not be synced: %v", err)})
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
	header := int64(len(VersionLine) + 1)
	f, err := t.fs.OpenFile(t.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, nil // read it as usual, and fail there if need be
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
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
	if doc := Parse(text); len(doc.Sections) > 0 || len(doc.Findings) > 0 || doc.Version > FormatVersion {
		return false, nil
	}
	same, err = sameBytes(io.NewSectionReader(f, head, j.size), io.NewSectionReader(j.file, header, j.size-header))
	if same {
		t.mu.Lock()
		t.markSeen(idOf(fi), true)
		t.mu.Unlock()
	}
	return same, err
}

// sameBytes reports whether two readers give the same bytes.
func sameBytes(a, b io.Reader) (bool, error) {
	x, y := make([]byte, chunk), make([]byte, chunk)
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

// hasText reports whether data holds more than blanks.
func hasText(data []byte) bool { return len(bytes.TrimSpace(data)) > 0 }
