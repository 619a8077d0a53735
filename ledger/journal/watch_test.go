package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stint/ledger/durable"
)

// readsFS counts how many bytes of tasks.md are read.
type readsFS struct {
	durable.FS
	bytes atomic.Int64
}

func (c *readsFS) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil || filepath.Base(name) != "tasks.md" {
		return f, err
	}
	return &readsFile{f, c}, nil
}

type readsFile struct {
	durable.File
	fs *readsFS
}

func (f *readsFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.fs.bytes.Add(int64(n))
	return n, err
}

func (f *readsFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.fs.bytes.Add(int64(n))
	return n, err
}

// TestOwnWritesAreNoEdits: what stint appends does not make it read tasks.md, but once
// when it has rested, and an edit makes it read the file about once.
func TestOwnWritesAreNoEdits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	counted := &readsFS{FS: durable.OS}
	w.fs = counted
	w.open(true)
	w.settle(true)
	counted.bytes.Store(0)
	work := func() {
		var clients sync.WaitGroup
		for range 10 {
			clients.Go(func() {
				for range 100 {
					w.add("a", "status", "queued")
				}
			})
		}
		clients.Wait()
		w.settle(true)
	}
	work()
	if n, size := counted.bytes.Load(), int64(len(w.read("tasks.md"))); n > size {
		t.Errorf("%d bytes of tasks.md were read for 1,000 appends and no edit; it has %d", n, size)
	}
	if at := w.log.SavedByHand(); !at.IsZero() {
		t.Errorf("what stint appended is taken for a save of %s", at)
	}
	for i := range 3 {
		counted.bytes.Store(0)
		w.edit(appended(fmt.Sprintf("\n## Task mine-%d\n- status: queued\n", i)))
		w.await(fmt.Sprintf("mine-%d: written by hand", i))
		work()
		size := int64(len(w.read("tasks.md")))
		if at := w.log.SavedByHand(); time.Since(at) > time.Minute {
			t.Errorf("the last save seen is of %s", at)
		}
		if n := counted.bytes.Load(); n > 2*size {
			t.Errorf("%d bytes of tasks.md were read for one edit and 1,000 appends; it has %d", n, size)
		}
	}
	w.reopened()
}

// TestWatchLost: the state directory is replaced by another one with the same
// files, so that the watch sees no more of it. Edits are taken over all the same.
func TestWatchLost(t *testing.T) {
	w := openWorld(t, true, "a")
	other := w.dir + ".other"
	must(t, os.Mkdir(other, 0o700))
	names, err := os.ReadDir(w.dir)
	must(t, err)
	for _, name := range names {
		must(t, os.Link(w.path(name.Name()), filepath.Join(other, name.Name())))
	}
	must(t, durable.OS.Exchange(other, w.dir))
	must(t, os.RemoveAll(other))
	w.edit(appended("## Task mine\n- status: queued\n"))
	w.await("mine: written by hand")
	w.add("b", "status", "queued")
	w.settle(true)
	w.reopened()
	w.everythingIsInTasks()
}
