package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestTenTraps runs testdata/traps: in each of its scripts the real codex, claude or
// gemini does what is most likely to bite those who run it, and stint is not
// bitten. They are scripts like those of [TestScript].
func TestTenTraps(t *testing.T) {
	const dir = "testdata/traps"
	if files, err := filepath.Glob(filepath.Join(dir, "*.txtar")); err != nil || len(files) != 10 {
		t.Fatalf("%d traps, %v; want 10", len(files), err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                dir,
		Setup:              setupScript,
		Cmds:               scriptCommands,
		Condition:          scriptCondition,
		RequireUniqueNames: true,
		Deadline:           time.Now().Add(8 * time.Minute), // for what hangs
	})
}
