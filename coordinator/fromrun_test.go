package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator"
	"stint/coordinator/queue"
	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/memory"
	"stint/state"
)

// parentNative is the agent's session of the task in fromRun.
const parentNative = "22222222-2222-4222-8222-222222222222"

// fromRun lets a task run that does things while its agent is at work, and waits for
// all ends. The task is called parent.
func fromRun(t *testing.T, configure func(*world), do func(w *world, parent state.Task)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		if configure != nil {
			configure(w)
		}
		w.during(taskID(1), func(run string) { do(w, w.task(taskID(1))) })
		w.openUnwatched()
		w.ended(w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Priority: 9, Allow: w.cfg.Allow[:min(1, len(w.cfg.Allow))]}).ID)
	})
}

// during has something done in each run of a task, before its agent ends.
func (w *world) during(id string, do func(run string)) {
	plain := w.agent.do
	w.agent.do = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
		if turn.TaskID == id {
			report(task.Event{Session: parentNative})
			do(turn.RunID)
		}
		return plain(ctx, turn, report)
	}
}

var forbidden = &task.Error{Code: task.CodeForbidden}

// TestARunQueuesTasks: what a run asks for belongs to its task; the same request again
// gives the same task; the number is bounded, in one batch as in many requests.
func TestARunQueuesTasks(t *testing.T) {
	fromRun(t, nil, func(w *world, parent state.Task) {
		spec := task.TaskSpec{ID: taskID(2), Prompt: "child", FromRun: parent.RunID, Workspace: w.work}
		child := w.submit(spec)
		if child.TriggeredBy != parent.ID || child.Trigger != state.ByAgent || child.By != ledger.ByAgent || child.Hold || child.Priority != 0 {
			t.Errorf("child %+v", child)
		}
		if again, err := w.try(spec); err != nil || again.ID != child.ID {
			t.Errorf("again: %s, %v", again.ID, err)
		}
		spec.ID, spec.IdempotencyKey = "", "k"
		keyed := w.submit(spec)
		if again, err := w.try(spec); err != nil || again.ID != keyed.ID {
			t.Errorf("again by key: %s, %v", again.ID, err)
		}
		spec.IdempotencyKey = ""
		if _, err := w.submitAll([]task.TaskSpec{spec, spec}); !errors.Is(err, forbidden) || !strings.Contains(err.Error(), "max_follow_ups is 3, and the agent of task "+parent.ID+" has queued as many") {
			t.Errorf("a batch that goes beyond the number: %v", err)
		}
		w.submit(spec)
		if _, err := w.try(spec); !errors.Is(err, forbidden) {
			t.Errorf("one too many: %v", err)
		}
		if got := w.task(parent.ID).FollowUps; len(got) != 3 {
			t.Errorf("children %q", got)
		}
		ended := w.ended(w.submit(task.TaskSpec{Prompt: "p", Parallel: true}).ID)
		for _, run := range []string{ended.RunID, taskID(7), "../x", "\x00"} { // one that has ended, or that nobody knows
			if _, err := w.try(task.TaskSpec{Prompt: "child", FromRun: run}); !errors.Is(err, forbidden) || !strings.Contains(err.Error(), "does not run any more, or not here") {
				t.Errorf("run %q: %v", run, err)
			}
		}
	})
}

// TestARunLeavesTheFollowUp: what an agent queues does not take the place of what the
// user wants to follow, nor the other way round; those in the archive are what they were.
func TestARunLeavesTheFollowUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		w.during(taskID(1), func(run string) {
			for err := error(nil); err == nil; {
				_, err = w.try(task.TaskSpec{Prompt: "child", FromRun: run})
			}
		})
		w.openUnwatched()
		w.submit(task.TaskSpec{ID: taskID(1), Prompt: "fail", OnFailure: "look"})
		for n, want := range []int{3 + 1, 3 + 2} {
			if n > 0 {
				time.Sleep(time.Hour)
				w.moveOut()
				w.close()
				w.openUnwatched()
				w.retry(taskID(1))
			}
			end, failed := w.ended(taskID(1)), 0
			for _, child := range w.children(taskID(1)) {
				if child.Trigger == state.OnFailure {
					failed++
				}
			}
			if len(end.FollowUps) != want || failed != n+1 || end.Note != "" {
				t.Errorf("it has queued %d others, %d of them at its ends; note %q", len(end.FollowUps), failed, end.Note)
			}
		}
	})
}

// TestARunQueuesNoChains: where the depth is used up, a run queues nothing.
func TestARunQueuesNoChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		w.cfg.FollowUpDepth, w.cfg.MaxFollowUps = 3, 2
		var last atomic.Pointer[error] // of whichever run was told so last
		var tries atomic.Int32         // a chain without an end must not hang the test
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			for err := error(nil); err == nil && tries.Add(1) < 100; last.Store(&err) {
				_, err = w.try(task.TaskSpec{Prompt: "more", FromRun: turn.RunID, Parallel: true})
			}
			return task.Outcome{Result: "x"}
		}
		w.openUnwatched()
		w.submit(task.TaskSpec{Prompt: "p"})
		synctest.Wait()
		list := w.c.List(state.Filter{})
		for _, task := range list {
			w.ended(task.ID)
		}
		if len(list) != 1+2+4+8 || !errors.Is(*last.Load(), forbidden) {
			t.Errorf("%d tasks; the last answer was %v", len(list), *last.Load())
		}
	})
}

// TestARunHasNoRights: what would give a run more than its own task has waits for a
// person, who is told all of it, or is refused.
func TestARunHasNoRights(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	var home string // of the parent
	configure := func(w *world) {
		w.cfg.MaxFollowUps = 100
		w.settings(queue.WorkspaceSettings{VerifyCommand: "make test", Allow: []string{"Bash(go *)", "Edit"}})
		w.cfg.Shell = passes{}
		w.cfg.Agents["other"] = w.agent
		home = filepath.Join(root, "a")
		check(t, errors.Join(
			os.MkdirAll(filepath.Join(home, "sub", ".Git", "hooks"), 0o700), os.Mkdir(filepath.Join(root, "b"), 0o700), os.Symlink(other, filepath.Join(home, "link")),
			os.Mkdir(filepath.Join(root, ".git"), 0o700), os.WriteFile(filepath.Join(root, ".git", "HEAD"), nil, 0o600),
		))
		w.work = home
	}
	fromRun(t, configure, func(w *world, parent state.Task) {
		w.submit(task.TaskSpec{Prompt: "the user's", SessionKey: "web", Workspace: other})
		w.submit(task.TaskSpec{Prompt: "the user's", Workspace: filepath.Join(root, "b")})
		asks := func(spec task.TaskSpec, note string) state.Task { // "": it is not held
			t.Helper()
			spec.Prompt, spec.FromRun = "child", parent.RunID
			got := w.submit(spec)
			if want := "an agent asked for it, " + note + " in stint show, then stint release " + got.ID; got.Hold != (note != "") || got.Hold && got.Note != want {
				t.Errorf("%+v: hold %v, note %q", spec, got.Hold, got.Note)
			}
			if spec.Agent == "" && got.Agent != "demo" {
				t.Errorf("%+v: it is for %s", spec, got.Agent)
			}
			return got
		}
		holds := func(spec task.TaskSpec, note string) {
			t.Helper()
			got := asks(spec, note) // it stays so for one who takes it up again without having looked
			_, canceled := w.c.Cancel(w.t.Context(), got.ID, ledger.ByAgent)
			again, retried := w.c.Retry(w.t.Context(), got.ID, ledger.ByClient)
			_, end := w.c.Cancel(w.t.Context(), got.ID, ledger.ByAgent)
			if err := errors.Join(canceled, retried, end); err != nil || !again.Hold || again.Note != got.Note {
				t.Errorf("%+v: retried it has hold %v, note %q, %v", spec, again.Hold, again.Note, err)
			}
		}
		outside, notOwn := "outside of "+home+": look at workspace and prompt", "in a session that is not its own: look at session and prompt"
		asks(task.TaskSpec{}, "")
		asks(task.TaskSpec{VerifyCommand: "make test"}, "") // the configured one
		asks(task.TaskSpec{Workspace: filepath.Join(home, "sub")}, "")
		asks(task.TaskSpec{Agent: "demo"}, "")
		asks(task.TaskSpec{DefaultAgent: "other"}, "") // the client's
		asks(task.TaskSpec{Fallback: []string{"none"}}, "")
		asks(task.TaskSpec{Continue: true}, "")
		holds(task.TaskSpec{VerifyCommand: "rm -rf /"}, "with a verify command of its own, which is run as you: look at verifyCommand")
		holds(task.TaskSpec{VerifyCommand: task.NoVerify}, "without the configured verify command: look at verifyCommand")
		for _, dir := range []string{other, filepath.Join(home, "link"), root, filepath.Join(root, "b")} { // root is in the same checkout
			holds(task.TaskSpec{Workspace: dir}, outside)
		}
		holds(task.TaskSpec{Workspace: filepath.Join(home, "sub", ".Git", "hooks")}, "in a directory of git's or an agent's own: look at workspace and prompt")
		holds(task.TaskSpec{Agent: "other"}, "for another agent: look at agent and prompt")
		holds(task.TaskSpec{Fallback: []string{"other"}}, "with another fallback: look at fallback")
		asks(task.TaskSpec{Allow: []string{"Bash(go test *)"}}, "")
		holds(task.TaskSpec{Allow: []string{"Bash(go test)", "Edit"}}, "with --allow rules that its own task lacks: look at allow and prompt")
		if _, err := w.try(task.TaskSpec{Prompt: "child", FromRun: parent.RunID, Allow: []string{"Bash(rm *)"}}); err == nil {
			t.Error("a run allows what the configuration does not")
		}
		let := asks(task.TaskSpec{SessionKey: "web"}, notOwn)
		w.release(let.ID)
		w.expect(w.ended(let.ID), state.Done, "")
		holds(task.TaskSpec{SessionKey: "web"}, notOwn) // that one alone was let in
		asks(task.TaskSpec{SessionKey: "mine"}, "")
		if r, err := w.c.Compact(w.t.Context(), time.Hour, false, false); err != nil || r.Archive == "" {
			t.Errorf("compaction: %+v, %v", r, err)
		}
		asks(task.TaskSpec{SessionKey: "mine"}, "") // that it was not held is not forgotten
		asks(task.TaskSpec{AgentSession: parentNative}, "")
		holds(task.TaskSpec{AgentSession: "11111111-1111-4111-8111-111111111111"}, notOwn)
		w.submit(task.TaskSpec{Prompt: "the user's", Workspace: filepath.Join(root, "b"), Agent: "other"}) // which may be continued
		holds(task.TaskSpec{VerifyCommand: "true", Workspace: filepath.Join(root, "b"), Agent: "other", Continue: true},
			"with a verify command of its own, which is run as you, outside of "+home+", for another agent, in a session that is not its own: look at verifyCommand, workspace and prompt, agent and prompt, session and prompt")
		spec := task.TaskSpec{Prompt: "child", FromRun: parent.RunID, Workspace: filepath.Dir(w.dir), AllowStateInWorkspace: true}
		if _, err := w.try(spec); err == nil || !strings.Contains(err.Error(), "the state directory") {
			t.Errorf("where the state is: %v", err)
		}
	})
}

// TestARunForeseesItsOwnNotes: a preview for a run shows it no notes that it may not search.
func TestARunForeseesItsOwnNotes(t *testing.T) {
	other := t.TempDir()
	configure := func(w *world) {
		w.cfg.Memory = func(_ context.Context, dir, _ string) (memory.Result, error) {
			return memory.Result{Engine: "scan", Hits: []memory.Hit{{Path: "MEMORY.md", Line: 1, Text: "noted in " + dir}}}, nil
		}
		check(t, errors.Join(os.Mkdir(filepath.Join(w.work, "sub"), 0o700), os.Symlink(other, filepath.Join(w.work, "link"))))
	}
	fromRun(t, configure, func(w *world, parent state.Task) {
		for dir, want := range map[string]bool{w.work: true, filepath.Join(w.work, "sub"): true, filepath.Join(w.work, "link"): false, other: false} {
			list, err := w.c.Preview(w.t.Context(), []task.TaskSpec{{Prompt: "p", Workspace: dir, FromRun: parent.RunID}}, false)
			check(t, err)
			p := list[0]
			if found := len(p.Memory.Hits) > 0; found != want || strings.Contains(p.Prompt, "noted in") != found || p.Task.Hold == found {
				t.Errorf("in %s: %+v, hold %v, prompt\n%s", dir, p.Memory, p.Task.Hold, p.Prompt)
			}
			if strings.Contains(p.Memory.Partial, "a run may search the notes of its own workspace only") == want {
				t.Errorf("in %s: it says %q", dir, p.Memory.Partial)
			}
		}
	})
}

// TestAMoveLetsNothingElseIn: a person who moves a task of an agent, or the running task
// itself, into a session lets in that task's next run, and not what an agent asks for next.
func TestAMoveLetsNothingElseIn(t *testing.T) {
	fromRun(t, func(w *world) { w.cfg.MaxFollowUps = 100 }, func(w *world, parent state.Task) {
		w.submit(task.TaskSpec{Prompt: "the user's", SessionKey: "web"})
		spec := task.TaskSpec{Prompt: "child", FromRun: parent.RunID, After: []string{parent.ID}}
		asksInVain := func() {
			t.Helper()
			for _, s := range []task.TaskSpec{{SessionKey: "web"}, {AgentSession: "theirs"}} {
				spec.SessionKey, spec.AgentSession = s.SessionKey, s.AgentSession
				next := w.submit(spec)
				if !next.Hold || !strings.Contains(next.Note, "in a session that is not its own") {
					t.Errorf("%+v: hold %v, note %q", s, next.Hold, next.Note)
				}
				w.cancel(next.ID)
			}
		}
		child := w.submit(spec)
		moved, err := w.c.Edit(w.t.Context(), child.ID, task.Patch{Fields: []byte(`{"sessionKey":"web"}`)}, ledger.ByClient)
		if err != nil || child.Intake != state.IntakeOpen || moved.SessionKey != "web" || moved.Hold {
			t.Errorf("intake %q, moved to %s, hold %v, %v", child.Intake, moved.SessionKey, moved.Hold, err)
		}
		asksInVain()
		w.reconcile("## Task %s\n- sessionKey: web\n- %s: theirs\n", parent.ID, state.NativeKey(parent.Agent))
		if moved := w.task(parent.ID); moved.SessionKey != "web" || moved.Status != state.Running {
			t.Errorf("it is %s in %s", moved.Status, moved.SessionKey)
		}
		spec.After = nil
		asksInVain()
	})
}

// TestARunIsNoMender: the session of a task's follow-up is not its run's own.
func TestARunIsNoMender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		w.settings(queue.WorkspaceSettings{TriggerSession: "fixer"})
		w.openUnwatched()
		w.ended(w.submit(task.TaskSpec{ID: taskID(1), Prompt: "fail", OnFailure: "look"}).ID)
		w.onlyChild(taskID(1))
		var asked state.Task
		w.during(taskID(1), func(run string) {
			asked = w.submit(task.TaskSpec{Prompt: "child", FromRun: run, SessionKey: "fixer"})
		})
		w.retry(taskID(1))
		w.ended(taskID(1))
		if asked.ID == "" || !asked.Hold {
			t.Errorf("what its agent asks for: %q, hold %v", asked.ID, asked.Hold)
		}
	})
}

// TestARunCannotMoveItsTasks: a link in the place of a directory that a run has named
// leads no task there, nor the follow-up of that task.
func TestARunCannotMoveItsTasks(t *testing.T) {
	for _, toState := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := followWorld(t)
			to, want := t.TempDir(), "the workspace of the task has become a link to "
			if toState {
				to, want = filepath.Dir(w.dir), "the state directory lies in the task's workspace"
			}
			dir := filepath.Join(w.work, "d")
			w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
				if turn.TaskID != taskID(1) {
					t.Errorf("an agent was started in %s", turn.Workspace)
					return task.Outcome{}
				}
				err := os.Mkdir(dir, 0o700)
				child, tried := w.try(task.TaskSpec{ID: taskID(2), Prompt: "child", FromRun: turn.RunID, Workspace: dir, OnFailure: "look", After: []string{taskID(1)}})
				if err := errors.Join(err, tried, os.Remove(dir), os.Symlink(to, dir)); err != nil || child.Hold {
					t.Errorf("hold %v, %v", child.Hold, err)
				}
				return task.Outcome{}
			}
			w.cfg.FollowUpDepth = 3
			w.openUnwatched()
			w.ended(w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p"}).ID)
			end := w.ended(taskID(2))
			if end.Status != state.Failed || !strings.Contains(end.Error, want) || len(end.FollowUps) > 0 || !strings.Contains(end.Note, "no follow-up was queued: ") {
				t.Errorf("%s: %q, note %q, %d follow-ups", end.Status, end.Error, end.Note, len(end.FollowUps))
			}
		})
	}
}

// TestARunCannotMoveItself: a link that a run has made in the place of its own workspace
// makes nothing its task's own, and nothing else is begun there: no later run of the
// task, and no verify command. A person may name that directory.
func TestARunCannotMoveItself(t *testing.T) {
	for _, then := range []state.Class{"", state.ClassNetwork} {
		synctest.Test(t, func(t *testing.T) {
			w, other := followWorld(t), t.TempDir()
			dir, named := filepath.Join(w.work, "d"), false
			check(t, os.Mkdir(dir, 0o700))
			w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
				if turn.Workspace != dir {
					return task.Outcome{}
				}
				check(t, errors.Join(os.Remove(dir), os.Symlink(other, dir)))
				if child, err := w.try(task.TaskSpec{Prompt: "child", FromRun: turn.RunID, Workspace: other}); err != nil || !child.Hold {
					t.Errorf("hold %v, %v", child.Hold, err)
				}
				return task.Outcome{Class: then}
			}
			w.cfg.Shell = &fakeShell{do: func(_ context.Context, v task.VerifyRun) task.VerifyResult {
				if !named {
					t.Errorf("a command was run in %s", v.Workspace)
				}
				return task.VerifyResult{}
			}}
			w.openUnwatched()
			got := w.endsAs(w.submit(task.TaskSpec{Prompt: "p", Workspace: dir, VerifyCommand: "make test"}).ID, state.Failed, state.ClassExit)
			if !strings.Contains(got.Error, "has become a link to "+other+"; name the directory that you mean") || len(w.agent.turns) != 1 {
				t.Errorf("%d turns: %s", len(w.agent.turns), got.Error)
			}
			named = true
			w.reconcile("## Task %s\n- status: queued\n- workspace: %s\n", got.ID, other)
			w.expect(w.ended(got.ID), state.Done, "")
		})
	}
}

// TestNothingIsCollectedElsewhere: a link that comes in the place of a workspace while
// its agent is at work leads nobody to the files there.
func TestNothingIsCollectedElsewhere(t *testing.T) {
	secret, dir := t.TempDir(), ""
	configure := func(w *world) {
		dir = filepath.Join(w.work, "d")
		check(t, errors.Join(os.WriteFile(filepath.Join(secret, "key"), nil, 0o600), os.Mkdir(dir, 0o700)))
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			if turn.Workspace == dir {
				check(t, errors.Join(os.Remove(dir), os.Symlink(secret, dir)))
			}
			return task.Outcome{}
		}
	}
	for _, of := range []string{"the user's", "a run's"} {
		fromRun(t, configure, func(w *world, parent state.Task) {
			spec := task.TaskSpec{Prompt: "p", Workspace: dir, OutputSpec: []string{"key"}, Parallel: true}
			if of == "a run's" {
				spec.FromRun = parent.RunID
			}
			got := w.endsAs(w.submit(spec).ID, state.Failed, state.ClassOutputMissing)
			if _, err := os.Stat(filepath.Join(w.dir, "runs", got.RunID, "files", "key")); len(got.OutputFiles) > 0 || err == nil || !strings.Contains(got.Error, secret) {
				t.Errorf("%s: %v, %q", of, got.OutputFiles, got.Error)
			}
		})
	}
}

// TestARunBehindALink: a person's workspace may have a link in it; what its run asks
// for there is not elsewhere.
func TestARunBehindALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		link := filepath.Join(t.TempDir(), "link")
		check(t, os.Symlink(w.work, link))
		write(t, filepath.Join(w.dir, ledger.TasksName), fmt.Sprintf("## Task %s\n- status: queued\n- workspace: %s\n- prompt: p\n", taskID(1), link))
		w.during(taskID(1), func(run string) {
			if child := w.submit(task.TaskSpec{Prompt: "child", FromRun: run}); child.Hold {
				t.Errorf("it is held: %s", child.Note)
			}
		})
		w.openUnwatched()
		w.ended(taskID(1))
	})
}

// passes is a shell in which every command passes.
type passes struct{}

func (passes) Verify(context.Context, task.VerifyRun) task.VerifyResult {
	return task.VerifyResult{}
}

// TestARunWaitsForItsOwn: a run may wait for a task that it has queued with a lane of its
// own, and for no other one; neither it nor its client is left waiting in vain.
func TestARunWaitsForItsOwn(t *testing.T) {
	const noLane, after = "it has no lane of its own", "it comes after other tasks"
	fromRun(t, func(w *world) { w.cfg.MaxFollowUps = 100 }, func(w *world, parent state.Task) {
		w.submit(task.TaskSpec{ID: taskID(2), Prompt: "the user's", Parallel: true, NotBefore: time.Now().Add(time.Hour)})
		for _, c := range []struct {
			spec task.TaskSpec
			want string // "": it may wait
		}{
			{task.TaskSpec{}, noLane},
			{task.TaskSpec{SessionKey: "mine"}, noLane},
			{task.TaskSpec{Parallel: true}, ""},
			{task.TaskSpec{Parallel: true, After: []string{parent.ID}}, after},
			{task.TaskSpec{Parallel: true, After: []string{taskID(2)}}, after},
			{task.TaskSpec{Parallel: true, AgentSession: parentNative}, "its agent session or its checkout is used by " + parent.ID},
		} {
			c.spec.Prompt, c.spec.FromRun, c.spec.NotBefore = "child", parent.RunID, time.Now().Add(time.Minute)
			child := w.submit(c.spec)
			c.spec.Await = true
			awaited, err := w.try(c.spec)
			for _, err := range []error{err, w.mayWait(parent.RunID, child.ID)} {
				if c.want == "" && err != nil || c.want != "" && (code(err) != task.CodeConflict || !strings.Contains(err.Error(), ": "+c.want)) {
					t.Errorf("%+v: %v, want %q", c.spec, err, c.want)
				}
			}
			if c.want != "" {
				continue
			}
			for _, id := range []string{child.ID, awaited.ID} { // ended, it is waited for by nobody
				if w.ended(id); w.mayWait(parent.RunID, id) != nil {
					t.Errorf("%+v has ended, and the run cannot ask for its end", c.spec)
				}
			}
		}
		held := w.submit(task.TaskSpec{Prompt: "child", FromRun: parent.RunID, Parallel: true, VerifyCommand: "true", Await: true}) // so that a person sees it
		for id, want := range map[string]string{
			parent.ID: "it has not queued that task", taskID(2): "it has not queued that task", held.ID: "it is held until stint release " + held.ID,
		} {
			if err := w.mayWait(parent.RunID, id); code(err) != task.CodeConflict || !strings.Contains(err.Error(), "this run cannot wait for task "+id+": "+want) {
				t.Errorf("task %s: %v, want %s", id, err, want)
			}
			if err := w.mayWait(taskID(9), id); err != nil {
				t.Errorf("a client of no run: %v", err)
			}
		}
		w.cancel(held.ID)
		synctest.Wait()                                           // other children have ended too, whose ends would lift the limit
		w.reconcile("## Control account:demo\n- limitWaits: 1\n") // its run finds out whether the limit has passed, and no other one runs
		if _, err := w.try(task.TaskSpec{Prompt: "child", FromRun: parent.RunID, Parallel: true, Await: true}); code(err) != task.CodeConflict || !strings.Contains(err.Error(), ": account demo has no slot left, and a run that waits has one") {
			t.Errorf("an account that the run fills: %v", err)
		}
	})
}

// TestARunDoesNotWaitForItsCheckout: with checkout = "exclusive" a run may queue a task that needs its own
// checkout, and not wait for it. A .git that it makes in a directory, or below that of its child, changes nothing.
func TestARunDoesNotWaitForItsCheckout(t *testing.T) {
	for _, planted := range []string{"", "sub", "sub/deep"} {
		t.Run(planted, func(t *testing.T) { testOwnCheckout(t, planted) })
	}
}

func testOwnCheckout(t *testing.T, planted string) {
	fromRun(t, func(w *world) { w.cfg.Checkout = "exclusive" }, func(w *world, parent state.Task) {
		defer func(dir string) { w.work = dir }(w.work)
		if w.work = filepath.Join(w.work, planted); planted != "" {
			plantGit(t, w.work)
		}
		child := task.TaskSpec{Prompt: "child", FromRun: parent.RunID, Parallel: true, Await: true}
		const want = ": its agent session or its checkout is used by "
		if _, err := w.try(child); code(err) != task.CodeConflict || !strings.Contains(err.Error(), want+parent.ID) {
			t.Errorf("a new task: %v", err)
		}
		child.Await = false
		queued := w.submit(child)
		synctest.Wait()
		if err := w.mayWait(parent.RunID, queued.ID); code(err) != task.CodeConflict || !strings.Contains(err.Error(), want+parent.ID) {
			t.Errorf("a task that waits: %v", err)
		}
		if why := w.why(queued.ID); !strings.Contains(why, ", where one task runs at a time: it is a worktree, or checkout is exclusive") {
			t.Errorf("it does not run because: %s", why)
		}
	})
}

// plantGit makes a directory look like a checkout.
func plantGit(t *testing.T, dir string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Join(dir, ".git"), 0o700))
	write(t, filepath.Join(dir, ".git", "HEAD"), "ref: refs/heads/main\n")
}

// TestAFollowUpHasTheLaneOfItsTask: what follows a task that failed in a directory with a .git, which its run may have
// made, goes to the lane of the checkout around it, whoever queued the task.
func TestAFollowUpHasTheLaneOfItsTask(t *testing.T) {
	fromRun(t, func(w *world) { w.cfg.FollowUpDepth = 2 }, func(w *world, parent state.Task) {
		plantGit(t, w.work)
		planted := filepath.Join(w.work, "sub")
		check(t, os.Mkdir(planted, 0o700))
		byPerson := w.submit(task.TaskSpec{Prompt: "fail", Workspace: planted, Parallel: true, OnFailure: "Look at it.", Hold: true}).ID
		plantGit(t, planted)
		byRun := w.submit(task.TaskSpec{Prompt: "fail", FromRun: parent.RunID, Parallel: true, Workspace: planted, OnFailure: "Look at it."}).ID
		_, err := w.c.Release(t.Context(), byPerson, "client")
		check(t, err)
		for _, id := range []string{byPerson, byRun} {
			child := w.ended(id)
			if len(child.FollowUps) != 1 {
				t.Fatalf("%s: %q, %q", child.Status, child.FollowUps, child.Note)
			}
			if got := w.task(child.FollowUps[0]); got.Lane() != parent.Lane() {
				t.Errorf("its lane is %s, that of the checkout %s", got.Lane(), parent.Lane())
			}
		}
	})
}

// TestPlaceOfARunsTasks: a run in a directory that is no checkout leaves the checkouts in it their lanes, and the
// configuration of a task's own workspace says whether it runs alone.
func TestPlaceOfARunsTasks(t *testing.T) {
	fromRun(t, func(w *world) {
		w.cfg.Exclusive = true
		w.cfg.Workspace = func(path string) queue.WorkspaceSettings {
			set := w.cfg.WorkspaceSettings
			if filepath.Base(path) == "alone" {
				set.Checkout = queue.CheckoutExclusive
			}
			return set
		}
	}, func(w *world, parent state.Task) {
		dir := filepath.Join(w.work, "repo", "alone")
		check(t, os.MkdirAll(dir, 0o700))
		plantGit(t, filepath.Dir(dir))
		child := w.submit(task.TaskSpec{Prompt: "child", FromRun: parent.RunID, Workspace: dir, Hold: true})
		if want := state.LanePrefixDir + filepath.Dir(dir); child.Lane() != want {
			t.Errorf("its lane is %s, not %s", child.Lane(), want)
		}
		child.Within = filepath.Dir(dir)
		if at := w.c.Checkout(&child); at != filepath.Dir(dir) {
			t.Errorf("it runs alone in %q", at)
		}
	})
}

// mayWait lets a run begin to wait for a task, and end that at once.
func (w *world) mayWait(run, id string) error {
	done, err := w.c.BeginWait(run, id)
	if err == nil {
		done()
	}
	return err
}

// TestAWaitingRunLendsItsWorker: tasks that wait for each other need one worker, however
// many they are; when the wait or the run is over, nothing is lent.
func TestAWaitingRunLendsItsWorker(t *testing.T) {
	const depth = 3
	waitFor := func(w *world, run string, id int) {
		w.submit(task.TaskSpec{ID: taskID(id), Prompt: "child", FromRun: run, Await: true, Parallel: true})
		done, err := w.c.BeginWait(run, taskID(id))
		if err != nil {
			t.Error(err)
			return
		}
		w.ended(taskID(id))
		done()
	}
	configure := func(w *world) {
		w.cfg.MaxWorkers, w.cfg.FollowUpDepth = 1, depth
		for id := 2; id <= depth; id++ {
			w.during(taskID(id), func(run string) { waitFor(w, run, id+1) })
		}
	}
	var c *coordinator.Coordinator
	fromRun(t, configure, func(w *world, parent state.Task) {
		c = w.c
		waitFor(w, parent.RunID, 2)
		other := w.submit(task.TaskSpec{Prompt: "child", FromRun: parent.RunID, Parallel: true})
		synctest.Wait()
		if why := w.why(other.ID); !strings.HasPrefix(why, "no worker is free") {
			t.Errorf("a task that nobody waits for: %s", why)
		}
		if _, err := c.BeginWait(parent.RunID, other.ID); err != nil || len(c.Limits().Lent) != 1 { // it never ends
			t.Errorf("%d workers are lent, %v", len(c.Limits().Lent), err)
		}
	})
	if lent := c.Limits().Lent; len(lent) != 0 {
		t.Errorf("a run that has ended lends its worker: %v", lent)
	}
}

// TestARunGetsNoMoreThanItsTask: numbers beyond those of its own task are capped, also where it leaves them
// to the configuration, and a note tells; another model is held; and so it is with what follows its tasks.
func TestARunGetsNoMoreThanItsTask(t *testing.T) {
	t.Parallel()
	parent := task.TaskSpec{
		ID: taskID(1), Prompt: "p", Model: "small", Priority: 3, Timeout: "10m", MaxAttempts: 2, VerifyCommand: "make test",
		MaxIterations: 2, VerifyTimeout: "1m", NoWaitLimit: true,
	}
	more := task.TaskSpec{Model: "big", Priority: 9, Timeout: "1h", MaxAttempts: 9, MaxIterations: 9, VerifyTimeout: "1h", OnFailure: "look", Notify: true}
	less := task.TaskSpec{Model: "small", Priority: 1, Timeout: "1m", MaxAttempts: 1, MaxIterations: 1, VerifyTimeout: "1s", NoWaitLimit: true}
	const all = "limited to the values of task 019ab3f0-6f1e-7c3a-9a51-000000000001, which queued it: priority 3, maxAttempts 2, timeout 10m0s, verifyTimeout 1m0s, maxIterations 2, maxLimitWait 0s"
	for _, tc := range []struct {
		name, prompt string
		parent, ask  task.TaskSpec
		want         string // model, priority, attempts, timeout, verify timeout, iterations, limit wait
		note         string
		hold         bool
	}{
		{"more", "child", parent, more, "big 3 2 10m0s 1m0s 2 0s", all, true},
		{"more of its own model", "fail", parent, task.TaskSpec{Priority: 9, OnFailure: "look"}, "small 3 2 10m0s 1m0s 2 0s", all, false},
		{"left to the configuration", "child", parent, task.TaskSpec{}, "small 3 2 10m0s 1m0s 2 0s", all, false},
		{"less", "child", parent, less, "small 1 1 1m 1s 1 0s", "", false},
		{"nothing of a task that says nothing", "child", task.TaskSpec{ID: taskID(1), Prompt: "p"}, task.TaskSpec{}, " 0 0   0 ", "", false},
		{
			"more than the configuration has", "child",
			task.TaskSpec{ID: taskID(1), Prompt: "p"},
			task.TaskSpec{Priority: 6, Timeout: "2h", MaxAttempts: 2, MaxIterations: 9, VerifyTimeout: "2h"},
			" 5 0 1h0m0s 1h0m0s 3 ", "limited to the values of task 019ab3f0-6f1e-7c3a-9a51-000000000001, which queued it: priority 5, maxAttempts as configured, timeout 1h0m0s, verifyTimeout 1h0m0s, maxIterations 3", false,
		},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := followWorld(t)
			w.cfg.Timeout, w.cfg.VerifyTimeout, w.cfg.MaxIterations, w.cfg.Shell, w.cfg.FollowUpDepth = time.Hour, time.Hour, 3, passes{}, 3
			w.settings(queue.WorkspaceSettings{VerifyCommand: "make test"})
			var child, again state.Task
			w.during(taskID(1), func(run string) {
				tc.ask.ID, tc.ask.Prompt, tc.ask.FromRun, tc.ask.IdempotencyKey = taskID(2), tc.prompt, run, "k"
				child, again = w.submit(tc.ask), w.submit(tc.ask)
			})
			w.openUnwatched()
			w.ended(w.submit(tc.parent).ID)
			has := func(t *state.Task) string {
				return fmt.Sprint(t.Model, " ", t.Priority, " ", t.MaxAttempts, " ", t.Timeout, " ", t.VerifyTimeout, " ", t.MaxIterations, " ", t.MaxLimitWait)
			}
			if got := has(&child); got != tc.want || child.Notify || child.Hold != tc.hold || !strings.HasSuffix(child.Note, tc.note) || (child.Note == "") != (tc.note == "") {
				t.Errorf("it has %q, hold %v, note %q", got, child.Hold, child.Note)
			}
			if again.ID != child.ID {
				t.Error("the same request again made another task")
			}
			if tc.hold != strings.Contains(child.Note, "with another model: look at model in stint show") {
				t.Errorf("the note is %q", child.Note)
			}
			if tc.prompt == "fail" {
				w.ended(child.ID)
				next := w.onlyChild(child.ID)
				if got := has(&next); got != "small 3 2 10m0s 1m0s 2 0s" {
					t.Errorf("what follows it has %q", got)
				}
			}
		})
	}
}

// TestARunsKeysAreItsOwn: an agent's idempotency key is no user's and no other task's, in
// either order, alone and of a list; it is shown as it was given.
func TestARunsKeysAreItsOwn(t *testing.T) {
	fromRun(t, func(w *world) { w.cfg.MaxFollowUps = 100 }, func(w *world, parent state.Task) {
		ask := func(run, key, text string, list bool) (string, error) {
			spec := task.TaskSpec{Prompt: text, FromRun: run, Workspace: w.work, Parallel: true}
			if list {
				tasks, err := w.c.SubmitOnce(w.t.Context(), key, []task.TaskSpec{spec})
				return strings.Join(idsOf(tasks), " "), err
			}
			spec.IdempotencyKey = key
			task, err := w.try(spec)
			return task.ID, err
		}
		for i, key := range []string{"nightly", "1", parent.ID, "run " + parent.ID, "nightlies", "2", "a" + parent.ID} {
			list := i > 3
			agents, err := ask(parent.RunID, key, "the agent's", list)
			users, uerr := ask("", key, "the user's", list)
			again, aerr := ask(parent.RunID, key, "the agent's", list)
			if err := errors.Join(err, uerr, aerr); err != nil || agents == users || again != agents {
				t.Errorf("key %q: tasks %s, %s and %s, %v", key, agents, users, again, err)
				continue
			}
			if _, err := ask(parent.RunID, key, "something else", list); code(err) != task.CodeConflict || !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
				t.Errorf("key %q for something else: %v", key, err)
			}
			if got := w.task(agents); got.IdempotencyKey.Given() != key {
				t.Errorf("the key %q is shown as %q", key, got.IdempotencyKey.Given())
			}
		}
	})
}

// TestARunQueuesNoSecrets: what a run asks for is masked in all its texts, since no person has typed them.
func TestARunQueuesNoSecrets(t *testing.T) {
	const secret = "a-secret-of-nobody"
	fromRun(t, func(w *world) { w.cfg.Redact = redact.New(func() []string { return []string{secret} }) }, func(w *world, parent state.Task) {
		spec := task.TaskSpec{FromRun: parent.RunID, Parallel: true}
		for name, field := range task.Fields(&spec) {
			switch text := field.(type) {
			case *string:
				if slices.Contains([]string{"prompt", "label", "queue", "tenantId", "onFailure", "onIssue", "outputPolicy", "verifyCommand", "idempotencyKey"}, name) {
					*text = "say " + secret
				}
			case *[]string:
				if name == "outputSpec" {
					*text = []string{secret}
				}
			}
		}
		spec.InputFiles = []state.InputFile{{Name: "in", Content: secret}}
		id := w.submit(spec).ID
		raw, err := w.c.Raw(w.t.Context(), id)
		if check(t, err); strings.Contains(string(raw), secret) || strings.Count(string(raw), strings.Repeat("*", len(secret))) < 10 {
			t.Errorf("%s", raw)
		}
	})
}
