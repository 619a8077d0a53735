package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/explain"
)

// TestHandWrittenTaskTakesTheWorkspaceOfItsSession that the latest task there has, which a compaction does
// not forget, else workspace_root; written while a master is at work or while there is none.
func TestHandWrittenTaskTakesTheWorkspaceOfItsSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.WorkspaceRoot = t.TempDir()
	w.open()
	for _, dir := range []string{t.TempDir(), w.work} {
		w.wait(w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Workspace: dir}).ID)
	}
	w.compact(0)
	const two = "\n## Task web-%[1]s\n- status: queued\n- sessionKey: web\n- prompt: by hand\n\n## Task other-%[1]s\n- status: queued\n- sessionKey: other\n- prompt: by hand\n"
	w.reconcile(two, "live")
	w.close()
	w.edit(two, "closed")
	w.open()
	for id, want := range map[string]string{"web-live": w.work, "other-live": w.cfg.WorkspaceRoot, "web-closed": w.work, "other-closed": w.cfg.WorkspaceRoot} {
		got := w.endsAs(id, state.Done, "")
		if got.Workspace != want {
			t.Errorf("%s is recorded with %s, want %s", id, got.Workspace, want)
		}
	}
	for _, turn := range w.agent.turns {
		if got := w.task(turn.TaskID); turn.Workspace != got.Workspace && got.Prompt == "by hand" {
			t.Errorf("%s ran in %s", turn.TaskID, turn.Workspace)
		}
	}
}

// TestSessionGetsAWorkspaceLater: then what waits for one takes it, and goes first. A task
// that waits for a person's consent says nothing of where others of its session work.
func TestSessionGetsAWorkspaceLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.WorkspaceRoot = ""
	w.open()
	w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", Hold: true})
	w.reconcile("## Task mine\n- status: queued\n- sessionKey: web\n- prompt: by hand\n")
	if why, _ := w.c.Why("mine"); why != explain.NoWorkspace {
		t.Errorf("why: %s", why)
	}
	next := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web"})
	w.endsAs(next.ID, state.Done, "")
	if w.agent.turns[0].TaskID != "mine" || w.agent.turns[0].Workspace != w.work {
		t.Errorf("first ran %+v", w.agent.turns[0])
	}
}

// TestHandWrittenTasksOfOneDirectory: two that take workspace_root do not run there at the same time, nor
// beside a task that was submitted for it, also where all become ready at once.
func TestHandWrittenTasksOfOneDirectory(t *testing.T) {
	t.Parallel()
	for _, atOnce := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := limitedWorld(t)
			w.script(map[string][]step{})
			w.openUnwatched()
			if atOnce {
				check(t, w.c.Pause(t.Context(), "", "test"))
			}
			ids := []string{w.submit(task.TaskSpec{Prompt: "p"}).ID, "x", "y"}
			w.reconcile("## Task x\n- status: queued\n- prompt: p\n\n## Task y\n- status: queued\n- prompt: p\n")
			check(t, w.c.Resume(t.Context(), "test"))
			for _, id := range ids {
				w.expect(w.ended(id), state.Done, "")
			}
			if w.agent.most != 1 {
				t.Errorf("%d at the same time", w.agent.most)
			}
		})
	}
}

// TestWorkspaceTakenOutOfARun: the next step of a task runs where its session works.
func TestWorkspaceTakenOutOfARun(t *testing.T) {
	t.Parallel()
	w := newJudgeWorld(t)
	w.settings(queue.WorkspaceSettings{})
	w.cfg.WorkspaceRoot = ""
	w.checks = []int{0}
	w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		w.reconcile("## Task mine\n- workspace:\n")
		return task.Outcome{Result: "fine", Session: "native-1"}
	}
	w.open()
	w.reconcile("## Task mine\n- status: queued\n- workspace: %s\n- verifyCommand: make\n- prompt: p\n", w.work)
	got := w.endsAs("mine", state.Done, "")
	if got.Workspace != w.work {
		t.Errorf("it ended in %q", got.Workspace)
	}
}
