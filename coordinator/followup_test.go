package coordinator_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// An outcomes agent ends as the first word of its task's prompt says.
func outcomes(w *world) {
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		t, err := w.c.Task(context.Background(), turn.TaskID)
		if err != nil {
			return task.Outcome{Class: state.ClassExit, Error: err.Error()}
		}
		switch word, _, _ := strings.Cut(t.Prompt, " "); word {
		case "fail":
			return task.Outcome{Class: state.ClassExit, Error: "no such {{.File}}\n## Task x", Result: "half", ExitCode: 3}
		case "stall":
			return task.Outcome{Class: state.ClassStalled, ExitCode: -1}
		case "flawed":
			return task.Outcome{Result: "fine", Findings: []state.Issue{{Kind: "empty", Message: "it says nothing"}}}
		case "silent":
			return task.Outcome{}
		case "bad":
			return task.Outcome{Class: state.ClassExit, ExitCode: 1, Findings: []state.Issue{{Kind: "denied", Message: "it was denied"}}}
		case "gone":
			_ = os.Remove(turn.Workspace) // of a test that wants it so
			return task.Outcome{Class: state.ClassExit}
		}
		return task.Outcome{Result: "fine"}
	}
}

// followWorld is a world in which tasks may have follow-ups.
func followWorld(t *testing.T) *world {
	w := newWorld(t)
	w.cfg.FollowUpDepth, w.cfg.MaxFollowUps = 1, 3
	outcomes(w)
	return w
}

// settings applies to all workspaces these settings.
func (w *world) settings(s queue.WorkspaceSettings) {
	old := &w.cfg.WorkspaceSettings
	s.Timeout, s.MaxAttempts, s.MaxIterations, s.VerifyTimeout = old.Timeout, old.MaxAttempts, old.MaxIterations, old.VerifyTimeout
	s.ResumePolicy, s.OutputPolicy = old.ResumePolicy, old.OutputPolicy
	w.cfg.WorkspaceSettings = s
}

// children returns the tasks that a task has queued, as they have ended.
func (w *world) children(id string) (list []state.Task) {
	w.t.Helper()
	for _, child := range w.task(id).FollowUps {
		list = append(list, w.ended(child))
	}
	return list
}

// onlyChild returns the one follow-up of a task.
func (w *world) onlyChild(id string) state.Task {
	w.t.Helper()
	list := w.children(id)
	if len(list) != 1 {
		w.t.Fatalf("%d follow-ups of %s", len(list), id)
	}
	return list[0]
}

// TestFollowUps: what is queued when a task ends, and what it gets of that task.
func TestFollowUps(t *testing.T) {
	t.Parallel()
	none := queue.WorkspaceSettings{}
	for _, tc := range []struct {
		name     string
		spec     task.TaskSpec
		settings queue.WorkspaceSettings
		want     string // the prompt begins so; "": there is no follow-up
		trigger  state.Trigger
	}{
		{"none", task.TaskSpec{Prompt: "fail"}, none, "", ""},
		{
			"of the task",
			task.TaskSpec{Prompt: "fail it", OnFailure: "Why did {{.Prompt}} end {{.Status}} ({{.Reason}}): {{.Error}}"},
			none, "Why did \"fail it\" end failed (exit): \n\n> no such {{.File}}\n> ## Task x\n", state.OnFailure,
		},
		{"configured", task.TaskSpec{Prompt: "fail"}, queue.WorkspaceSettings{OnFailure: "Mend {{.Result}}"}, "Mend \"half\"", state.OnFailure},
		{"the task's own first", task.TaskSpec{Prompt: "fail", OnFailure: "mine {{.ID}}"}, queue.WorkspaceSettings{OnFailure: "theirs"}, "mine " + taskID(1), state.OnFailure},
		{"not wanted", task.TaskSpec{Prompt: "fail", OnFailure: "none"}, queue.WorkspaceSettings{OnFailure: "theirs"}, "", ""},
		{"done", task.TaskSpec{Prompt: "p", OnFailure: "a", OnIssue: "b"}, none, "", ""},
		{
			"findings",
			task.TaskSpec{Prompt: "flawed", OnFailure: "a", OnIssue: "Look: {{if .Findings}}{{.Findings}}{{else}}nothing{{end}}"},
			none, "Look: \"empty: it says nothing\"", state.OnIssue,
		},
		{"failed, with findings", task.TaskSpec{Prompt: "bad", OnIssue: "look"}, none, "look", state.OnIssue},
		{"failed, with findings and both", task.TaskSpec{Prompt: "bad", OnIssue: "look", OnFailure: "mend"}, none, "mend", state.OnFailure},
		{"findings, not wanted", task.TaskSpec{Prompt: "flawed", OnIssue: "off"}, queue.WorkspaceSettings{OnIssue: "c"}, "", ""},
		{"dead", task.TaskSpec{Prompt: "stall", OnFailure: "It is {{.Status}}"}, none, "It is dead", state.OnFailure},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := followWorld(t)
			w.cfg.Agents["other"], w.cfg.Fallback = w.agent, []string{"other"}
			w.settings(tc.settings)
			w.openUnwatched()
			tc.spec.ID, tc.spec.Priority, tc.spec.TenantID, tc.spec.Queue, tc.spec.Agent = taskID(1), 7, "ana", "night", "demo"
			tc.spec.Label, tc.spec.SessionKey, tc.spec.MaxIterations = "mine", "web", 2
			parent := w.ended(w.submit(tc.spec).ID)
			if tc.want == "" {
				if list := w.children(parent.ID); len(list) > 0 || parent.Note != "" {
					t.Errorf("%d follow-ups, note %q", len(list), parent.Note)
				}
				return
			}
			got := w.onlyChild(parent.ID)
			if !strings.HasPrefix(got.Prompt, tc.want) || got.Trigger != tc.trigger || got.TriggeredBy != parent.ID {
				t.Errorf("prompt %q\nwant   %q, trigger %s of %s", got.Prompt, tc.want, got.Trigger, got.TriggeredBy)
			}
			if got.Workspace != parent.Workspace || got.Agent != "demo" || !slices.Equal(got.Fallback, w.cfg.Fallback) || got.Priority != 7 || got.TenantID != "ana" || got.Queue != "night" {
				t.Errorf("it does not have the place of the task: %+v", got)
			}
			if got.SessionKey != state.LanePrefixDir+w.work || got.SessionID == parent.SessionID || got.Label+got.OnFailure+got.OnIssue != "" || got.MaxIterations != 0 {
				t.Errorf("it has what was the task's own: %+v", got)
			}
		})
	}
}

// TestFollowUpsVerified: the configured command, which a follow-up gets like any task,
// is not for one that the configuration queues after a failure.
func TestFollowUpsVerified(t *testing.T) {
	for _, tc := range []struct {
		name, prompt, want string
		own                bool
	}{
		{"configured, after a failure", "fail", task.NoVerify, false},
		{"configured, after a failure with findings", "bad", task.NoVerify, false},
		{"configured, after findings", "silent", "make test", false},
		{"the task's own, after a failure", "fail", "make test", true},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := followWorld(t)
			w.cfg.Shell = &fakeShell{do: exits(0, 0)}
			set, spec := queue.WorkspaceSettings{VerifyCommand: "make test"}, task.TaskSpec{Prompt: tc.prompt}
			if tc.own {
				spec.OnFailure = "why"
			} else if set.OnIssue = "why"; tc.prompt == "fail" {
				set.OnFailure, set.OnIssue = "why", ""
			}
			w.settings(set)
			w.openUnwatched()
			if got := w.onlyChild(w.ended(w.submit(spec).ID).ID); got.VerifyCommand != tc.want || got.Status != state.Done {
				t.Errorf("it ended %s, verified by %q, want %q", got.Status, got.VerifyCommand, tc.want)
			}
		})
	}
}

// TestNoFollowUp: what stands in the way of a follow-up is noted, and the end of the task is what it was.
func TestNoFollowUp(t *testing.T) {
	far := strings.Repeat("{{.Prompt}}", 200)
	for _, tc := range []struct {
		name, prompt, template, want string
		depth, most                  int
	}{
		{"the workspace is gone", "gone", "a", "no follow-up was queued: the workspace ", 1, 3},
		{"too long", "fail " + strings.Repeat("x", 9000), far, "no follow-up was queued: the prompt has ", 1, 3},
		{"blank", "fail", "{{.Findings}}", "no follow-up was queued: the prompt is empty", 1, 3},
		{"no depth", "fail", "a", "follow_up_depth is 0", 0, 3},
		{"no number", "fail", "a", "max_follow_ups is 0, and task ", 1, 0},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := followWorld(t)
			w.cfg.FollowUpDepth, w.cfg.MaxFollowUps = tc.depth, tc.most
			w.openUnwatched()
			parent := w.endsAs(w.submit(task.TaskSpec{Prompt: tc.prompt, OnFailure: tc.template, Workspace: t.TempDir()}).ID, state.Failed, state.ClassExit)
			if len(w.children(parent.ID)) > 0 || !strings.Contains(parent.Note, tc.want) {
				t.Errorf("note %q, want %q", parent.Note, tc.want)
			}
		})
	}
}

// TestRetryFollowsUpAgain: each end queues one follow-up, up to the number that a
// task may queue; those that went to the archive count.
func TestRetryFollowsUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		w.cfg.MaxFollowUps = 2
		w.openUnwatched()
		id := w.submit(task.TaskSpec{Prompt: "fail", OnFailure: "look"}).ID
		for n, want := range []int{1, 2, 2} {
			if n > 0 {
				time.Sleep(time.Hour)
				w.moveOut()
				w.retry(id)
			}
			end := w.ended(id)
			if got := len(w.children(id)); got != want || (n == 2) != strings.Contains(end.Note, "max_follow_ups is 2, and task "+id+" has queued as many") {
				t.Errorf("%d follow-ups after end %d, note %q", got, n+1, end.Note)
			}
		}
	})
}

// TestArchiveKnowsFollowUps: also one whose index has to be made anew.
func TestArchiveKnowsFollowUps(t *testing.T) {
	w := followWorld(t)
	w.open()
	id := w.wait(w.submit(task.TaskSpec{Prompt: "fail", OnFailure: "look"}).ID).ID
	child := w.onlyChild(id)
	w.moveOut()
	w.close()
	check(t, os.Remove(filepath.Join(w.dir, "archive", "index")))
	w.open()
	if got := w.task(id); !slices.Equal(got.FollowUps, []string{child.ID}) || got.Archived == "" {
		t.Errorf("follow-ups %q in %q", got.FollowUps, got.Archived)
	}
}

// moveOut moves all that has ended into the archive.
func (w *world) moveOut() {
	w.t.Helper()
	_, err := w.c.Compact(w.t.Context(), 0, false, false)
	check(w.t, err)
}

// TestNotAFailure: no follow-up comes of what a person ends, by a command or in tasks.md,
// or of what never ran.
func TestNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		w.settings(queue.WorkspaceSettings{OnFailure: "look"})
		w.openUnwatched()
		ids := map[string]state.Status{}
		canceled := w.submit(task.TaskSpec{Prompt: "p", Hold: true}).ID
		first := w.submit(task.TaskSpec{Prompt: "fail", OnFailure: "off"}).ID
		ids[canceled], ids[first], ids[w.submit(task.TaskSpec{Prompt: "p", After: []string{first}}).ID] = state.Canceled, state.Failed, state.Failed
		w.cancel(canceled)
		for _, status := range []state.Status{state.Failed, state.Dead} {
			id := w.submit(task.TaskSpec{Prompt: "p", Hold: true}).ID
			w.reconcile("## Task %s\n- status: %s\n", id, status)
			ids[id] = status
		}
		for id, want := range ids {
			if end := w.ended(id); end.Status != want || len(end.FollowUps) > 0 || end.Note != "" {
				t.Errorf("%s is %s, with %d follow-ups, note %q", end.Prompt, end.Status, len(end.FollowUps), end.Note)
			}
		}
	})
}

// TestDeadOfInterruptions: a task that is dead because its masters were killed has
// its follow-up, from the same change.
func TestDeadOfInterruptions(t *testing.T) {
	next, id := interrupted(t)
	next.cfg.FollowUpDepth, next.cfg.MaxFollowUps, next.cfg.MaxRetries = 1, 3, 0
	next.settings(queue.WorkspaceSettings{OnFailure: "look at {{.ID}}: {{.Reason}}"})
	next.open()
	end := next.wait(id)
	if next.expect(end, state.Dead, state.ClassInterrupted); end.Error == "" || end.Result != end.Error {
		t.Errorf("error %q, result %q", end.Error, end.Result)
	}
	if got := next.onlyChild(id); got.Prompt != "look at "+id+": interrupted" {
		t.Errorf("its follow-up says %q", got.Prompt)
	}
}

// TestFollowUpOfAPinnedTask: it has the account of its task, unless that is disabled by then.
func TestFollowUpOfAPinnedTask(t *testing.T) {
	w := followWorld(t)
	w.cfg.Accounts = func() []state.AccountConfig {
		return []state.AccountConfig{{ID: "demo", Tool: "demo"}, {ID: "two", Tool: "demo"}}
	}
	disables := false
	w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		if disables {
			_, err := w.c.SetAccount(context.Background(), "two", false, "client")
			check(t, err)
		}
		return task.Outcome{Class: state.ClassExit, ExitCode: 1, Error: "no"}
	}
	w.openUnwatched()
	spec := task.TaskSpec{Prompt: "p", Account: "two", OnFailure: "why"}
	got := w.ended(w.submit(spec).ID)
	if follow := w.ended(got.FollowUps[0]); follow.Account != "two" || !follow.Pinned {
		t.Errorf("the follow-up has the account %q, pinned %t", follow.Account, follow.Pinned)
	}
	disables = true
	if got = w.ended(w.submit(spec).ID); len(got.FollowUps) > 0 || !strings.Contains(got.Note, "no follow-up was queued: the account two is disabled") {
		t.Errorf("follow-ups %v, note %q", got.FollowUps, got.Note)
	}
}

// TestNoCrashBetweenEndAndFollowUp: wherever the journal is cut off, a task that
// failed has its follow-up, and one only.
func TestNoCrashBetweenEndAndFollowUp(t *testing.T) {
	w := followWorld(t)
	w.open()
	id := w.submit(task.TaskSpec{Prompt: "fail", OnFailure: "look"}).ID
	w.wait(id)
	w.close()
	journal := read(t, w.dir, ledger.JournalName)
	next := newWorld(t)
	next.cfg.MaxWorkers = 0
	failed, before := 0, 0
	for n := len(journal); n > 0 && before < 3; n = strings.LastIndexByte(journal[:n-1], '\n') + 1 { // where a line ends; within one it is cut off like before it
		next.copies(w)
		write(t, filepath.Join(next.dir, ledger.JournalName), journal[:n])
		check(t, os.Remove(filepath.Join(next.dir, ledger.TasksName)))
		c, err := coordinator.OpenUnwatched(next.cfg)
		fatal(t, err)
		switch parent, err := c.Task(t.Context(), id); {
		case err != nil: // it is not there yet
		case parent.Status == state.Failed && len(parent.FollowUps) == 1:
			failed++
		case parent.Status != state.Failed && len(parent.FollowUps) == 0:
			before++
		default:
			t.Errorf("cut off at %d the task is %s, with %d follow-ups", n, parent.Status, len(parent.FollowUps))
		}
		check(t, c.Close())
	}
	if failed == 0 || before == 0 {
		t.Errorf("%d cuts behind the end and %d before it show nothing", failed, before)
	}
}

// TestTriggerSession: follow-ups of one session key are one conversation, also where
// several tasks end at once, and where those were written by hand without a workspace.
func TestTriggerSession(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := limitedWorld(t)
			w.cfg.FollowUpDepth, w.cfg.MaxFollowUps, w.cfg.MaxWorkers = 1, 3, 1
			w.settings(queue.WorkspaceSettings{TriggerSession: "fixer"})
			w.script(map[string][]step{taskID(1): {{time.Second, task.Outcome{Class: state.ClassRateLimited, RetryAt: time.Now().Add(time.Hour)}}}})
			w.openUnwatched()
			w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Parallel: true})
			synctest.Wait()
			sessions := map[string]bool{}
			for i := 2; i < 5; i++ {
				if byHand {
					w.reconcile("## Task %s\n- status: queued\n- agent: demo\n- maxLimitWait: 0s\n- onFailure: look\n- prompt: p\n", taskID(i))
				} else {
					w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", Parallel: true, NoWaitLimit: true, OnFailure: "look"})
				}
			}
			for i := 2; i < 5; i++ {
				w.expect(w.ended(taskID(i)), state.Failed, state.ClassRateLimited)
				child := w.onlyChild(taskID(i))
				sessions[child.SessionKey+" "+child.SessionID] = true
			}
			if len(sessions) != 1 {
				t.Errorf("by hand %v: sessions %v", byHand, sessions)
			}
		})
	}
}

// TestHandWrittenTemplate: a template that a person wrote into tasks.md is not checked before it is used.
func TestHandWrittenTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		w.openUnwatched()
		write := func(id, template string) state.Task {
			w.reconcile("## Task %s\n- status: queued\n- agent: demo\n- onFailure: %s\n- prompt: fail\n", id, template)
			end := w.endsAs(id, state.Failed, state.ClassExit)
			return end
		}
		write("homeless", "because of {{.Error}}")
		if child := w.onlyChild("homeless"); child.Workspace != w.work || child.Status != state.Done {
			t.Errorf("the follow-up of a task that took its workspace from the configuration is %s in %q", child.Status, child.Workspace)
		}
		if end := write("long", "{{"+strings.Repeat("x", 10000)+"}}"); !strings.Contains(end.Note, "no template") || len(end.Note) > 1000 {
			t.Errorf("note %.2000q", end.Note)
		}
		if end := write("mine", "because of {{.Eror}}"); !strings.Contains(end.Note, "no follow-up was queued: the prompt of a follow-up is no template") || !strings.Contains(end.Note, "there is no field .Eror") {
			t.Errorf("note %q", end.Note)
		}
	})
}
