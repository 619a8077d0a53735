package tasksfile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestOtherCopies finds what sync programs leave, and not what editors do.
func TestOtherCopies(t *testing.T) {
	dir := t.TempDir()
	want := []string{
		"tasks (1).md", "tasks (Ana's conflicted copy 2026-11-21).md", "tasks (conflicted copy 2026-11-21 031245).md",
		"tasks 2.md", "tasks-conflict-20261121.md", "tasks.sync-conflict-20261121-031245-ABCDEFG.md", "jobs.sync-conflict-20261121-031245-ABCDEFG.md",
	}
	for _, name := range append([]string{"tasks.md", "jobs.md", "jobs.journal.md", "tasks.md~", ".tasks.md.swp", "tasks.md.tmp", "tasks.md.orig", "#tasks.md#", "my tasks.md"}, want...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := OtherCopies(dir); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
