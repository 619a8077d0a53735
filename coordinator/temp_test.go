package coordinator_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// TestTempIsNotRemovedUnderARun: a task that is tried again while its directory is being removed
// has one as long as it runs, and afterwards none is left.
func TestTempIsNotRemovedUnderARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.WorkDir, w.cfg.Cleanup = filepath.Join(filepath.Dir(w.dir), "data", "work"), true
	w.agent.do = keepsFile(t)
	w.open()
	ids := make([]string, 4)
	for i := range ids {
		made, err := w.c.Submit(t.Context(), task.TaskSpec{Prompt: "x", Isolation: state.IsolationTemp, InputFiles: []state.InputFile{{Name: "in/a", Content: "a"}}})
		fatal(t, err)
		if ids[i] = made.ID; made.Workspace != filepath.Join(w.cfg.WorkDir, made.ID) {
			t.Errorf("workspace %s", made.Workspace)
		}
	}
	for range 25 {
		for _, id := range ids {
			w.endsAs(id, state.Done, "")
			w.retry(id)
		}
	}
	for _, id := range ids {
		w.endsAs(id, state.Done, "")
	}
	w.restart() // what is left is the next master's
	for ctx, stop := context.WithTimeout(t.Context(), w.patience); ; runtime.Gosched() {
		entries, err := os.ReadDir(w.cfg.WorkDir)
		if fatal(t, err); len(entries) == 0 {
			stop()
			break
		}
		fatal(t, ctx.Err())
	}

	held, err := w.c.Submit(t.Context(), task.TaskSpec{Prompt: "x", Isolation: state.IsolationTemp, Hold: true})
	fatal(t, err)
	_, err = w.c.Edit(t.Context(), held.ID, task.Patch{Fields: []byte(`{"workspace":"/tmp"}`)}, ledger.ByClient)
	if err == nil || !strings.Contains(err.Error(), "has a directory of its own") {
		t.Errorf("its workspace was edited: %v", err)
	}
}

// keepsFile is an agent that writes a file into its directory, where it must stay.
func keepsFile(t *testing.T) func(context.Context, task.Turn, func(task.Event)) task.Outcome {
	return func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		file := filepath.Join(turn.Workspace, "file")
		check(t, os.WriteFile(file, []byte(turn.RunID), 0o600))
		for i := range 200 { // which take a while to be removed
			check(t, os.WriteFile(file+strconv.Itoa(i), nil, 0o600))
			if text, err := os.ReadFile(file); err != nil || string(text) != turn.RunID {
				t.Errorf("the file has %q, %v", text, err)
				break
			}
		}
		return task.Outcome{Result: "fine"}
	}
}

// TestTempOfHand: a person may ask for a directory of its own in tasks.md, also in a copy of
// another task that has one. No id leads out of work_dir.
func TestTempOfHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.WorkDir, w.cfg.WorkspaceRoot = filepath.Join(filepath.Dir(w.dir), "data", "work"), ""
	w.open()
	for _, c := range []struct{ id, more string }{
		{"mine", ""}, {"a:b", ""}, {"copy", "- workspace: " + w.cfg.WorkDir + "/mine\n"}, {"elsewhere", "- workspace: /\n"}, {"..", ""}, {".", ""},
	} {
		w.reconcile("## Task %s\n- status: queued\n- isolation: temp\n%s- prompt: x\n", c.id, c.more)
		got := w.wait(c.id)
		if strings.Trim(c.id, ".") == "" {
			if got.Status != state.Dead || !strings.Contains(got.Error, "its id cannot be the name of a directory") {
				t.Errorf("%s: %s, %s, in %s", c.id, got.Status, got.Error, got.Workspace)
			}
		} else if got.Status != state.Done || got.Workspace != filepath.Join(w.cfg.WorkDir, c.id) {
			t.Errorf("%s: %s, %s, in %s", c.id, got.Status, got.Error, got.Workspace)
		}
	}
	if entries, err := os.ReadDir(w.cfg.WorkDir); err != nil || len(entries) != 4 { // cleanup is off
		t.Errorf("%v, %v", entries, err)
	}
}
