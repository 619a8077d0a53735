package journal_test

import (
	"os"
	"strings"
	"testing"

	"stint/ledger"
	"stint/ledger/journal"
	"stint/ledger/mark"
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
	const unknown = " is no number that stint has given"
	for seq, says := range map[string]string{
		"18446744073709551615": "cannot be read as a part of a record",
		"9007199254740992":     "9007199254740992" + unknown, "9007199254740991": "9007199254740991" + unknown, "8589934592": "8589934592" + unknown,
	} {
		w := openWorld(t, false, "a")
		w.reload(put(numbered("m", seq, "x")))
		w.add("b", "status", "queued")
		w.expect("1 a status=queued\n2 b status=queued\n")
		if f := w.log.Findings(); len(f) != 1 || !strings.Contains(f[0].Error(), says) {
			t.Errorf("findings: %v", f)
		}
		w.reopened()
		must(t, os.Remove(w.path("journal.md"))) // nor does it when the journal is rebuilt
		w.open(false)
		w.add("c", "status", "queued")
		w.reopened()
	}
}

// TestPromise4ForeignSectionEdited: a section with a number that the journal lacks, beyond its last or
// between, is a record that it has lost, if it was there at the start. It can be edited later.
func TestPromise4ForeignSectionEdited(t *testing.T) {
	t.Parallel()
	w := openWorld(t, false, "a")
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
	w := openWorld(t, false, "a")
	w.add("b", "status", "queued", "prompt", "second")
	w.add("c", "status", "queued")
	w.close()
	w.edit(sub("<!-- end 2 -->", "<!-- end"))
	must(t, os.Remove(w.path("journal.md")))
	w.open(false)
	w.expect("1 a status=queued\n3 c status=queued\n")
	w.reload(sub("<!-- end\n", "<!-- end 2 -->\n"))
	w.expect("1 a status=queued\n2 b status=queued prompt=second\n3 c status=queued\n")
	w.reopened()
}

// TestStaleSaveFromBeforeARestore: what a restore has taken back does not come back with an old buffer.
func TestStaleSaveFromBeforeARestore(t *testing.T) {
	w := openWorld(t, false, "a")
	early := w.read("tasks.md")
	w.add("b", "status", "queued", "prompt", "taken back")
	w.close()
	late := w.read("tasks.md")
	note := ledger.Record{Kind: ledger.KindControl, ID: mark.Restore}
	must(t, journal.Restore(w.fs, w.dir, ledger.TaskFiles, []byte(early), note, w.path("before")))
	w.open(false)
	w.add("c", "status", "queued")
	want := w.lines()
	w.reload(func(string) string { return late })
	w.expect(want)
	w.reopened()
}
