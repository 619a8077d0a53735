package ledger_test

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"stint/ledger/durable"
)

// A syncingFS calls a function once, when the journal is synced next.
type syncingFS struct {
	durable.FS
	next atomic.Pointer[func()]
}

type syncingFile struct {
	durable.File
	fs *syncingFS
}

func (f *syncingFS) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err == nil && strings.Contains(name, "journal.md") {
		file = &syncingFile{file, f}
	}
	return file, err
}

func (f *syncingFile) Datasync() error {
	if do := f.fs.next.Swap(nil); do != nil {
		(*do)()
	}
	return f.File.Datasync()
}

// TestJournalPutBackDuringASave: the journal is put back while a save is taken over, and
// its records have other places then: what the save lacks is appended whole.
func TestJournalPutBackDuringASave(t *testing.T) {
	t.Parallel()
	w := newShelf(t)
	fs := &syncingFS{FS: durable.OS}
	w.fs = fs
	w.open(true)
	w.add("a", "status", "queued", "prompt", "first")
	w.add("b", "status", "queued", "prompt", "second")
	w.edit(func(s string) string {
		return strings.Replace(s, "prompt: first", "prompt: a text that is much longer", 1)
	})
	w.settle(true)
	w.caughtUp()
	old := w.read("tasks.md")
	w.add("c", "status", "queued", "prompt", "third")
	w.caughtUp()
	cut := func() { _ = os.Truncate(w.path("journal.md"), 0) }
	fs.next.Store(&cut)
	w.edit(func(string) string { return old + "\n## Task mine\n- status: queued\n" })
	w.await("mine: written by hand")
	w.settle(true)
	w.add("d", "status", "queued")
	w.caughtUp()
	if text := w.read("tasks.md"); strings.Count(text, "<!-- end 3 -->") != 1 {
		t.Errorf("a piece of a record was appended:\n%s", text)
	}
	w.everythingIsInTasks()
	w.reopened()
}
