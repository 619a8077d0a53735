package statedir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/queue"
	"stint/coordinator/statedir"
	"stint/ledger"
)

// TestRestoreAndJournals: a journal is no copy of tasks.md, and where one stands in the place of
// tasks.md, a restore puts that right and keeps it.
func TestRestoreAndJournals(t *testing.T) {
	good := records(t, "a status=queued prompt=x")
	journal := strings.Replace(good, ledger.VersionLine, ledger.JournalLine, 1)
	dir := ledgerDir(t, "tasks.md", journal, "journal.md", journal, "format", "1\n", "copy.md", good)
	must(t, os.Chmod(dir, 0o700))
	if _, err := statedir.ReadRestore(dir, filepath.Join(dir, "journal.md")); err == nil || !strings.Contains(err.Error(), "is a journal") {
		t.Errorf("a journal: %v", err)
	}
	plan, err := statedir.ReadRestore(dir, filepath.Join(dir, "copy.md"))
	must(t, err)
	cfg := queue.Config{StateDir: dir, Unwatched: true}
	r, err := statedir.Restore(cfg, plan, func(*statedir.Restoration) error { return nil })
	must(t, err)
	for name, want := range map[string]string{filepath.Join(dir, "tasks.md"): good, filepath.Join(r.Backup, "tasks.md"): journal} {
		if data, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(data), want) {
			t.Errorf("%s: %v\n%s", name, err, data)
		}
	}
}
