package journal_test

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger/durable"
)

var errBroken = errors.New("broken")

// TestCrashAtEveryStepOfACompaction: wherever it stops, the next start has every
// task, either compacted or not, and can compact again.
func TestCrashAtEveryStepOfACompaction(t *testing.T) {
	t.Parallel()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	compacted := 0
	for n := int64(0); ; n++ {
		w := filled(t)
		w.edit(appended("\ntext of mine\n\n## Task mine\n- status: queued\n"))
		w.close()
		w.open(false)
		want := w.meaning()
		w.close()
		var left atomic.Int64 // operations until the power fails
		left.Store(1 << 40)
		w.fs = &opsFS{durable.OS, func(op, _ string) error {
			if changes(op) && left.Add(-1) < 0 {
				return syscall.EIO
			}
			return nil
		}}
		w.open(false)
		left.Store(n)
		_, cerr := w.log.Compact(t.Context(), w.plan("b"))
		ended := left.Load() >= 0
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

// TestSaveInTheMomentOfTheSwap: a person saves between the last look at tasks.md and the exchange. Text and
// new sections of that are not lost; to edit a section that the compaction merged is what an old buffer does.
func TestSaveInTheMomentOfTheSwap(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.close()
	fs := newOnceFS("exchange", "tasks.md")
	fs.next(func() error {
		w.edit(appended("\nwords of mine\n\n## Task new\n- status: queued\n"))
		return nil
	})
	w.fs = fs
	w.open(false)
	want := lessThan(w.meaning(), "b") + "new [{\"status\" \"queued\"}]\n"
	w.compact("b")
	w.reconcile()
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
