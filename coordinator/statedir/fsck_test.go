package statedir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/queue"
	"stint/coordinator/statedir"
	"stint/ledger"
)

// records returns the bytes of task records, "id key=value key=value", numbered from 1.
func records(t *testing.T, lines ...string) string {
	t.Helper()
	out := []byte(ledger.VersionLine + "\n\n")
	for i, line := range lines {
		words := strings.Fields(line)
		r := &ledger.Record{Kind: ledger.KindTask, ID: words[0], Seq: uint64(i + 1)}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			r.Add(key, value)
		}
		var err error
		out, err = ledger.AppendRecord(out, r)
		must(t, err)
	}
	return string(out)
}

// ledgerDir is a state directory with those files, in turn name and text.
func ledgerDir(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		write(t, dir, files[i], files[i+1])
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}

func fsckText(t *testing.T, dir string, live func() bool) string {
	t.Helper()
	r, err := statedir.Fsck(t.Context(), dir, "/w", live)
	must(t, err)
	var out []string
	for _, f := range r.Faults {
		out = append(out, f.Kind+" "+f.String())
	}
	for _, n := range r.Notes {
		out = append(out, "note "+n)
	}
	return strings.Join(out, "\n")
}

// TestFsckTellsFaultsFromNotes pins what is wrong and what is only under way.
func TestFsckTellsFaultsFromNotes(t *testing.T) {
	good := records(t, "a status=queued prompt=x", "a status=running", "a status=done", "b status=queued prompt=y")
	short := records(t, "a status=queued prompt=x", "a status=running")
	refused := records(t, "a status=done prompt=x", "a status=draft")
	formatted := strings.NewReplacer("prompt: ", "prompt: *").Replace(records(t, "a status=queued prompt=x", "b status=queued prompt=x", "c status=queued prompt=x", "d status=queued prompt=x"))
	plain := records(t, "a status=queued prompt=x", "b status=queued prompt=x", "c status=queued prompt=x", "d status=queued prompt=x")
	for _, tt := range []struct{ name, tasks, journal, want string }{
		{"clean", good, good, ""},
		{"edit", strings.Replace(good, "prompt: y", "prompt: z", 1), good, "note tasks.md: 1 edit is not taken over yet; a master does that"},
		{"written", good + "## Task c\n- status: queued\n- prompt: z\n", good, "note tasks.md: 1 edit is not taken over yet; a master does that"},
		{"old buffer", short, good, "note tasks.md: the newest 2 records are missing; a master appends what is missing"},
		{"tidied", strings.Replace(good, "## Task a\n- seq: 2\n- status: running\n<!-- end 2 -->\n", "", 1), good, "note tasks.md: 1 record was taken out by hand, which the journal has"},
		{"typo", good + "## Task c\n- status: qeued\n", good, `section tasks.md:26: unknown status "qeued"; it is one of draft, queued, running, done, failed, canceled, dead`},
		{"formatter", formatted, plain, "held tasks.md: "},
		{"refused", refused, refused, "refused journal.md:9: record 2 has no effect: Task a, record 2: status: a task that is done cannot become draft"},
		{"lost", good, short, "journal tasks.md:14: record 3 is not in the journal, which ends with record 2; "},
		{"torn", good, good + "## Task c\n- seq: 5\n", "note journal.md:25: the last 19 bytes are of a change that is not complete"},
	} {
		got := fsckText(t, ledgerDir(t, "tasks.md", tt.tasks, "journal.md", tt.journal, "format", "1\n"), func() bool { return false })
		if !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestFsckWaitsForTheMaster looks at a moment in which the journal has a record
// that tasks.md is about to get.
func TestFsckWaitsForTheMaster(t *testing.T) {
	t.Parallel()
	good := records(t, "a status=queued prompt=x", "b status=queued prompt=y")
	dir := ledgerDir(t, "tasks.md", records(t, "a status=queued prompt=x"), "journal.md", good, "format", "1\n")
	looks := 0
	live := func() bool {
		if looks++; looks == 3 {
			write(t, dir, "tasks.md", good)
		}
		return true
	}
	if got := fsckText(t, dir, live); got != "" || looks != 3 {
		t.Errorf("after %d looks:\n%s", looks, got)
	}
}

// TestFsckNotesWhatLiesAbout names what is left of earlier days.
func TestFsckNotesWhatLiesAbout(t *testing.T) {
	good := records(t, "a status=done prompt=x")
	dir := ledgerDir(t, "tasks.md", good, "journal.md", good, "format", "1\n", "tasks.md.tmp", "", "tasks.md.stint-00.tmp", "", "journal.md.torn", "", "tasks.md.compacted", "", "tasks (1).md", "")
	for live, notes := range map[bool]int{false: 4, true: 3} { // a master may just be writing the draft of a compaction
		if got := fsckText(t, dir, func() bool { return live }); strings.Count(got, "note ") != notes || strings.Count(got, "\n") != notes-1 {
			t.Errorf("master %t: %s", live, got)
		}
	}
}

// TestFsckNamesOtherCopies finds what sync programs leave, and not what editors do.
func TestFsckNamesOtherCopies(t *testing.T) {
	good := records(t, "a status=done prompt=x")
	dir := ledgerDir(t, "tasks.md", good, "journal.md", good, "format", "1\n")
	want := []string{
		"tasks (1).md", "tasks (Ana's conflicted copy 2026-11-21).md", "tasks (conflicted copy 2026-11-21 031245).md",
		"tasks 2.md", "tasks-conflict-20261121.md", "tasks.sync-conflict-20261121-031245-ABCDEFG.md", "jobs.sync-conflict-20261121-031245-ABCDEFG.md",
	}
	for _, name := range append([]string{"tasks.md~", ".tasks.md.swp", "tasks.md.orig", "#tasks.md#", "my tasks.md"}, want...) {
		write(t, dir, name, "")
	}
	r, err := statedir.Fsck(t.Context(), dir, "/w", func() bool { return false })
	must(t, err)
	var got []string
	for _, n := range r.Notes {
		name, _, _ := strings.Cut(n, " is not read")
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestRepairLedgerKeepsTheTasks repairs a copy, with and without its journal, and folds what came out.
func TestRepairLedgerKeepsTheTasks(t *testing.T) {
	good := records(t, "a status=queued prompt=x", "a status=running", "a status=done", "b status=queued prompt=y")
	bad := strings.Replace(good, "- status: done\n", "- status: finishd\n", 1) + "## Task c\n- status: queued\n"
	for _, tt := range []struct{ journal, want string }{
		{good, "done"},
		{"", "running"},
	} {
		repaired, notes := statedir.RepairLedger("x", []byte(bad), []byte(tt.journal))
		if left := statedir.CheckLedger("x", repaired); len(left) > 0 || len(notes) != 2 {
			t.Errorf("%v is left; done: %v", left, notes)
		}
		var dump strings.Builder
		st, err := queue.FoldDir(t.Context(), ledgerDir(t, "tasks.md", "", "journal.md", string(repaired), "format", "1\n"))
		must(t, err)
		must(t, st.Dump(&dump))
		if !strings.Contains(dump.String(), fmt.Sprintf(`"status":%q`, tt.want)) {
			t.Errorf("want a task that is %s in\n%s", tt.want, dump.String())
		}
	}
}

// TestFsckOfADirectory: one sentence says what stands in the place of tasks.md.
func TestFsckOfADirectory(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "tasks.md"), 0o700))
	if got := fsckText(t, dir, func() bool { return false }); strings.Count(got, "\n") > 0 || !strings.Contains(got, "tasks.md is a directory; stint uses no such thing: move it away") {
		t.Errorf("got %s", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFsckOfANewerLayout says what a master says that does not start there.
func TestFsckOfANewerLayout(t *testing.T) {
	good := records(t, "a status=done prompt=x")
	for format, want := range map[string]string{"9\n": "has format 9, this stint knows formats up to 1: use the newer stint that wrote it", "one\n": "does not hold a version number; this stint writes 1 there"} {
		dir := ledgerDir(t, "tasks.md", good, "journal.md", good, "format", format)
		if got := fsckText(t, dir, func() bool { return false }); got != "file format: "+filepath.Join(dir, "format")+" "+want {
			t.Errorf("%q: %s", format, got)
		}
	}
}
