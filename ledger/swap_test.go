package ledger_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// noExchange is a file system that cannot let two names change places.
type noExchange struct{ durable.FS }

func (noExchange) Exchange(string, string) error { return syscall.EINVAL }

// TestCrashAtEveryStepOfACompaction: wherever it stops, the next start has every
// task, either compacted or not, and can compact again.
func TestCrashAtEveryStepOfACompaction(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]durable.FS{"exchange": durable.OS, "rename": noExchange{durable.OS}} {
		compacted := 0
		for n := int64(0); ; n++ {
			w := filled(t)
			w.edit(appended("\ntext of mine\n\n## Task mine\n- status: queued\n"))
			w.close()
			w.open(false)
			want := w.meaning()
			w.close()
			halt := &haltFS{FS: below, err: syscall.EIO}
			halt.left.Store(1 << 40)
			w.fs = halt
			w.open(false)
			halt.left.Store(n)
			_, cerr := w.log.Compact(t.Context(), w.plan("b"))
			ended := halt.left.Load() >= 0
			_ = w.log.Close() // the power is off
			w.fs = below
			w.open(false)
			got := w.meaning()
			if strings.Contains(w.read("journal.md"), "\n## Control compaction\n") {
				compacted++
				want = lessThan(want, "b")
				w.checkArchived("b", "done", "k", "well")
			}
			if got != want || cerr == nil && compacted == 0 {
				t.Fatalf("%s, stopped at operation %d (%v): the tasks are\n%s\nand were\n%s", name, n, cerr, got, want)
			}
			if !strings.Contains(w.read("tasks.md"), "text of mine") {
				t.Fatalf("%s, stopped at operation %d: text is lost:\n%s", name, n, w.read("tasks.md"))
			}
			w.add("e", "status", "queued")
			w.caughtUp()
			w.compact("b")
			w.checkArchived("b", "done", "k", "well")
			if got := w.meaning(); got != lessThan(want, "b")+"e [{\"status\" \"queued\"}]\n" {
				t.Fatalf("%s, stopped at operation %d, and compacted again:\n%s", name, n, got)
			}
			w.isSound()
			if n := strings.Count(w.read("tasks.md"), "text of mine"); n != 1 {
				t.Fatalf("the text stands there %d times", n)
			}
			w.close()
			if ended {
				if n < 12 || compacted == 0 || compacted > int(n) {
					t.Errorf("%s: %d operations, compacted after %d of them", name, n, compacted)
				}
				break
			}
		}
	}
}

// TestSaveInTheMomentOfTheSwap: a person saves between the last look at tasks.md
// and the exchange. Nothing of that is lost.
func TestSaveInTheMomentOfTheSwap(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]durable.FS{"exchange": durable.OS, "rename": noExchange{durable.OS}} {
		w := filled(t)
		w.close()
		save := &saveFS{FS: below}
		w.fs = save
		w.open(false)
		save.save = func() {
			w.edit(func(s string) string {
				return strings.Replace(s, "- color: red\n", "- color: blue\n", 1) + "\nwords of mine\n\n## Task new\n- status: queued\n"
			})
		}
		before := w.meaning()
		w.compact("b")
		if save.save != nil {
			t.Fatal("nobody saved")
		}
		if _, err := w.log.Reconcile(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if err := w.log.LookBehind(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(w.lines(), "by=hand"); n != 2 {
			t.Errorf("%s: %d edits were taken over, not 2; the new file is no edit of the old one:\n%s", name, n, w.lines())
		}
		want := strings.Replace(lessThan(before, "b"), `{"color" "red"}`, `{"color" "blue"}`, 1) + "new [{\"status\" \"queued\"}]\n"
		if diff := cmp.Diff(want, w.meaning()); diff != "" {
			t.Errorf("%s: after the save (+):\n%s", name, diff)
		}
		w.compact()
		if tasks := w.read("tasks.md"); !strings.Contains(tasks, "\nwords of mine\n") {
			t.Errorf("%s: text is lost:\n%s", name, tasks)
		}
		w.isSound()
		w.reopened()
	}
}

// saveFS calls save just before the new tasks.md takes its place.
type saveFS struct {
	durable.FS
	save func()
}

func (s *saveFS) now(a, b string) {
	if save := s.save; save != nil && (filepath.Base(a) == "tasks.md" || filepath.Base(b) == "tasks.md") {
		s.save = nil
		save()
	}
}

func (s *saveFS) Exchange(a, b string) error {
	if _, cannot := s.FS.(noExchange); !cannot {
		s.now(a, b)
	}
	return s.FS.Exchange(a, b)
}

func (s *saveFS) Rename(a, b string) error {
	s.now(a, b)
	return s.FS.Rename(a, b)
}
