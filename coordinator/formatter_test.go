package coordinator_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"stint/coordinator/task"
)

// TestPrettierLeavesTheLedgerAlone: wherever it is called, Prettier finds in the
// state directory that it is not to format tasks.md.
func TestPrettierLeavesTheLedgerAlone(t *testing.T) {
	prettier := os.Getenv("STINT_TEST_PRETTIER")
	if prettier == "" {
		prettier = "prettier"
	}
	needPrograms(t, prettier)
	w := idleWorld(t)
	w.submit(task.TaskSpec{Prompt: "* mend __init__.py\n* and *more*"})
	w.close()
	path := filepath.Join(w.dir, "tasks.md")
	before := read(t, path)
	if said, err := exec.Command(prettier, "--write", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if after := read(t, path); after != before {
		t.Errorf("tasks.md is now\n%s", after)
	}
}

// needPrograms skips the test where a program is missing, but not in CI.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed", name)
	}
}
