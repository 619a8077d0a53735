package journal_test

import (
	"os"
	"strings"
	"testing"

	"stint/ledger"
	"stint/ledger/journal"
)

// numbered is a section with a seq that stint did not give.
func numbered(id, seq, prompt string) string {
	return "\n## Task " + id + "\n- seq: " + seq + "\n- status: queued\n- prompt: " + prompt + "\n<!-- end " + seq + " -->\n"
}

// reload closes the log, saves what change makes of tasks.md, and opens it again.
func (w *world) reload(change save) {
	w.t.Helper()
	w.close()
	w.edit(change)
	w.open(false)
}

// expectLines is expect without the digests that name sections.
func (w *world) expectLines(want string) {
	w.t.Helper()
	if got := withoutDigests(w.lines()); got != want {
		w.t.Errorf("the fold is\n%s\nand not\n%s", got, want)
	}
}

// TestPromise5TypedSeq: a number far above all that were given is a finding, and uses
// up no numbers: the log goes on.
func TestPromise5TypedSeq(t *testing.T) {
	t.Parallel()
	for _, seq := range []string{"9007199254740992", "9007199254740991", "8589934592"} {
		w := newWorld(t)
		w.open(false)
		w.add("a", "status", "queued")
		w.reload(put(numbered("m", seq, "x")))
		w.add("b", "status", "queued")
		w.expect("1 a status=queued\n2 b status=queued\n")
		if f := w.log.Findings(); len(f) != 1 || !strings.Contains(f[0].Error(), "seq "+seq+" is no number that stint has given") {
			t.Errorf("findings: %v", f)
		}
		w.reopened()
		if err := os.Remove(w.path("journal.md")); err != nil { // nor does it when the journal is rebuilt
			t.Fatal(err)
		}
		w.open(false)
		w.add("c", "status", "queued")
		w.reopened()
	}
}

// TestPromise4ForeignSectionEdited: a section with a number that the journal lacks, beyond
// its last or between, is a record that it has lost, if it was there at the start. It can be
// edited later.
func TestPromise4ForeignSectionEdited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(false)
	w.add("a", "status", "queued")
	w.reload(put(numbered("m", "900", "x")))
	w.reload(sub("- prompt: x\n<!-- end 900", "- prompt: y\n<!-- end 900"))
	w.reload(put(numbered("n", "500", "between")))
	w.reload(nothing)
	w.expectLines("1 a status=queued\n500 n status=queued prompt=between\n900 m status=queued prompt=x\n901 m by=hand edits=900 prompt=y\n")
	w.reopened()
}

// TestPromise5DamagedWhenRebuilt: a section that was damaged when the journal was
// rebuilt is taken over when a person has put it right.
func TestPromise5DamagedWhenRebuilt(t *testing.T) {
	w := newWorld(t)
	w.open(false)
	w.add("a", "status", "queued")
	w.add("b", "status", "queued", "prompt", "second")
	w.add("c", "status", "queued")
	w.close()
	w.edit(sub("<!-- end 2 -->", "<!-- end"))
	if err := os.Remove(w.path("journal.md")); err != nil {
		t.Fatal(err)
	}
	w.open(false)
	w.expect("1 a status=queued\n3 c status=queued\n")
	w.reload(sub("<!-- end\n", "<!-- end 2 -->\n"))
	w.expect("1 a status=queued\n2 b status=queued prompt=second\n3 c status=queued\n")
	w.reopened()
}

// TestStaleSaveFromBeforeARestore: what a restore has taken back does not come back
// with an old buffer.
func TestStaleSaveFromBeforeARestore(t *testing.T) {
	w := newWorld(t)
	w.open(false)
	w.add("a", "status", "queued")
	w.caughtUp()
	early := w.read("tasks.md")
	w.add("b", "status", "queued", "prompt", "taken back")
	w.close()
	late := w.read("tasks.md")
	note := ledger.Record{Kind: ledger.KindControl, ID: ledger.ControlRestored}
	if err := journal.Restore(w.fs, w.dir, []byte(early), note, w.path("before")); err != nil {
		t.Fatal(err)
	}
	w.open(false)
	w.add("c", "status", "queued")
	want := w.lines()
	w.reload(func(string) string { return late })
	w.expect(want)
	w.reopened()
}

// TestTasksFileBesideAnEmptyJournal: the journal is rebuilt also where a log was
// opened once before tasks.md was copied there.
func TestTasksFileBesideAnEmptyJournal(t *testing.T) {
	w := newWorld(t)
	w.open(false)
	w.add("a", "status", "queued", "prompt", "x")
	w.add("a", "status", "running", "runId", "r1")
	want := w.lines()
	w.close()
	alone := newWorld(t)
	alone.open(false)
	alone.close()
	alone.change("tasks.md", func(string) string { return w.read("tasks.md") })
	alone.open(false)
	alone.expect(want)
	alone.reopened()
}

// TestDeletedPutBackInPlace: sections that a person has deleted and puts back where
// they stood are there again, also when no log was open.
func TestDeletedPutBackInPlace(t *testing.T) {
	w := newWorld(t)
	w.open(false)
	w.add("a", "status", "done")
	w.add("b", "status", "done")
	section := ""
	w.caughtUp()
	w.reload(func(s string) string { section = sectionOf(s, 1); return cutOut(1)(s) })
	w.reload(func(s string) string { return strings.Replace(s, "## Task b\n", section+"## Task b\n", 1) })
	w.expect("1 a status=done\n2 b status=done\n3 deleted tasks=Task a\n4 deleted tasks=\n")
	w.reopened()
}

// TestDeletedPutBackWithAll: a buffer from before all records gets all of them back,
// also those of what was deleted meanwhile, which is there again.
func TestDeletedPutBackWithAll(t *testing.T) {
	w := newWorld(t)
	w.open(false)
	empty := w.read("tasks.md")
	w.add("a", "status", "done")
	w.add("b", "status", "done")
	w.caughtUp()
	w.reload(cutOut(1))
	w.reload(func(string) string { return empty + "\na note\n" })
	w.expect("1 a status=done\n2 b status=done\n3 deleted tasks=Task a\n4 deleted tasks=\n")
	w.reopened()
}

// TestSameChangeInBothCopies: two sections with one seq and the same text are one,
// also where that text is not quite as stint wrote it.
func TestSameChangeInBothCopies(t *testing.T) {
	w := newWorld(t)
	w.open(false)
	w.add("a", "status", "queued", "prompt", "x")
	w.add("b", "status", "queued")
	w.reload(func(s string) string {
		s = strings.Replace(s, "- status: queued\n- prompt: x", "* status: queued\n* prompt: x", 1)
		return s + "\n" + sectionOf(s, 1)
	})
	w.expect("1 a status=queued prompt=x\n2 b status=queued\n")
	w.reopened()
}

// TestPromise4CompactionWaitsForTheEditor: a compaction does not take over half of
// what an editor is writing.
func TestPromise4CompactionWaitsForTheEditor(t *testing.T) {
	w := newWorld(t)
	opts := w.options(true)
	opts.OnRefoldStart, opts.OnRefoldEnd = func() { w.fold = nil }, func() {}
	var err error
	if w.log, err = journal.Open(opts); err != nil {
		t.Fatal(err)
	}
	w.add("a", "status", "queued")
	w.caughtUp()
	text := w.read("tasks.md") + "\n## Task mine\n- status: queued\n- prompt: rm -rf build/tmp\n"
	half := len(text) - len("/tmp\n")
	f, err := os.OpenFile(w.path("tasks.md"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text[:half]); err != nil {
		t.Fatal(err)
	}
	compacted := make(chan error)
	go func() {
		_, err := w.log.Compact(t.Context(), func() (ledger.Keep, error) { return ledger.Keep{Dry: true}, nil })
		compacted <- err
	}()
	if _, err := f.WriteString(text[half:]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-compacted; err != nil {
		t.Fatal(err)
	}
	w.expect("1 a status=queued\n2 mine by=hand status=queued prompt=rm -rf build/tmp\n")
	w.reopened()
}
