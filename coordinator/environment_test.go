package coordinator_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// TestEnvironments: a task's turns and verify commands, and those of what it is followed by,
// run in the environment of its call, whose file is there as long as a task names it.
func TestEnvironments(t *testing.T) {
	w := newWorld(t)
	shell := &fakeShell{}
	shell.do = func(_ context.Context, v task.VerifyRun) task.VerifyResult {
		return task.VerifyResult{ExitCode: len(v.Env)}
	}
	w.cfg.Shell, w.cfg.FollowUpDepth, w.cfg.MaxFollowUps = shell, 1, 1
	w.open()
	kept, gone := []string{"A=1", "PATH=/kept"}, []string{"PATH=/gone"}
	_, name := task.EncodeEnvironment(kept)
	for _, env := range [][]string{nil, kept} {
		id := w.submit(task.TaskSpec{Prompt: "p", VerifyCommand: "make", MaxIterations: 1, OnFailure: "Look at it.", Environment: env}).ID
		got := w.endsAs(id, map[bool]state.Status{true: state.Done, false: state.Failed}[env == nil], map[bool]state.Class{false: state.ClassVerify}[env == nil])
		if (got.Environment == "") != (env == nil) || !slices.Equal(shell.runs[len(shell.runs)-1].Env, env) || !slices.Equal(w.agent.turns[len(w.agent.turns)-1].Env, env) {
			t.Errorf("%q: %q, verified in %q, run in %q", env, got.Environment, shell.runs[len(shell.runs)-1].Env, w.agent.turns[len(w.agent.turns)-1].Env)
		}
		if env != nil {
			if next, err := w.c.Task(t.Context(), got.FollowUps[0]); err != nil || next.Environment != name {
				t.Errorf("its follow-up has %q, %v", next.Environment, err)
			}
		}
	}
	dir := filepath.Join(w.dir, "env")
	id := w.submit(task.TaskSpec{Prompt: "p", Environment: gone}).ID
	w.endsAs(id, state.Done, "")
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		check(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if list := files(); len(list) != 2 || !slices.Contains(list, name) {
		t.Fatalf("env has %q", list)
	}
	// Of a submit that is under way nothing is in the ledger yet: a new file stays.
	check(t, os.WriteFile(filepath.Join(dir, "0123456789abcdef0123456789abcdef"), nil, 0o600))
	for _, name := range append(files(), "ffffffffffffffffffffffffffffffff") {
		old := time.Now().Add(-48 * time.Hour)
		if name[0] == 'f' {
			check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		if name[:2] != "01" {
			check(t, os.Chtimes(filepath.Join(dir, name), old, old))
		}
	}
	_, err := w.c.Compact(t.Context(), 0, false)
	check(t, err)
	if list := files(); len(list) != 3 || slices.Contains(list, "ffffffffffffffffffffffffffffffff") {
		t.Errorf("after a compaction env has %q", list)
	}
}
