package statedir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/schedule/due"
	"stint/coordinator/statedir"
	"stint/ledger"
	"stint/state/jobs"
)

// jobsDir is a state directory with n due jobs.
func jobsDir(t *testing.T, n int) string {
	t.Helper()
	dir := ledgerDir(t, "format", "1\n", "tasks.md", ledger.Preamble, "journal.md", ledger.EmptyJournal)
	must(t, os.Chmod(dir, 0o700))
	withJobs(t, dir, func(r *due.Room) {
		for i := range n {
			_, _, err := r.Enqueue(t.Context(), jobs.Spec{ObjectType: "memory", ObjectID: fmt.Sprint("m", i), Action: "verify", RunAt: time.Now().Add(time.Hour)})
			must(t, err)
		}
	})
	return dir
}

func withJobs(t *testing.T, dir string, f func(*due.Room)) {
	t.Helper()
	n := 0
	r, err := due.Open(due.Options{Dir: dir, Now: time.Now, NewID: func() string { n++; return fmt.Sprint("job-", n) }})
	must(t, err)
	n = len(r.List(jobs.Filter{}))
	f(r)
	must(t, r.Close())
}

func readText(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	must(t, err)
	return string(text)
}

func dead() bool { return false }

// TestFsckOfJobs finds in jobs.md and its journal what it finds in those of tasks.
func TestFsckOfJobs(t *testing.T) {
	dir := jobsDir(t, 2)
	if got := fsckText(t, dir, dead); got != "" {
		t.Errorf("%s", got)
	}
	text, journal := readText(t, dir, "jobs.md"), readText(t, dir, "jobs.journal.md")
	lines := strings.Count(text, "\n")
	write(t, dir, "jobs.md", text+"\n## Job mine\n- status: quued\n")
	if got, want := fsckText(t, dir, dead), fmt.Sprintf(`section jobs.md:%d: status: unknown word "quued"; it is one of queued, running, succeeded, failed, dead_letter`, lines+3); !strings.Contains(got, want) {
		t.Errorf("%s\nnot %s", got, want)
	}
	write(t, dir, "jobs.md", text)
	write(t, dir, "jobs.journal.md", strings.Replace(journal, "- seq: 1\n", "- seq: one\n", 1))
	if got := fsckText(t, dir, dead); !strings.Contains(got, "journal jobs.journal.md:3: ") {
		t.Errorf("%s", got)
	}
	must(t, os.Remove(filepath.Join(dir, "jobs.journal.md")))
	if got := fsckText(t, dir, dead); got != "note there is no jobs.journal.md: the next master rebuilds it from jobs.md" {
		t.Errorf("%s", got)
	}
}

// TestJobsMoved: the order of sections says nothing, and a record of the journal that is another one is noted.
func TestJobsMoved(t *testing.T) {
	dir := jobsDir(t, 2)
	withJobs(t, dir, func(r *due.Room) {
		_, err := r.Pull(t.Context(), jobs.Pull{WorkerID: "w", Now: time.Now()})
		must(t, err)
	})
	text := readText(t, dir, "jobs.md")
	head, rest, _ := strings.Cut(text, "\n## Job job-1\n")
	first, second, _ := strings.Cut(rest, "\n## Job job-2\n")
	write(t, dir, "jobs.md", head+"\n## Job job-2\n"+second+"\n## Job job-1\n"+first)
	if got := fsckText(t, dir, dead); got != "" {
		t.Errorf("moved: %s", got)
	}
	write(t, dir, "jobs.md", text)
	journal := readText(t, dir, "jobs.journal.md")
	head, rest, _ = strings.Cut(journal, "objectId: m1\n")
	write(t, dir, "jobs.journal.md", head+"objectId: mm\n"+rest)
	if got := fsckText(t, dir, dead); got != "note jobs.md: 1 edit is not taken over yet; a master does that" {
		t.Errorf("changed: %s", got)
	}
}

// TestRepairOfJobs: a jobs.md by itself is checked by the rules of jobs.
func TestRepairOfJobs(t *testing.T) {
	dir := jobsDir(t, 2)
	text := readText(t, dir, "jobs.md")
	if found := statedir.CheckLedger("x", []byte(text)); len(found) > 0 {
		t.Errorf("%v", found)
	}
	bad := strings.Replace(text, "m1\n- action: verify", "m1\n- action: verfy", 1)
	if found := statedir.CheckLedger("x", []byte(bad)); len(found) != 1 {
		t.Errorf("%v", found)
	}
	repaired, notes := statedir.RepairLedger("x", []byte(bad), []byte(readText(t, dir, "jobs.journal.md")))
	if left := statedir.CheckLedger("x", repaired); len(left) > 0 || len(notes) != 1 || !strings.Contains(string(repaired), "action: verify") {
		t.Errorf("%v, %v:\n%s", left, notes, repaired)
	}
}

// TestRestoreOfJobs: a copy of jobs.md is told by its records, and becomes the ledger of due jobs; that
// of tasks is as it was.
func TestRestoreOfJobs(t *testing.T) {
	dir := jobsDir(t, 2)
	text := readText(t, dir, "jobs.md")
	write(t, dir, "copy.md", text)
	withJobs(t, dir, func(r *due.Room) {
		_, _, err := r.Enqueue(t.Context(), jobs.Spec{ObjectType: "memory", ObjectID: "newer", Action: "decay", RunAt: time.Now()})
		must(t, err)
	})
	write(t, dir, "jobs.md", strings.Replace(readText(t, dir, "jobs.md"), "priority: medium", "priority: high", 1))
	if _, err := statedir.ReadRestore(dir, filepath.Join(dir, "jobs.md")); err == nil || !strings.Contains(err.Error(), "is the ledger itself") {
		t.Errorf("%v", err)
	}
	plan, err := statedir.ReadRestore(dir, filepath.Join(dir, "copy.md"))
	must(t, err)
	r, err := statedir.Restore(queue.Config{StateDir: dir, Unwatched: true}, plan, func(r *statedir.Restoration) error {
		if r.File != "jobs.md" || r.Tasks != 2 || len(r.Changed) != 1 || r.Changed[0].ID != "job-1" || len(r.Gone) != 1 || len(r.Back) > 0 {
			t.Errorf("%+v", r)
		}
		return nil
	})
	must(t, err)
	withJobs(t, dir, func(r *due.Room) {
		var got []string
		for _, j := range r.List(jobs.Filter{}) {
			got = append(got, j.ID+" "+j.Priority)
		}
		if !slices.Equal(got, []string{"job-1 medium", "job-2 medium"}) {
			t.Errorf("%q", got)
		}
	})
	if !strings.Contains(readText(t, r.Backup, "jobs.md"), "priority: high") || readText(t, dir, "tasks.md") != ledger.Preamble {
		t.Error("the backup is not what was there, or tasks.md has changed")
	}
}
