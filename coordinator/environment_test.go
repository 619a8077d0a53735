package coordinator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	// A damaged file is written anew.
	_, damaged := task.EncodeEnvironment(gone)
	check(t, os.WriteFile(filepath.Join(dir, damaged), []byte("damaged"), 0o600))
	w.endsAs(w.submit(task.TaskSpec{Prompt: "p", Environment: gone}).ID, state.Done, "")
	if got := w.agent.turns[len(w.agent.turns)-1].Env; !slices.Equal(got, gone) {
		t.Errorf("with a damaged file it ran in %q", got)
	}
	// The file of a task that has not ended stays, however old it is, as does one that was used lately.
	waits := w.submit(task.TaskSpec{Prompt: "p", Hold: true, Environment: []string{"WAITS=1"}})
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		check(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if list := files(); len(list) != 3 || !slices.Contains(list, name) {
		t.Fatalf("env has %q", list)
	}
	_, unused := task.EncodeEnvironment(gone)
	old := time.Now().Add(-31 * 24 * time.Hour)
	for _, digest := range []string{unused, waits.Environment} {
		check(t, os.Chtimes(filepath.Join(dir, digest), old, old))
	}
	_, err := w.c.Prune(t.Context(), 30*24*time.Hour, false)
	check(t, err)
	if list := files(); len(list) != 2 || slices.Contains(list, unused) {
		t.Errorf("after files were removed env has %q", list)
	}

	// In a list the first one counts for those without; secrets and too much are refused.
	list, err := w.c.SubmitOnce(t.Context(), "", []task.TaskSpec{{Prompt: "p", Environment: []string{"MY_TOKEN=x", "PATH=/kept", "A=1"}}, {Prompt: "p"}, {Prompt: "p", Environment: gone}})
	if check(t, err); list[0].Environment != name || list[1].Environment != name || list[2].Environment == name {
		t.Errorf("environments %q %q %q", list[0].Environment, list[1].Environment, list[2].Environment)
	}
	_, err = w.c.Submit(t.Context(), task.TaskSpec{Prompt: "p", Environment: []string{"A=" + strings.Repeat("x", task.MaxEnvironment)}})
	if !errors.Is(err, &task.Error{Code: task.CodeInvalid}) {
		t.Errorf("too much: %v", err)
	}
}
