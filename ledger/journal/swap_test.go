package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
	"stint/ledger/archive"
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
	const late = "late [{\"status\" \"queued\"}]\n"
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
		acknowledged := false
		w.planning = func() { // what comes meanwhile is put behind the merged records in the last step
			acknowledged = acknowledged || w.try("late", "status", "queued") == nil
		}
		left.Store(n)
		_, cerr := w.log.Compact(t.Context(), w.plan("b"))
		w.planning = nil
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
		if acknowledged || strings.HasSuffix(got, late) {
			want += late
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

// TestCompactionLeavesNoOldFile: tasks.md as it was goes when the new one stands there, unless another hand has just written into
// it, or it had sections of an old buffer, which are nowhere else.
func TestCompactionLeavesNoOldFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, remains string }{{"nobody", ""}, {"a writer", "\nwords of mine\n"}, {"an old buffer", "- color: red"}} {
		w := filled(t)
		w.close()
		var exchanged atomic.Bool
		w.fs = &opsFS{durable.OS, func(op, _ string) error {
			if op == "exchange" {
				exchanged.Store(true)
			}
			if op == "syncdir" && tt.name == "a writer" && exchanged.CompareAndSwap(true, false) {
				return os.WriteFile(w.path("tasks.md.compacted"), []byte(w.read("tasks.md.compacted")+tt.remains), 0o600)
			}
			return nil
		}}
		w.open(false)
		if tt.name == "an old buffer" {
			old := w.read("tasks.md")
			w.compact("b")
			w.edit(func(now string) string { return now + "\n" + old[strings.Index(old, "## Task a"):] })
			w.reconcile()
			w.add("f", "status", "queued")
			w.caughtUp()
		}
		w.compact("b")
		got, err := os.ReadFile(w.path("tasks.md.before"))
		if tt.remains == "" && !errors.Is(err, os.ErrNotExist) || !strings.Contains(string(got), tt.remains) {
			t.Errorf("%s: the old file: %v\n%s", tt.name, err, got)
		}
		w.reconcile()
		w.add("g", "status", "queued")
		w.compact()
		if again, _ := os.ReadFile(w.path("tasks.md.before")); string(again) != string(got) {
			t.Errorf("%s: the next compaction has taken the old file away", tt.name)
		}
		w.isSound()
		w.close()
	}
}

// TestPromise1NextChangeAfterACompaction: it is acknowledged while tasks.md gets its name, and the new journal's name is durable then.
func TestPromise1NextChangeAfterACompaction(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.close()
	var durably atomic.Bool
	w.fs = &opsFS{durable.OS, func(op, name string) error {
		switch {
		case op == "rename" && name == w.path("journal.md"):
			durably.Store(false)
		case op == "syncdir" && name == w.dir:
			durably.Store(true)
		case op == "exchange":
			w.add("late", "status", "queued")
			if !durably.Load() {
				t.Error("a power cut may take the new journal away")
			}
		}
		return nil
	}}
	w.open(false)
	want := lessThan(w.meaning(), "b") + "late [{\"status\" \"queued\"}]\n"
	w.compact("b")
	w.caughtUp()
	if diff := cmp.Diff(want, w.meaning()); diff != "" {
		t.Errorf("the tasks (+):\n%s", diff)
	}
	w.isSound()
	w.reopened()
}

// TestNumbersSetAsideAreNotLost: another hand cuts the journal off while a compaction is planned, after one, or after one that was
// called off. It is put back, and the numbers that nobody was given are not missed.
func TestNumbersSetAsideAreNotLost(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"meanwhile", "afterwards", "called off"} {
		w := filled(t)
		cut := func() {
			must(t, os.Truncate(w.path("journal.md"), w.log.Size()-10))
			must(t, w.try("after", "status", "queued"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.planning = func() {
			w.planning = nil
			w.add("late", "status", "queued")
			switch when {
			case "meanwhile":
				cut()
			case "called off":
				cancel()
			}
		}
		if _, err := w.log.Compact(ctx, w.plan("b")); (err != nil) != (when == "called off") {
			t.Errorf("%s: the compaction: %v", when, err)
		}
		if cancel(); when != "meanwhile" {
			cut()
		}
		if got := w.meaning(); !strings.HasSuffix(got, "late [{\"status\" \"queued\"}]\nafter [{\"status\" \"queued\"}]\n") {
			t.Errorf("%s: the tasks are\n%s", when, got)
		}
		w.reconcile()
		w.caughtUp()
		w.isSound()
		w.reopened()
	}
}

// TestFailedTriesLeaveNothing: what a compaction wrote into the archive before something changed is not there when it has begun anew.
func TestFailedTriesLeaveNothing(t *testing.T) {
	var sizes [2]int
	for i, fails := range []int{0, 4} {
		w := openShelf(t, false)
		w.add("a", "status", "queued")
		w.add("old", "status", "done", "result", strings.Repeat("r", 1000))
		w.caughtUp()
		tries := 0
		w.planning = func() {
			if tries++; tries <= fails {
				w.edit(appended("\nsome text\n"))
			}
		}
		w.compact("old")
		if tries != fails+1 {
			t.Errorf("%d tries, want %d", tries, fails+1)
		}
		names, err := filepath.Glob(w.path("archive/*"))
		must(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			must(t, err)
			sizes[i] += len(text)
		}
		w.close()
	}
	if sizes[0] != sizes[1] {
		t.Errorf("the archive has %d bytes after a compaction, and %d after one that began anew", sizes[0], sizes[1])
	}
}

// TestOldTextIsNotForgotten: what a person saved in a buffer from before a compaction is kept by the next one, also where the cache
// of a start comes between.
func TestOldTextIsNotForgotten(t *testing.T) {
	w := openShelf(t, false)
	w.isCached = true
	w.close()
	w.open(false)
	w.add("a", "status", "queued", "prompt", "one")
	w.add("b", "status", "queued", "prompt", "two")
	w.caughtUp()
	buffer := w.read("tasks.md")
	w.compact()
	w.caughtUp()
	w.write("tasks.md", strings.Replace(buffer, "prompt: one", "prompt: MINE", 1))
	w.reconcile()
	w.caughtUp()
	w.close()
	w.open(false)
	if !w.log.Resumed() {
		t.Error("there was no cache")
	}
	w.compact("b")
	if !strings.Contains(w.read("tasks.md.before"), "MINE") {
		t.Error("the text is gone")
	}
	w.close()
}

// TestKilledCompactionIsCutOff: what a compaction wrote into the archive that was killed meanwhile goes with the next one.
func TestKilledCompactionIsCutOff(t *testing.T) {
	w := openShelf(t, false)
	w.add("a", "status", "queued")
	w.add("old", "status", "done")
	w.caughtUp()
	w.compact("old")
	names, err := filepath.Glob(w.path("archive/tasks-*.md"))
	must(t, err)
	whole := w.read("archive/" + filepath.Base(names[0]))
	adopted := "\n## Task a\n- seq: 7\n- adopts: abc\n- by: hand\n- label: x\n<!-- end 7 -->\n"
	must(t, os.WriteFile(names[0], []byte(whole+adopted+adopted), 0o600))
	if n, err := archive.Adopted(w.fs, w.dir, ledger.TaskFiles); err != nil || n["abc"] != 1 {
		t.Errorf("one adoption that was moved twice counts as %v, %v", n, err)
	}
	must(t, os.WriteFile(names[0], []byte(whole+"\n## Task other\n- seq: 9\n- status: do"), 0o600))
	w.add("other", "status", "done")
	w.caughtUp()
	w.compact("other")
	if found := archive.Check(w.dir, ledger.TaskFiles, nil); len(found) > 0 || !strings.HasPrefix(w.read("archive/"+filepath.Base(names[0])), whole) {
		t.Errorf("%v", found)
	}
	w.close()
}

// TestSpoiltDraftIsNotUsed: what a compaction has written for tasks.md is compared with the new journal before it counts, since a
// disk may give other bytes than it was given.
func TestSpoiltDraftIsNotUsed(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.close()
	fs := newOnceFS("wrote", "tasks.md.compacted")
	fs.next(func() error {
		text := strings.Replace(w.read("tasks.md.compacted"), "- color: red", "- color: rad", 1)
		return os.WriteFile(w.path("tasks.md.compacted"), []byte(text), 0o600)
	})
	w.fs = fs
	w.open(false)
	w.refuse("it would not have the records that are wanted")
	w.compact("b")
	w.isSound()
	w.reopened()
}

// TestOldBufferAfterACompaction: what tasks.md has is known from the moment in which it was written anew, so that a buffer from
// before a record, saved after somebody has touched the file, is no deletion of that record's task.
func TestOldBufferAfterACompaction(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.edit(appended("\n## Task mine\n- status: queued\n"))
	w.reconcile()
	w.compact("b")
	w.edit(func(now string) string { return now[:strings.Index(now, "## Task mine")] })
	w.reconcile()
	w.await("1 record was missing")
	w.edit(replace("- color: red", "- color: blue"))
	w.reconcile()
	w.compact("c")
	buffer := w.read("tasks.md")
	w.add("late", "status", "queued")
	w.caughtUp()
	if got := w.read("tasks.md"); !strings.HasPrefix(got, buffer+"## Task late\n") {
		t.Errorf("%q was appended", strings.TrimPrefix(got, buffer))
	}
	want := w.meaning()
	must(t, os.Chtimes(w.path("tasks.md"), time.Time{}, time.Now().Add(-time.Hour)))
	w.reconcile()
	w.edit(func(string) string { return buffer })
	w.reconcile()
	if got := w.meaning(); got != want || w.gone != "" {
		t.Errorf("deleted %q, the tasks are\n%s\nand were\n%s", w.gone, got, want)
	}
	w.isSound()
	w.reopened()
}

// TestSaveJustAfterTheSwap, in the new file, is seen by the next look, though it may have as many bytes.
func TestSaveJustAfterTheSwap(t *testing.T) {
	t.Parallel()
	for _, color := range []string{"rad", "yellow"} {
		w := filled(t)
		w.close()
		var exchanged atomic.Bool
		w.fs = &opsFS{durable.OS, func(op, _ string) error {
			if op == "syncdir" && exchanged.CompareAndSwap(true, false) {
				text := strings.Replace(w.read("tasks.md"), "- color: red", "- color: "+color, 1)
				return os.WriteFile(w.path("tasks.md"), []byte(text), 0o600)
			}
			exchanged.Store(exchanged.Load() || op == "exchange")
			return nil
		}}
		w.open(false)
		w.compact("b")
		must(t, w.log.ReconcileNow(t.Context()))
		if !strings.Contains(w.meaning(), color) {
			t.Errorf("the edit is gone:\n%s", w.meaning())
		}
		w.reopened()
	}
}

// TestLateRecordsDoNotStopTheLog: what has come while a compaction was planned is appended to tasks.md while more comes.
func TestLateRecordsDoNotStopTheLog(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.close()
	fs := newOnceFS("write", "tasks.md")
	w.fs = fs
	w.open(false)
	for _, done := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		w.planning = func() {
			w.add("late", "status", "queued")
			fs.next(func() error { w.add("later", "status", "queued"); return nil })
			if !done {
				cancel()
			}
		}
		if _, err := w.log.Compact(ctx, w.plan("b")); (err == nil) != done {
			t.Errorf("the compaction: %v", err)
		}
		cancel()
		w.caughtUp()
		w.isSound()
	}
	w.reopened()
}
