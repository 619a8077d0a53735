package ledger_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger/durable"
)

var errBroken = errors.New("broken")

// haltFS stops at its n-th operation that changes something: that one and all
// later ones fail, as if the power had failed there. A write leaves half.
type haltFS struct {
	durable.FS
	left atomic.Int64
	err  error
}

func (h *haltFS) do() error {
	if h.left.Add(-1) < 0 {
		return h.err
	}
	return nil
}

func (h *haltFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := h.do(); err != nil {
			return nil, err
		}
	}
	f, err := h.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &haltFile{f, h}, nil
}

func (h *haltFS) Rename(a, b string) error {
	if err := h.do(); err != nil {
		return err
	}
	return h.FS.Rename(a, b)
}

func (h *haltFS) Exchange(a, b string) error {
	if err := h.do(); err != nil {
		return err
	}
	return h.FS.Exchange(a, b)
}

func (h *haltFS) Remove(a string) error {
	if err := h.do(); err != nil {
		return err
	}
	return h.FS.Remove(a)
}

func (h *haltFS) Mkdir(a string, perm fs.FileMode) error {
	if err := h.do(); err != nil {
		return err
	}
	return h.FS.Mkdir(a, perm)
}

func (h *haltFS) SyncDir(a string) error {
	if err := h.do(); err != nil {
		return err
	}
	return h.FS.SyncDir(a)
}

type haltFile struct {
	durable.File
	fs *haltFS
}

func (f *haltFile) Write(p []byte) (int, error) {
	if err := f.fs.do(); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f *haltFile) Sync() error {
	if err := f.fs.do(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *haltFile) Truncate(n int64) error {
	if err := f.fs.do(); err != nil {
		return err
	}
	return f.File.Truncate(n)
}

// TestCrashAtEveryStepOfACompaction: wherever it stops, the next start has every
// task, either compacted or not, and can compact again.
func TestCrashAtEveryStepOfACompaction(t *testing.T) {
	t.Parallel()
	compacted := 0
	for n := int64(0); ; n++ {
		w := filled(t)
		w.edit(appended("\ntext of mine\n\n## Task mine\n- status: queued\n"))
		w.close()
		w.open(false)
		want := w.meaning()
		w.close()
		halt := &haltFS{FS: durable.OS, err: syscall.EIO}
		halt.left.Store(1 << 40)
		w.fs = halt
		w.open(false)
		halt.left.Store(n)
		_, cerr := w.log.Compact(t.Context(), w.plan("b"))
		ended := halt.left.Load() >= 0
		_ = w.log.Close() // the power is off
		w.fs = durable.OS
		w.open(false)
		got := w.meaning()
		if strings.Contains(w.read("journal.md"), "\n## Control compaction\n") {
			compacted++
			want = lessThan(want, "b")
			w.checkArchived("b", "done", "k", "well")
		}
		if got != want || cerr == nil && compacted == 0 {
			t.Fatalf("stopped at operation %d (%v): the tasks are\n%s\nand were\n%s", n, cerr, got, want)
		}
		if !strings.Contains(w.read("tasks.md"), "text of mine") {
			t.Fatalf("stopped at operation %d: text is lost:\n%s", n, w.read("tasks.md"))
		}
		w.add("e", "status", "queued")
		w.caughtUp()
		w.compact("b")
		w.checkArchived("b", "done", "k", "well")
		if got := w.meaning(); got != lessThan(want, "b")+"e [{\"status\" \"queued\"}]\n" {
			t.Fatalf("stopped at operation %d, and compacted again:\n%s", n, got)
		}
		w.isSound()
		if n := strings.Count(w.read("tasks.md"), "text of mine"); n != 1 {
			t.Fatalf("the text stands there %d times", n)
		}
		w.close()
		if ended {
			if n < 12 || compacted == 0 || compacted > int(n) {
				t.Errorf("%d operations, compacted after %d of them", n, compacted)
			}
			break
		}
	}
}

// TestSaveInTheMomentOfTheSwap: a person saves between the last look at tasks.md
// and the exchange. Text and new sections of that are not lost; to edit a section that
// the compaction merged is what an old buffer does.
func TestSaveInTheMomentOfTheSwap(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.close()
	save := func() {
		w.edit(func(s string) string { return s + "\nwords of mine\n\n## Task new\n- status: queued\n" })
	}
	w.fs = &hookFS{FS: durable.OS, before: map[string]func(){"exchange": save}}
	w.open(false)
	want := lessThan(w.meaning(), "b") + "new [{\"status\" \"queued\"}]\n"
	w.compact("b")
	if _, err := w.log.Reconcile(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, w.meaning()); diff != "" {
		t.Errorf("after the save (+):\n%s", diff)
	}
	w.compact()
	if tasks := w.read("tasks.md"); !strings.Contains(tasks, "\nwords of mine\n") {
		t.Errorf("text is lost:\n%s", tasks)
	}
	w.isSound()
	w.reopened()
}
