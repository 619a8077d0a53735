package coordinator_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/query"
	"stint/coordinator/task"
	"stint/prompt"
	"stint/state"
)

// outcomes makes the agent end its runs so, one after the other. Each reports its
// session first, as the CLIs do.
func (w *world) outcomes(list ...task.Outcome) {
	w.agent.do = func(_ context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
		out := list[0]
		list = list[1:]
		report(task.Event{Session: out.Session})
		return out
	}
}

func (w *world) task(id string) state.Task {
	w.t.Helper()
	t, err := w.c.Task(context.Background(), id)
	check(w.t, err)
	return t
}

// sent returns what the agent got on its n-th run.
func (w *world) sent(n int) string {
	w.t.Helper()
	data, err := os.ReadFile(w.agent.turns[n].Prompt)
	check(w.t, err)
	return prompt.UserMessage(string(data))
}

func tokens(in, out int64) state.Usage { return state.Usage{InputTokens: in, OutputTokens: out} }

// TestUsageOfARun: where the CLI counts over the whole session, a run has used the
// difference, over tasks, retries, restarts and sessions that begin anew.
func TestUsageOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := func(spec task.TaskSpec, want state.Usage, list ...task.Outcome) string {
		t.Helper()
		w.outcomes(list...)
		spec.Prompt = "p"
		got := w.wait(w.submit(spec).ID)
		if diff := cmp.Diff(want, got.Usage); diff != "" {
			t.Errorf("usage (-want +got):\n%s", diff)
		}
		return got.ID
	}
	cumulative := func(session string, in, out int64) task.Outcome {
		return task.Outcome{Result: "ok", Session: session, Thread: tokens(in, out)}
	}
	web := task.TaskSpec{SessionKey: "web"}
	w.open()
	run(web, tokens(110, 21), cumulative("n1", 110, 21))
	run(web, tokens(120, 21), cumulative("n1", 230, 42))

	// A run that fails after it was counted, and one before.
	failed := cumulative("n1", 360, 63)
	failed.Class, failed.ExitCode = state.ClassNetwork, 1
	nothing := task.Outcome{Class: state.ClassNetwork, ExitCode: 1, Session: "n1"}
	last := run(web, tokens(270, 42), failed, nothing, cumulative("n1", 500, 84))

	w.restart()
	run(web, tokens(10, 1), cumulative("n1", 510, 85))                               // after a restart
	run(task.TaskSpec{AgentSession: "n1"}, tokens(5, 2), cumulative("n1", 515, 87))  // by its native id
	run(web, tokens(5, 0), cumulative("n1", 520, 87))                                // which the session knows
	run(web, tokens(30, 3), cumulative("n1", 30, 3))                                 // the count began anew
	run(web, tokens(70, 7), cumulative("n2", 70, 7))                                 // another session instead
	run(task.TaskSpec{AgentSession: "x1"}, state.Usage{}, cumulative("x1", 9000, 9)) // nobody knows what was before
	run(task.TaskSpec{AgentSession: "x1"}, tokens(10, 1), cumulative("x1", 9010, 10))

	// Some count each run alone, and the cost of the session.
	spend := func(in int64, cost float64) task.Outcome {
		return task.Outcome{Result: "ok", Session: "c1", Usage: tokens(in, 1), Thread: state.Usage{CostUSD: cost}}
	}
	api := task.TaskSpec{SessionKey: "api"}
	run(api, state.Usage{InputTokens: 5, OutputTokens: 1, CostUSD: 0.25}, spend(5, 0.25))
	run(api, state.Usage{InputTokens: 7, OutputTokens: 1, CostUSD: 0.5}, spend(7, 0.75))

	// A retry keeps what was used before.
	w.outcomes(cumulative("n2", 100, 10))
	w.retry(last)
	if got := w.wait(last).Usage; got != tokens(270+30, 42+3) && got != tokens(270+100, 42+10) {
		t.Errorf("after a retry: %+v", got)
	}
}

// TestUsageOfATaskThatWasTakenOut: a person cancels a running task; what its run
// has used is counted all the same.
func TestUsageOfATaskThatWasTakenOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begun := make(chan struct{})
	w.agent.do = func(ctx context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
		report(task.Event{Session: "n1"})
		close(begun)
		<-ctx.Done()
		return task.Outcome{Class: state.ClassCanceled, ExitCode: -1, Session: "n1", Thread: tokens(110, 21)}
	}
	w.open()
	id := w.submit(task.TaskSpec{Prompt: "p"}).ID
	<-begun
	w.edit("\n## Task %s\n- status: canceled\n", id)
	w.wait(id)
	w.restart()
	if got := w.task(id); got.Usage != tokens(110, 21) || got.Status != state.Canceled {
		t.Errorf("%s, %+v", got.Status, got.Usage)
	}
	rows, err := query.ReadUsage(t.Context(), w.dir, task.UsageQuery{By: "task"})
	if want := []task.UsageRow{{Key: id, Runs: 1, Tasks: 1, Usage: tokens(110, 21)}}; err != nil || !cmp.Equal(rows, want) {
		t.Errorf("usage: %+v, %v", rows, err)
	}
}

// TestRetryOfATaskThatWasTakenOut: a person's stint retry is counted as no edit that
// begins a running task anew, also while its agent has its grace.
func TestRetryOfATaskThatWasTakenOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, ends := newWorld(t), make(chan struct{})
		w.cfg.MaxRetries = 0
		w.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
			select {
			case <-ends:
				return task.Outcome{Result: "fine"}
			case <-ctx.Done():
				<-ends
				return task.Outcome{Class: state.ClassCanceled, ExitCode: -1}
			}
		}
		w.openUnwatched()
		id := w.submit(task.TaskSpec{Prompt: "p"}).ID
		synctest.Wait()
		w.reconcile("## Task %s\n- status: canceled\n", id)
		w.retry(id)
		w.reconcile("## Task %s\n- priority: 1\n", id) // which is no requeue
		close(ends)
		got := w.ended(id)
		if w.expect(got, state.Done, ""); got.Requeues != 0 || len(w.agent.turns) != 2 {
			t.Errorf("%d turns, requeues %d: %s", len(w.agent.turns), got.Requeues, got.Error)
		}
	})
}

// TestKeptPromptIsNotSentAgain: what the session has already is not sent twice, whatever ended the turn.
func TestKeptPromptIsNotSentAgain(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	for _, class := range []state.Class{state.ClassRateLimited, state.ClassNetwork, state.ClassInterrupted, state.ClassStalled} {
		before := len(w.agent.turns)
		bad := task.Outcome{Class: class, ExitCode: 1, Error: "no", Session: "n1", Kept: true}
		again, ok := bad, task.Outcome{Result: "ok", Session: "n1"}
		again.Kept = false // it got no further than before
		w.outcomes(bad, again, ok, ok)
		id := w.submit(task.TaskSpec{Prompt: "do it", SessionKey: "web"}).ID
		w.endsAs(id, state.Done, "")
		w.wait(w.submit(task.TaskSpec{Prompt: "do more", SessionKey: "web"}).ID)
		got := []string{w.sent(before), w.sent(before + 1), w.sent(before + 2), w.sent(before + 3)}
		if diff := cmp.Diff([]string{"do it", prompt.GoOn, prompt.GoOn, "do more"}, got); diff != "" {
			t.Errorf("%s: sent:\n%s", class, diff)
		}
		if kept := w.task(id).PromptInHistory; kept != "" {
			t.Errorf("%s: a task that is done is still kept in %s", class, kept)
		}
	}
}

// until waits for a state of a task that has not ended.
func (w *world) until(id string, is func(*state.Task) bool) state.Task {
	w.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		changes, stop := w.c.Subscribe(64)
		t := w.task(id)
		if is(&t) {
			stop()
			return t
		}
		select {
		case <-changes:
		case <-limit:
			w.t.Fatalf("the task is still %+v", t)
		}
		stop()
	}
}

// TestKeptPromptAfterACrash: what the run that was cut off has written says whether
// its session has the prompt. It does not have one that a person has changed since.
func TestKeptPromptAfterACrash(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		session       string
		kept          bool
		edit          string
		want, resumed string
	}{
		{"n1", true, "", prompt.GoOn, "n1"},
		{"n1", false, "", "long", "n1"},
		{"", false, "", "long", ""},
		{"", true, "", "long", ""},
		{"n1", true, "\n## Task %s\n- prompt: do that\n", "do that", "n1"},
	} {
		w, id := interrupted(t)
		var asked string
		w.cfg.FindSession = func(agent, dir string) (string, bool) {
			asked = agent + " " + filepath.Base(dir)
			return tc.session, tc.kept
		}
		if tc.edit != "" {
			w.edit(tc.edit, id)
		}
		w.open()
		w.endsAs(id, state.Done, "")
		if turn := w.agent.turns[0]; w.sent(0) != tc.want || turn.Session != tc.resumed || !strings.HasPrefix(asked, "demo ") {
			t.Errorf("%+v: resumed %q with %q; asked for %s", tc, turn.Session, w.sent(0), asked)
		}
	}
}

// TestLostSession: stint's session stays, with its transcript, and the tasks that
// wait for it begin a new native one; or the task fails, as configured.
func TestLostSession(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		missing   string
		class     state.Class
		note, why string
	}{
		{"new", state.ClassSessionLost, "session is gone", ""},
		{"error", state.ClassSessionLost, "", "no"},
		{"new", state.ClassContextFull, "conversation was full", ""},
		{"error", state.ClassContextFull, "", "no; a new conversation begins with --resume never"},
	} {
		t.Run(tc.missing+" "+string(tc.class), func(t *testing.T) {
			w := newWorld(t)
			w.cfg.ResumeMissing = tc.missing
			w.cfg.MaxWorkers = 1
			w.outcomes(task.Outcome{Result: "ok", Session: "n1"})
			w.open()
			web := task.TaskSpec{Prompt: "p", SessionKey: "web"}
			first := w.wait(w.submit(web).ID)
			gate := make(chan struct{})
			w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
				switch turn.Session {
				case "n1":
					<-gate
					return task.Outcome{Class: tc.class, ExitCode: 1, Error: "no"}
				case "":
					return task.Outcome{Result: "ok", Session: "of " + turn.TaskID}
				}
				return task.Outcome{Result: "ok", Session: turn.Session}
			}
			second := w.submit(web).ID
			w.until(second, func(t *state.Task) bool { return t.Status == state.Running })
			named := w.submit(task.TaskSpec{Prompt: "p", AgentSession: "n1", SessionKey: "api"}).ID
			third := w.submit(web).ID
			close(gate)
			got := w.wait(second)
			w.wait(third)
			other := w.wait(named)
			if tc.missing == "error" {
				w.expect(got, state.Failed, tc.class)
				if got.AgentSession != "" && got.AgentSession != "n1" || got.Error != tc.why {
					t.Errorf("it has session %s now, and the error %q", got.AgentSession, got.Error)
				}
				return
			}
			w.expect(got, state.Done, "")
			if got.SessionID != first.SessionID || got.AgentSession != "of "+second || got.Attempt != 1 || !strings.Contains(got.Note, tc.note) || !strings.Contains(other.Note, tc.note) {
				t.Errorf("session %s (native %s), attempt %d, notes %q, %q", got.SessionID, got.AgentSession, got.Attempt, got.Note, other.Note)
			}
			s, said, err := w.c.Session("web", 0, 0)
			if err != nil || s.ID != first.SessionID || s.Native != "of "+second || len(said.Messages) != 8 {
				t.Errorf("%+v with %d messages, %v", s, len(said.Messages), err)
			}
			resumed := map[string][]string{}
			for _, turn := range w.agent.turns {
				resumed[turn.TaskID] = append(resumed[turn.TaskID], turn.Session)
			}
			want := map[string][]string{first.ID: {""}, second: {"n1", ""}, third: {"of " + second}, named: {""}}
			if diff := cmp.Diff(want, resumed); diff != "" {
				t.Errorf("resumed:\n%s", diff)
			}
		})
	}
}

// TestAgentStrays: an agent that quietly begins another session than the one to resume.
func TestAgentStrays(t *testing.T) {
	t.Parallel()
	stray := func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
		if turn.Session == "" {
			return task.Outcome{Result: "new", Session: "n9", Thread: tokens(7, 1)}
		}
		report(task.Event{Session: "n2"})
		out := task.Outcome{Result: "ok", Session: "n2", Thread: tokens(50, 5)}
		if ctx.Err() != nil {
			out.Class, out.Error = state.ClassCanceled, "canceled"
		}
		return out
	}
	for _, tc := range []struct {
		name, missing string
		kept          bool
		status        state.Status
		reason        state.Class
		runs          int
		native, text  string
		used          state.Usage
	}{
		{"goes on there", "new", false, state.Done, "", 1, "n2", "session n1 was not resumed: the agent began n2", tokens(50, 5)},
		{"may not", "error", false, state.Failed, state.ClassSessionLost, 1, "n1", "session n1 was not resumed: the agent began n2", tokens(50, 5)},
		{"does not have the prompt there", "new", true, state.Done, "", 2, "n9", "session is gone", tokens(57, 6)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.cfg.ResumeMissing = tc.missing
			w.cfg.MaxWorkers = 0
			w.open()
			id := w.submit(task.TaskSpec{Prompt: "do it", SessionKey: "web", AgentSession: "n1"}).ID
			if tc.kept {
				w.edit("\n## Task %s\n- promptKept: n1\n", id)
				w.until(id, func(t *state.Task) bool { return t.PromptInHistory == "n1" })
			}
			w.close()
			w.cfg.MaxWorkers, w.agent.do = 1, stray
			w.open()
			got := w.wait(id)
			w.close()
			w.expect(got, tc.status, tc.reason)
			if len(w.agent.turns) != tc.runs || got.AgentSession != tc.native || !strings.Contains(got.Note+got.Error, tc.text) || got.Usage != tc.used {
				t.Errorf("%d runs, session %s, note %q, error %q, used %+v", len(w.agent.turns), got.AgentSession, got.Note, got.Error, got.Usage)
			}
			if last := len(w.agent.turns) - 1; w.sent(last) != "do it" {
				t.Errorf("the agent that answered was told %q", w.sent(last))
			}
		})
	}
}

// TestFilesOfATask: input files reach the agent, and the files that the task is to
// leave are collected; without them it has not done its work.
func TestFilesOfATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		notes, err := os.ReadFile(filepath.Join(turn.Files, "data/notes.txt"))
		if err == nil && len(w.agent.turns) > 1 {
			err = os.WriteFile(filepath.Join(turn.Workspace, "results.txt"), append([]byte("got "), notes...), 0o600)
		}
		if err != nil {
			return task.Outcome{Class: state.ClassExit, Error: err.Error()}
		}
		return task.Outcome{Result: "ok", Session: "n1"}
	}
	w.open()
	spec := task.TaskSpec{Prompt: "p", OutputSpec: []string{"results.txt"}, InputFiles: []state.InputFile{{Name: "data/notes.txt", Content: "a note"}}}
	got := w.endsAs(w.submit(spec).ID, state.Failed, state.ClassOutputMissing)
	if got.Error != `the output file "results.txt" is missing` || len(got.OutputFiles) > 0 || got.Result != "ok" {
		t.Errorf("%q, %v", got.Error, got.OutputFiles)
	}
	told, err := os.ReadFile(w.agent.turns[0].Prompt)
	for _, want := range []string{"## Input files", filepath.Join(w.c.RunDir(got.RunID), "files/data/notes.txt"), "## Output files", "- results.txt"} {
		if !strings.Contains(string(told), want) {
			t.Errorf("the agent is not told %q: %v", want, err)
		}
	}
	w.retry(got.ID)
	w.endsAs(got.ID, state.Done, "")
	if text := w.content(got.ID, "", "results.txt"); text != "got a note" {
		t.Errorf("collected %q", text)
	}
}

// TestBadFilesByHand: names in tasks.md that nobody has checked end the task with a
// sentence, and lead nowhere.
func TestBadFilesByHand(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	w.reconcile(`## Task bad-input
- status: queued
- prompt: p
- inputFiles: [{"name":"../../../escaped","content":"x"}]

## Task bad-output
- status: queued
- prompt: p
- workspace: %s
- outputSpec: ../secret
`, w.work)
	for id, want := range map[string]state.Class{"bad-input": state.ClassExit, "bad-output": state.ClassOutputMissing} {
		got := w.endsAs(id, state.Failed, want)
		if !strings.Contains(got.Error, "leads out of its directory") {
			t.Errorf("%s: %s", id, got.Error)
		}
	}
	w.close()
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(w.dir), "*", "escaped")); len(found) > 0 {
		t.Errorf("written: %v", found)
	}
}

// TestSilenceShows: why says for how long an agent has said nothing, before that
// ends it, and Live when it last did.
func TestSilenceShows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.IdleTimeout, w.cfg.StartupTimeout, w.cfg.Timeout = 10*time.Minute, 2*time.Minute, time.Hour
		speak := make(chan struct{})
		w.agent.do = func(_ context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
			for range speak {
				report(task.Event{Bytes: 1})
			}
			return task.Outcome{Result: "ok"}
		}
		w.openUnwatched()
		id := w.submit(task.TaskSpec{Prompt: "p"}).ID
		synctest.Wait()
		since, last := "running since "+time.Now().Local().Format(time.TimeOnly), time.Now()
		for _, step := range []struct {
			after  time.Duration
			speaks bool
			want   string
		}{
			{59 * time.Second, false, ""},
			{time.Second, false, "; no output for 1m00s, ended as stalled at 2m"},
			{time.Minute, true, ""},
			{59 * time.Second, false, ""},
			{time.Second, false, "; no output for 1m00s, ended as stalled at 10m"},
			{8 * time.Minute, false, "; no output for 9m00s, ended as stalled at 10m"},
		} {
			if time.Sleep(step.after); step.speaks {
				speak <- struct{}{}
				last = time.Now()
			}
			why := w.why(id)
			if out, _, _ := w.c.Live(id); why != since+step.want || !out.Equal(last) {
				t.Errorf("why: %q, want %q; the last output was at %v", why, step.want, out)
			}
		}
		close(speak)
		w.expect(w.ended(id), state.Done, "")
		out, _, _ := w.c.Live(id)
		if why, _ := w.c.Why(id); strings.Contains(why, "output") || !out.IsZero() {
			t.Errorf("of an ended task: %s, %v", why, out)
		}
	})
}
