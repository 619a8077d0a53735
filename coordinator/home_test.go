package coordinator_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/lanes"
)

const byHandIn = "## Task mine\n- status: queued\n- sessionKey: %s\n- prompt: by hand\n"

// TestHandWrittenTaskTakesTheWorkspaceOfItsSession that the latest task there has, which a
// compaction does not forget, else workspace_root; written while a master is at work or
// while there is none.
func TestHandWrittenTaskTakesTheWorkspaceOfItsSession(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key  string
		live bool
	}{"session": {"web", true}, "session, no master": {"web", false}, "root": {"other", true}, "root, no master": {"other", false}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			root := t.TempDir()
			w.cfg.WorkspaceRoot = root
			w.open()
			for _, dir := range []string{t.TempDir(), w.work} {
				w.wait(w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Workspace: dir}).ID)
			}
			if _, err := w.c.Compact(t.Context(), 0, false); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"web": w.work, "other": root}[tt.key]
			if tt.live {
				w.takeOver(byHandIn, tt.key)
			} else {
				w.close()
				w.edit("\n"+byHandIn, tt.key)
				w.open()
			}
			got := w.wait("mine")
			w.expect(got, state.Done, "")
			if last := w.agent.turns[len(w.agent.turns)-1]; got.Workspace != want || last.Workspace != want {
				t.Errorf("it ran in %s and is recorded with %s, want %s", last.Workspace, got.Workspace, want)
			}
			w.close()
		})
	}
}

// TestHeldTaskIsNoHome: a task that waits for a person's consent says nothing of where
// others of its session work.
func TestHeldTaskIsNoHome(t *testing.T) {
	w := newWorld(t)
	w.cfg.WorkspaceRoot = ""
	w.open()
	defer w.close()
	held := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Hold: true})
	w.takeOver(byHandIn, "web")
	if why, _ := w.c.Why("mine"); why != lanes.NoWorkspace {
		t.Errorf("why: %s", why)
	}
	if _, err := w.c.Release(t.Context(), held.ID, "client"); err != nil {
		t.Fatal(err)
	}
	w.expect(w.wait("mine"), state.Done, "")
}

// TestNoWorkspaceWaits: a task that has no workspace, nor its session, nor the
// configuration, starts nothing; it says so wherever a person looks, and what to do.
func TestNoWorkspaceWaits(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"a session": "## Task mine\n- status: queued\n- sessionKey: web\n", "no session": "## Task mine\n- status: queued\n"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.WorkspaceRoot = ""
			w.open()
			w.close()
			w.edit("\n%s- prompt: by hand\n", text)
			finds := func(when string, n int) {
				t.Helper()
				r, err := statedir.Fsck(t.Context(), w.dir, "", func() bool { return false })
				if err != nil || len(r.Faults) != n || n > 0 && (r.Faults[0].Kind != statedir.KindWaits || !strings.Contains(r.Faults[0].String(), "task mine: "+lanes.NoWorkspace)) {
					t.Errorf("%s: fsck finds %v, %v", when, r.Faults, err)
				}
			}
			finds("before a master comes", 1)
			if r, err := statedir.Fsck(t.Context(), w.dir, w.work, func() bool { return false }); err != nil || len(r.Faults) > 0 {
				t.Errorf("with workspace_root: %v, %v", r.Faults, err)
			}
			w.open()
			w.wait(w.submit(task.TaskSpec{Prompt: "others go on"}).ID)
			if why, err := w.c.Why("mine"); why != lanes.NoWorkspace || err != nil {
				t.Errorf("why: %s, %v", why, err)
			}
			if list := w.c.Findings(); len(list) != 1 || !strings.Contains(list[0].Message, lanes.NoWorkspace) || len(w.c.Health().Findings) != 1 || w.c.Metrics().Findings != 1 {
				t.Errorf("findings %v", list)
			}
			finds("under a master", 1)
			path := filepath.Join(w.dir, "tasks.md")
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(old), "- prompt: by hand", "- workspace: "+w.work+"\n- prompt: by hand", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := w.c.Reconcile(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			w.expect(w.wait("mine"), state.Done, "")
			if last := w.agent.turns[len(w.agent.turns)-1]; last.Workspace != w.work {
				t.Errorf("it ran in %s", last.Workspace)
			}
			w.close()
			finds("at the end", 0)
		})
	}
}

// TestSessionGetsAWorkspaceLater: then what waits for one takes it, and goes first.
func TestSessionGetsAWorkspaceLater(t *testing.T) {
	w := newWorld(t)
	w.cfg.WorkspaceRoot = ""
	w.open()
	defer w.close()
	w.takeOver(byHandIn, "web")
	next := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web"})
	w.expect(w.wait(next.ID), state.Done, "")
	if w.agent.turns[0].TaskID != "mine" || w.agent.turns[0].Workspace != w.work {
		t.Errorf("first ran %+v", w.agent.turns[0])
	}
}

// TestHandWrittenTasksOfOneDirectory: two that take workspace_root do not run there at
// the same time, nor beside a task that was submitted for it, also where all become ready at
// once.
func TestHandWrittenTasksOfOneDirectory(t *testing.T) {
	t.Run("one runs", func(t *testing.T) { oneDirectory(t, false) })
	t.Run("all become ready", func(t *testing.T) { oneDirectory(t, true) })
}

func oneDirectory(t *testing.T, atOnce bool) {
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		w.script(map[string][]step{})
		w.openUnwatched()
		if atOnce {
			if err := w.c.Pause(t.Context(), "", "test"); err != nil {
				t.Fatal(err)
			}
		}
		ids := []string{w.submit(task.TaskSpec{Prompt: "p"}).ID, "x", "y"}
		w.takeOver("## Task x\n- status: queued\n- prompt: p\n\n## Task y\n- status: queued\n- prompt: p\n")
		if err := w.c.Resume(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			w.expect(w.ended(id), state.Done, "")
		}
		if w.agent.most != 1 {
			t.Errorf("%d at the same time", w.agent.most)
		}
		w.close()
	})
}

// TestWorkspaceTakenOutOfARun: the next step of a task runs where its session works.
func TestWorkspaceTakenOutOfARun(t *testing.T) {
	t.Parallel()
	w := newJudgeWorld(t)
	w.cfg.WorkspaceRoot, w.cfg.Workspace = "", nil
	w.checks = []int{0}
	w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		w.takeOver("## Task mine\n- workspace:\n")
		return task.Outcome{Result: "fine", Session: "native-1"}
	}
	w.open()
	w.takeOver("## Task mine\n- status: queued\n- workspace: %s\n- verifyCommand: make\n- prompt: p\n", w.work)
	got := w.wait("mine")
	if w.expect(got, state.Done, ""); got.Workspace != w.work {
		t.Errorf("it ended in %q", got.Workspace)
	}
	w.close()
}
