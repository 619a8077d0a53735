package ledger_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"stint/ledger"
	"stint/ledger/durable"
)

// A landingFS calls a function once, between the last look at tasks.md and the
// write behind it.
type landingFS struct {
	durable.FS
	mu   sync.Mutex
	once func() // guarded by mu
}

func (l *landingFS) set(f func()) {
	l.mu.Lock()
	l.once = f
	l.mu.Unlock()
}

func (l *landingFS) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	f, err := l.FS.OpenFile(name, flag, perm)
	if err != nil || filepath.Base(name) != "tasks.md" {
		return f, err
	}
	return &landingFile{f, l}, nil
}

type landingFile struct {
	durable.File
	fs *landingFS
}

func (f *landingFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	once := f.fs.once
	f.fs.once = nil
	f.fs.mu.Unlock()
	if once != nil {
		once()
	}
	return f.File.Write(p)
}

// TestPromise4RecordLandsBehindAnOldBuffer: an editor saves an old buffer in the
// very moment in which a record is appended. The record stands behind the buffer
// then, and those before it are gone: nobody has deleted them.
func TestPromise4RecordLandsBehindAnOldBuffer(t *testing.T) {
	w := newWorld(t)
	fs := &landingFS{FS: durable.OS}
	w.fs = fs
	opts := w.options(true)
	opts.Deleted = func(gone map[string]bool) []ledger.Record {
		if len(gone) > 0 {
			t.Errorf("taken for deleted: %v", gone)
		}
		return nil
	}
	var err error
	if w.log, err = ledger.Open(opts); err != nil {
		t.Fatal(err)
	}
	w.add("a", "status", "queued")
	w.caughtUp()
	buffer := w.read("tasks.md") + "## Task mine\n- status: queued\n"
	w.add("b", "status", "queued")
	w.caughtUp()
	fs.set(func() {
		if err := os.WriteFile(w.path("tasks.md"), []byte(buffer), 0o600); err != nil { // in place
			t.Error(err)
		}
	})
	w.add("c", "status", "queued")
	w.await("mine: written by hand")
	w.settle(true)
	w.everythingIsInTasks()
	w.expect("1 a status=queued\n2 b status=queued\n3 c status=queued\n4 mine by=hand status=queued\n")
	w.reopened()
}
