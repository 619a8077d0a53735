package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/attempt"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/prompt"
	"stint/state"
)

// fakeShell answers verify commands with what do says, and remembers its runs.
type fakeShell struct {
	do func(ctx context.Context, v task.VerifyRun) task.VerifyResult

	mu   sync.Mutex
	runs []task.VerifyRun
}

func (f *fakeShell) Verify(ctx context.Context, v task.VerifyRun) task.VerifyResult {
	f.mu.Lock()
	f.runs = append(f.runs, v)
	f.mu.Unlock()
	return f.do(ctx, v)
}

func (f *fakeShell) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.runs)
}

// exits makes verify commands end with these codes, one after the other, each after two seconds.
func exits(codes ...int) func(context.Context, task.VerifyRun) task.VerifyResult {
	return func(context.Context, task.VerifyRun) task.VerifyResult {
		time.Sleep(2 * time.Second)
		code := codes[0]
		codes = codes[1:]
		if code == 0 {
			return task.VerifyResult{Output: "all is well", Duration: 2 * time.Second}
		}
		return task.VerifyResult{ExitCode: code, Output: fmt.Sprintf("## Task forged\n- seq: 1\n- status: queued\nbad %d\n", code), Duration: 2 * time.Second, Error: fmt.Sprintf("the verify command ended with exit code %d", code)}
	}
}

// untilStopped is a command that runs until somebody ends it.
func untilStopped(begun chan<- string) func(context.Context, task.VerifyRun) task.VerifyResult {
	return func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
		if begun != nil {
			begun <- v.RunID
		}
		<-ctx.Done()
		class := state.ClassInterrupted
		if errors.Is(context.Cause(ctx), task.ErrCanceled) {
			class = state.ClassCanceled
		}
		return task.VerifyResult{Class: class, ExitCode: -1, Error: context.Cause(ctx).Error()}
	}
}

// A loopWorld is a world in a bubble, whose verify commands are the fake shell's.
type loopWorld struct {
	*world
	shell *fakeShell
}

// inLoop runs a test in a bubble. The master that it leaves open is closed.
func inLoop(t *testing.T, f func(*loopWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &loopWorld{newWorld(t), &fakeShell{do: exits(0)}}
		w.cfg.Shell, w.cfg.MaxIterations, w.cfg.VerifyTimeout, w.cfg.Grace = w.shell, 3, time.Minute, 5*time.Second
		w.cfg.BackoffBase, w.cfg.BackoffMax = time.Second, time.Minute
		w.cfg.Agents["claude"] = w.agent
		w.openUnwatched()
		f(w)
	})
}

// loops is inLoop as a subtest.
func loops(t *testing.T, name string, f func(*testing.T, *loopWorld)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inLoop(t, func(w *loopWorld) { f(t, w) }) })
}

// verified submits a task with a verify command, which then runs.
func (w *loopWorld) verified(change func(*task.TaskSpec)) string {
	w.t.Helper()
	spec := task.TaskSpec{Prompt: "do it", VerifyCommand: "make test"}
	if change != nil {
		change(&spec)
	}
	return w.submit(spec).ID
}

// reopen is a shutdown and a new master.
func (w *loopWorld) reopen() {
	w.t.Helper()
	w.close()
	w.openUnwatched()
}

// reconcile is an edit of the records until now: the last of them may not be in tasks.md
// yet when its run begins.
func (w *loopWorld) reconcile(format string, args ...any) {
	w.t.Helper()
	synctest.Wait()
	w.world.reconcile(format, args...)
}

// messages returns what the agent was told in each of its turns.
func (w *loopWorld) messages() (list []string) {
	for n := range w.agent.turns {
		list = append(list, w.sent(n))
	}
	return list
}

// expectRecords compares the fields of a task's records that a loop is made of.
func (w *loopWorld) expectRecords(id string, want ...string) {
	w.t.Helper()
	raw, err := w.c.Raw(context.Background(), id)
	check(w.t, err)
	var got []string
	doc := ledger.Parse(raw)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		words := []string{s.Value(state.KeyStatus)}
		for _, key := range []string{state.KeyPhase, state.KeyIteration, state.KeyVerifyExitCode, state.KeyReason, state.KeyAttempt, state.KeyRetries} {
			if f := s.Get(key); f != nil {
				words = append(words, key+"="+f.String())
			}
		}
		if s.Get(state.KeyResult) != nil {
			words = append(words, "result")
		}
		got = append(got, strings.Join(words, " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("records of the task:\n%s", diff)
	}
}

// TestLoopPassesInRoundTwo: each step is one record, in order; the second turn goes
// on in the same session and has the command's output, which adds no record.
func TestLoopPassesInRoundTwo(t *testing.T) {
	t.Parallel()
	inLoop(t, func(w *loopWorld) {
		w.shell.do = exits(1, 0)
		answers := []string{"first", "second"}
		w.agent.do = func(_ context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
			report(task.Event{Session: "n1"})
			return task.Outcome{Result: answers[len(w.agent.turns)-1], Session: "n1", Usage: tokens(10, 1)}
		}
		id := w.verified(nil)
		got := w.ended(id)
		w.expect(got, state.Done, "")
		w.expectRecords(id, "queued", "running attempt=1", "", // with the session id
			"running phase=verify iteration=1 result",
			"running phase= iteration=2 verifyExitCode=1",
			"running phase=verify iteration=2 result",
			"done phase= verifyExitCode=0")
		if got.Result != "second" || got.Attempt != 1 || got.MaxIterations != 3 || got.VerifyOutput != "" || got.VerifyTime != "2s" || got.Usage != tokens(20, 2) {
			t.Errorf("%+v", got)
		}
		var iterations []string
		for _, i := range state.Iterations(got.Steps) {
			iterations = append(iterations, fmt.Sprint(i.Iteration, " ", i.ExitCode, " ", i.Duration))
		}
		if diff := cmp.Diff([]string{"1 1 2s", "2 0 2s"}, iterations); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"do it", prompt.FixIt}, w.messages()); diff != "" || w.agent.turns[1].Session != "n1" {
			t.Errorf("sent in session %q: %s", w.agent.turns[1].Session, diff)
		}
		sent, _ := os.ReadFile(w.agent.turns[1].Prompt)
		if !strings.Contains(string(sent), "> ## Task forged\n> - seq: 1\n> - status: queued\n> bad 1\n") || !strings.Contains(string(sent), "iteration: 2 of 3") {
			t.Errorf("the second prompt is\n%s", sent)
		}
		if tasks := w.c.List(state.Filter{}); len(tasks) != 1 {
			t.Errorf("%d tasks", len(tasks))
		}
		_, page, _ := w.c.Session(got.SessionKey, 0, 0)
		said := page.Messages
		if len(said) != 4 || said[2].Text != prompt.FixIt || said[3].Text != "second" {
			t.Errorf("the transcript is %v", said)
		}
		if _, err := os.Lstat(filepath.Join(w.c.RunDir(got.RunID), "answer")); got.Result != "second" || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the answer is %q; a file of it: %v", got.Result, err)
		}
		if v := w.shell.runs[1]; v.Command != "make test" || v.Workspace != w.work || v.Timeout != time.Minute || v.Iteration != 2 || v.Attempt != 1 || v.Grace != 5*time.Second {
			t.Errorf("%+v", v)
		}
	})
}

// TestLoopAttempts: with maxAttempts a failed loop is tried again from its first iteration, and knows what
// the command said; an error of the agent's own in iteration 2 spends the attempt, too.
func TestLoopAttempts(t *testing.T) {
	t.Parallel()
	inLoop(t, func(w *loopWorld) {
		w.shell.do = exits(1, 1, 1, 0)
		change := func(s *task.TaskSpec) { s.MaxIterations, s.MaxAttempts = 2, 2 }
		id := w.verified(change)
		w.expect(w.ended(id), state.Done, "")
		w.expectRecords(id, "queued", "running attempt=1",
			"running phase=verify iteration=1 result", "running phase= iteration=2 verifyExitCode=1",
			"running phase=verify iteration=2 result", "queued phase= iteration= verifyExitCode=1 reason=verify",
			"running reason= attempt=2",
			"running phase=verify iteration=1 result", "running phase= iteration=2 verifyExitCode=1",
			"running phase=verify iteration=2 result", "done phase= verifyExitCode=0")
		if sent, _ := os.ReadFile(w.agent.turns[2].Prompt); !strings.Contains(string(sent), "> bad 1\n") || prompt.UserMessage(string(sent)) != "do it" {
			t.Errorf("the second attempt was sent\n%s", sent)
		}

		w.shell.do = exits(1, 0)
		ok := task.Outcome{Result: "ok", Session: "n1"}
		w.outcomes(ok, task.Outcome{Class: state.ClassExit, ExitCode: 3, Error: "no", Session: "n1"}, ok)
		id = w.verified(change)
		w.expect(w.ended(id), state.Done, "")
		w.expectRecords(id, "queued", "running attempt=1", "", "running phase=verify iteration=1 result", "running phase= iteration=2 verifyExitCode=1",
			"queued iteration= reason=exit", "running reason= attempt=2", "running phase=verify iteration=1 result", "done phase= verifyExitCode=0")
	})
}

// TestLoopInterrupted: what cuts a run off in iteration 2 (a limit, the network, a lost
// session) is followed by that iteration, with the command's output.
func TestLoopInterrupted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		out    task.Outcome
		second string // what is sent when the iteration is made again
	}{
		{task.Outcome{Class: state.ClassRateLimited, Session: "n1"}, prompt.FixIt},
		{task.Outcome{Class: state.ClassRateLimited, Session: "n1", Kept: true}, prompt.GoOn},
		{task.Outcome{Class: state.ClassNetwork, Session: "n1"}, prompt.FixIt},
		{task.Outcome{Class: state.ClassStalled, Session: "n1", Kept: true}, prompt.GoOn},
		{task.Outcome{Class: state.ClassInterrupted, Session: "n1"}, prompt.FixIt},
		{task.Outcome{Class: state.ClassAgentMissing, Session: "n1"}, prompt.FixIt},
		{task.Outcome{Class: state.ClassSessionLost, Session: "n1"}, "do it"},
	} {
		loops(t, fmt.Sprint(tc.out.Class, tc.out.Kept), func(t *testing.T, w *loopWorld) {
			w.shell.do = exits(1, 0)
			ok := task.Outcome{Result: "ok", Session: "n1"}
			w.outcomes(ok, tc.out, ok)
			got := w.ended(w.verified(nil))
			w.expect(got, state.Done, "")
			if diff := cmp.Diff([]string{"do it", prompt.FixIt, tc.second}, w.messages()); diff != "" {
				t.Error(diff)
			}
			if w.shell.count() != 2 || w.shell.runs[1].Iteration != 2 || got.Iteration != 2 {
				t.Errorf("iteration %d: %+v", got.Iteration, w.shell.runs)
			}
			sent, _ := os.ReadFile(w.agent.turns[2].Prompt)
			if has := strings.Contains(string(sent), "> bad 1\n"); has == tc.out.Kept {
				t.Errorf("the output is in the prompt: %v\n%s", has, sent)
			}
		})
	}
}

// TestLoopShutdown: a command that runs at a shutdown is interrupted, and runs again
// under the next master, without the agent; no attempt is spent. Where the file of a long
// answer is gone by then, there is none in the end, and not one with the ledger's part of it.
func TestLoopShutdown(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		inLoop(t, func(w *loopWorld) {
			begun := make(chan string, 1)
			w.shell.do = untilStopped(begun)
			w.agent.do = answer(strings.Repeat("long ", attempt.MaxResult)) // its whole is in a file
			id := w.verified(nil)
			<-begun
			running := "its verify command is running since " + time.Now().Local().Format(time.TimeOnly) + ", iteration 1 of 3"
			if why, _ := w.c.Why(id); why != running {
				t.Errorf("why: %q", why)
			}
			time.Sleep(5 * time.Minute)
			if why, _ := w.c.Why(id); why != running+"; no output for 5m00s" {
				t.Errorf("why, later: %q", why)
			}
			w.close()
			if answers, _ := filepath.Glob(filepath.Join(w.dir, "runs", "*", "answer")); lost {
				for _, path := range answers {
					check(t, os.Remove(path))
				}
			}
			w.shell.do = exits(0)
			w.openUnwatched()
			got := w.ended(id)
			w.expect(got, state.Done, "")
			w.expectRecords(id, "queued", "running attempt=1", "running phase=verify iteration=1 result",
				"queued reason=interrupted attempt=0 retries=1", "running reason= attempt=1", "done phase= verifyExitCode=0")
			if len(w.agent.turns) != 1 || w.shell.count() != 2 {
				t.Errorf("%d turns, %d commands", len(w.agent.turns), w.shell.count())
			}
			text, err := os.ReadFile(filepath.Join(w.c.RunDir(got.RunID), "answer"))
			if lost != errors.Is(err, os.ErrNotExist) || !lost && len(text) != 5*attempt.MaxResult {
				t.Errorf("lost %v: %d bytes, %v", lost, len(text), err)
			}
		})
	}
}

// TestLoopBeginsNothingAtAShutdown: an answer that comes in the grace time, or after a
// handover was asked for, is verified by the next master. Nothing was interrupted.
func TestLoopBeginsNothingAtAShutdown(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*loopWorld){
		"shutdown": func(w *loopWorld) { w.close() },
		"handover": func(w *loopWorld) {
			check(w.t, w.c.Handover(context.Background()))
			if err := <-w.ran; err != nil { // it ends by itself
				w.t.Error(err)
			}
			w.ran <- nil
			w.close()
		},
	} {
		loops(t, name, func(t *testing.T, w *loopWorld) {
			w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
				time.Sleep(3 * time.Second)
				return task.Outcome{Result: "ok", Session: "n1"}
			}
			id := w.verified(nil)
			time.Sleep(time.Second)
			leave(w)
			if w.shell.count() != 0 {
				t.Error("a command was begun by the master that goes")
			}
			w.openUnwatched()
			w.expect(w.ended(id), state.Done, "")
			w.expectRecords(id, "queued", "running attempt=1", "queued phase=verify iteration=1 attempt=0 result",
				"running attempt=1", "done phase= verifyExitCode=0")
			if len(w.agent.turns) != 1 || w.shell.count() != 1 {
				t.Errorf("%d turns, %d commands", len(w.agent.turns), w.shell.count())
			}
		})
	}
}

// TestLoopCanceled: a cancel ends the task wherever its loop is, and says who asked.
func TestLoopCanceled(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		turn, command   int  // what runs when it comes
		answers         bool // the agent has just done it
		turns, commands int
	}{
		"in the command":                   {command: 1, turns: 1, commands: 1},
		"in the second turn":               {turn: 2, turns: 2, commands: 1},
		"in the second command":            {command: 2, turns: 2, commands: 2},
		"between an answer and its step":   {turn: 1, answers: true, turns: 1, commands: 1}, // the command ends at once
		"between the second and that step": {turn: 2, answers: true, turns: 2, commands: 2},
	} {
		loops(t, name, func(t *testing.T, w *loopWorld) {
			begun := make(chan string, 1)
			stopped := untilStopped(begun)
			w.shell.do = func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
				if w.shell.count() == at.command || ctx.Err() != nil {
					return stopped(ctx, v)
				}
				return task.VerifyResult{ExitCode: 1, Error: "no"}
			}
			w.agent.do = func(ctx context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
				if len(w.agent.turns) == at.turn {
					begun <- turn.RunID
					if <-ctx.Done(); !at.answers {
						return task.Outcome{Class: state.ClassCanceled, ExitCode: -1, Session: "n1"}
					}
				}
				return task.Outcome{Result: "fine", Session: "n1"}
			}
			id := w.verified(nil)
			<-begun
			got, err := w.c.Cancel(w.t.Context(), id, "somebody")
			if err != nil || got.Status != state.Canceled || got.Phase != "" || got.Result != "fine" || got.By != "somebody" {
				t.Errorf("%+v, %v", got, err)
			}
			if len(w.agent.turns) != at.turns || w.shell.count() != at.commands {
				t.Errorf("%d turns, %d commands", len(w.agent.turns), w.shell.count())
			}
		})
	}
}

// TestLoopIsEditedByHand: a person's edit of a command, or of the prompt, counts from the next step on.
func TestLoopIsEditedByHand(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		edit     string
		codes    []int
		commands []string
		messages []string
		status   state.Status
	}{
		"another command":              {"- verifyCommand: make check", []int{1, 0}, []string{"make test", "make check"}, []string{"do it", prompt.FixIt}, state.Done},
		"another that can be run":      {"- verifyCommand: make check", []int{127, 0}, []string{"make test", "make check"}, []string{"do it"}, state.Done},
		"no command":                   {"- verifyCommand: none", []int{1}, []string{"make test"}, []string{"do it"}, state.Done},
		"another prompt":               {"- prompt: do that", []int{1, 0}, []string{"make test", "make test"}, []string{"do it", "do that"}, state.Done},
		"one iteration":                {"- maxIterations: 1", []int{1}, []string{"make test"}, []string{"do it"}, state.Failed},
		"held":                         {"- hold: true", []int{0}, []string{"make test"}, []string{"do it"}, state.Done},
		"another agent":                {"- agent: claude", []int{1, 0}, []string{"make test", "make test"}, []string{"do it", "do it"}, state.Done},
		"a first command, in the turn": {"- verifyCommand: make", []int{1, 0}, []string{"make", "make"}, []string{"do it", prompt.FixIt}, state.Done},
		"another prompt, in the turn":  {"- prompt: do that", []int{1, 0}, []string{"make test", "make test"}, []string{"do it", "do that"}, state.Done},
	} {
		loops(t, name, func(t *testing.T, w *loopWorld) {
			ends := exits(tc.codes...)
			begun, edited, inTurn := make(chan bool), make(chan bool), strings.HasSuffix(name, "in the turn")
			w.shell.do = func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
				if w.shell.count() == 1 && !inTurn {
					begun <- true
					<-edited
				}
				return ends(ctx, v)
			}
			w.agent.do = func(_ context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
				session := fmt.Sprint("n", len(w.agent.turns))
				report(task.Event{Session: session})
				if len(w.agent.turns) == 1 && inTurn {
					begun <- true
					<-edited
				}
				return task.Outcome{Result: "fine", Session: session}
			}
			id := w.verified(func(s *task.TaskSpec) {
				if strings.HasPrefix(name, "a first") {
					s.VerifyCommand = ""
				}
			})
			<-begun
			w.reconcile("## Task %s\n%s\n", id, tc.edit)
			edited <- true
			got := w.ended(id)
			w.expect(got, tc.status, map[state.Status]state.Class{state.Failed: state.ClassVerify}[tc.status])
			var commands []string
			for _, v := range w.shell.runs {
				commands = append(commands, v.Command)
			}
			if diff := cmp.Diff([][]string{tc.commands, tc.messages}, [][]string{commands, w.messages()}); diff != "" {
				t.Errorf("commands and messages: %s", diff)
			}
			if name == "another agent" && (w.agent.turns[1].Session != "" || got.Account != "claude" || got.Attempt != 1) {
				t.Errorf("the other one goes on in session %q: %+v", w.agent.turns[1].Session, got)
			}
			if name == "another command" {
				sent, _ := os.ReadFile(w.agent.turns[1].Prompt)
				if !strings.Contains(string(sent), "- command: make check\n") || !strings.Contains(string(sent), "> (of the command until then: make test)\n") {
					t.Errorf("the second turn was told\n%s", sent)
				}
			}
		})
	}
}

// TestLoopTakenOut: a person who cancels the task by hand, or queues it again, ends the command; queued
// again, it begins with its first iteration, though it was interrupted before as often as it may be.
func TestLoopTakenOut(t *testing.T) {
	t.Parallel()
	for first, requeues := range map[string]int{"canceled": 0, "queued": 1} { // the run of a canceled one has ended when it is queued
		loops(t, first, func(t *testing.T, w *loopWorld) {
			begun := make(chan string, 2)
			w.shell.do = func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
				if w.shell.count() == 1 {
					return untilStopped(begun)(ctx, v)
				}
				return task.VerifyResult{}
			}
			w.reconcile("## Task mine\n- status: queued\n- retries: 5\n- prompt: do it\n- verifyCommand: make test\n")
			<-begun
			w.reconcile("## Task mine\n- status: %s\n", first)
			time.Sleep(time.Second) // the end of its run is recorded
			if first == "canceled" {
				w.expect(w.ended("mine"), state.Canceled, "")
				w.reconcile("## Task mine\n- status: queued\n")
			}
			got := w.ended("mine")
			if w.expect(got, state.Done, ""); len(w.agent.turns) != 2 || w.shell.count() != 2 || got.Iteration != 1 || got.Requeues != requeues {
				t.Errorf("%d turns, %d commands: %+v", len(w.agent.turns), w.shell.count(), got)
			}
		})
	}
}

// TestLoopCommandEditsTheLedger: what a verify command writes into tasks.md counts as a
// person's, for it may be one; but there is an end to it.
func TestLoopCommandEditsTheLedger(t *testing.T) {
	t.Parallel()
	const all, short = "", "short" // the file is removed, or cut, as an editor may do that is at work still
	for edit, want := range map[string]struct {
		status          state.Status
		reason          state.Class
		turns, commands int
	}{
		"- status: queued": {state.Dead, state.ClassInterrupted, 3, 3}, // after two retries
		"- status: canceled\n\n## Task ID\n- status: queued": {state.Dead, state.ClassInterrupted, 3, 3},
		"- status: done":          {state.Done, "", 1, 1},
		"- verifyCommand: always": {state.Failed, state.ClassVerify, 3, 3},
		"- prompt: do that":       {state.Failed, state.ClassVerify, 5, 5}, // as above
		all:                       {state.Failed, state.ClassVerify, 3, 3}, // and is written again
		short:                     {state.Dead, state.ClassInterrupted, 3, 3},
	} {
		loops(t, edit, func(t *testing.T, w *loopWorld) {
			w.close()
			w.cfg.MaxRetries = 2
			w.openUnwatched()
			w.shell.do = func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
				tasks := filepath.Join(w.dir, ledger.TasksName)
				synctest.Wait() // as reconcile
				switch edit {
				case all:
					check(t, os.Remove(tasks))
					if _, err := w.c.Reconcile(context.Background(), false); err != nil {
						t.Error(err)
					}
				case short: // and the command ends at once
					check(t, os.WriteFile(tasks, []byte(strings.Repeat("\n\n## Task "+v.TaskID+"\n- status: queued", w.shell.count())), 0o600))
				default:
					w.reconcile("## Task %s\n%s\n- label: %d\n", v.TaskID, strings.ReplaceAll(edit, "ID", v.TaskID), w.shell.count())
				}
				if ctx.Err() != nil {
					return task.VerifyResult{Class: state.ClassCanceled, ExitCode: -1}
				}
				return task.VerifyResult{ExitCode: 1, Error: "no"}
			}
			id := w.verified(nil)
			time.Sleep(time.Minute) // it may end more than once
			got := w.ended(id)
			w.expect(got, want.status, want.reason)
			if len(w.agent.turns) != want.turns || w.shell.count() != want.commands || got.Retries != 0 {
				t.Errorf("%d turns, %d commands: %+v", len(w.agent.turns), w.shell.count(), got)
			}
			if told := strings.Contains(got.Note, "changed too often"); told != (edit == "- prompt: do that") {
				t.Errorf("the note is %q", got.Note)
			}
			if text, err := os.ReadFile(filepath.Join(w.dir, ledger.TasksName)); err != nil || !strings.Contains(string(text), "## Task "+id) {
				t.Errorf("tasks.md: %v\n%s", err, text)
			}
		})
	}
}

// TestLoopWaitsForASave: what a run leaves waits for an editor that is at work on tasks.md.
func TestLoopWaitsForASave(t *testing.T) {
	t.Parallel()
	inLoop(t, func(w *loopWorld) {
		tasks := filepath.Join(w.dir, ledger.TasksName)
		var whole []byte
		w.shell.do = func(context.Context, task.VerifyRun) task.VerifyResult {
			if w.shell.count() == 1 {
				synctest.Wait() // as reconcile
				whole, _ = os.ReadFile(tasks)
				check(t, os.WriteFile(tasks, whole[:len(whole)/2], 0o600))
			}
			return task.VerifyResult{}
		}
		id, next := w.verified(nil), w.verified(nil)
		time.Sleep(time.Second)
		_, _, settling := w.c.Live(id)
		_, _, others := w.c.Live(next)
		if why, err := w.c.Why(id); why != "its run has ended; the result waits until the save of tasks.md is settled" || err != nil || !settling || others {
			t.Errorf("why: %q, %v", why, err)
		}
		check(t, os.WriteFile(tasks, whole, 0o600))
		w.expect(w.ended(id), state.Done, "")
		w.expect(w.ended(next), state.Done, "")
		if _, _, settling := w.c.Live(id); settling {
			t.Error("what has ended waits")
		}
	})
}

// code returns the code of an error of package task.
func code(err error) task.Code {
	var e *task.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestLoopWaitsForItsAccount: an iteration does not begin while the account cools down, and is
// then made as if it had not waited, with what was edited meanwhile.
func TestLoopWaitsForItsAccount(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(w *loopWorld, id string)
		codes     []int
		turns     []string
		waits     bool
	}{
		"nothing is new":  {func(*loopWorld, string) {}, []int{1, 0}, []string{"do it", prompt.FixIt}, true},
		"another command": {func(w *loopWorld, id string) { w.reconcile("## Task %s\n- verifyCommand: make check\n", id) }, []int{1, 0}, []string{"do it", prompt.FixIt}, true},
	} {
		loops(t, name, func(t *testing.T, w *loopWorld) {
			ends := exits(tc.codes...)
			w.shell.do = func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
				if w.shell.count() == 1 {
					w.reconcile("## Control account:demo\n- coolUntil: %s\n", state.FormatTime(time.Now().Add(time.Hour)))
				}
				return ends(ctx, v)
			}
			w.agent.do = answer("fine")
			begun, id := time.Now(), w.verified(nil)
			time.Sleep(time.Minute)
			if why, _ := w.c.Why(id); !strings.Contains(why, "account demo") {
				t.Errorf("why: %s", why)
			}
			tc.meanwhile(w, id)
			got := w.ended(id)
			w.expect(got, state.Done, "")
			if got.Iteration != len(tc.turns) || time.Since(begun) > time.Hour != tc.waits || w.shell.count() != len(tc.codes) || got.LimitWaits != 0 || got.Retries != 0 || got.Attempt != 1 {
				t.Errorf("%d commands: %+v", w.shell.count(), got)
			}
			if diff := cmp.Diff(tc.turns, w.messages()); diff != "" {
				t.Error(diff)
			}
			last := w.agent.turns[len(tc.turns)-1]
			if sent, _ := os.ReadFile(last.Prompt); strings.Contains(string(sent), "## Note") {
				t.Errorf("nothing was cut off, but it was told\n%s", sent)
			}
		})
	}
}

// TestLoopClasses: what the command could not tell is no verdict on the answer.
func TestLoopClasses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		res    task.VerifyResult
		status state.Status
		reason state.Class
		code   string
	}{
		{task.VerifyResult{Class: state.ClassTimeout, ExitCode: -1, Error: "it ran longer", Duration: time.Minute}, state.Failed, state.ClassVerify, "-1"},
		{task.VerifyResult{ExitCode: -1, Error: "by a signal"}, state.Failed, state.ClassVerify, "-1"},
		{task.VerifyResult{ExitCode: 127, Error: "not found"}, state.Failed, state.ClassVerify, "127"},
		{task.VerifyResult{Class: state.ClassExit, ExitCode: -1, Error: "could not be started"}, state.Failed, state.ClassExit, ""},
		{task.VerifyResult{Class: state.ClassInterrupted, ExitCode: -1, Error: "gate"}, state.Dead, state.ClassInterrupted, ""},
	} {
		loops(t, tc.res.Error, func(t *testing.T, w *loopWorld) {
			w.shell.do = func(context.Context, task.VerifyRun) task.VerifyResult { return tc.res }
			got := w.ended(w.verified(func(s *task.TaskSpec) { s.MaxIterations = 1 }))
			w.expect(got, tc.status, tc.reason)
			code := ""
			if got.VerifyExitCode != nil {
				code = fmt.Sprint(*got.VerifyExitCode)
			}
			if code != tc.code || len(w.agent.turns) != 1 || got.Error != tc.res.Error {
				t.Errorf("exit code %q, %d turns: %+v", code, len(w.agent.turns), got)
			}
		})
	}
}

// TestLoopFiles: only what passed is collected.
func TestLoopFiles(t *testing.T) {
	t.Parallel()
	inLoop(t, func(w *loopWorld) {
		w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			write(t, filepath.Join(turn.Workspace, "out.txt"), strings.Repeat("+", len(w.agent.turns)))
			return task.Outcome{Result: "ok", Session: "n1"}
		}
		begun := make(chan string, 1)
		stopped := untilStopped(begun)
		w.shell.do = func(ctx context.Context, v task.VerifyRun) task.VerifyResult {
			switch {
			case w.shell.count() == 1:
				return stopped(ctx, v) // a shutdown in between
			case read(t, v.Workspace, "out.txt") == "++":
				return task.VerifyResult{}
			}
			return task.VerifyResult{ExitCode: 1, Error: "one + only"}
		}
		w.reconcile("## Task mine\n- status: queued\n- prompt: p\n- verifyCommand: grep ++ out.txt\n- outputSpec: out.txt\n")
		<-begun
		w.reopen()
		got := w.ended("mine")
		w.expect(got, state.Done, "")
		if len(got.OutputFiles) != 1 || got.OutputFiles[0].Size != 2 || len(w.agent.turns) != 2 || w.shell.count() != 3 {
			t.Errorf("%d turns, %d commands, collected %+v", len(w.agent.turns), w.shell.count(), got.OutputFiles)
		}
		if raw, _ := w.c.Raw(w.t.Context(), "mine"); strings.Count(string(raw), "- outputFiles: [") != 1 {
			t.Errorf("collected before it passed:\n%s", raw)
		}
	})
}

// TestLoopCrash: a master that ended behind any record of a loop is followed by one that goes on there: an
// answer that was to be verified is verified, not asked for again, and no attempt is spent.
func TestLoopCrash(t *testing.T) {
	t.Parallel()
	secondRound := func(_ context.Context, v task.VerifyRun) task.VerifyResult {
		if v.Iteration >= 2 {
			return task.VerifyResult{}
		}
		return task.VerifyResult{ExitCode: 1, Output: "bad 1\n", Error: "no"}
	}
	var whole []byte
	var id string
	inLoop(t, func(w *loopWorld) {
		w.shell.do = secondRound
		id = w.verified(nil)
		w.expect(w.ended(id), state.Done, "")
		whole, _ = os.ReadFile(filepath.Join(w.dir, ledger.JournalName))
	})
	for n, want := range []struct {
		turns    []string // what the agent is still told
		commands int
		retries  int
		looked   int // for a session in the output of a run
	}{
		{[]string{"do it", prompt.FixIt}, 2, 0, 0}, // behind queued
		{[]string{"do it", prompt.FixIt}, 2, 1, 1}, // running
		{[]string{prompt.FixIt}, 2, 1, 0},          // verify: what the command prints names none
		{[]string{prompt.FixIt}, 1, 1, 1},          // the second turn
		{nil, 1, 1, 0},                             // verify
		{nil, 0, 0, 0},                             // done
	} {
		loops(t, fmt.Sprint(n), func(t *testing.T, w *loopWorld) {
			w.close()
			journal := firstRecords(t, whole, id, n+1)
			err := errors.Join(os.WriteFile(filepath.Join(w.dir, ledger.JournalName), journal, 0o600), os.Remove(filepath.Join(w.dir, ledger.TasksName)))
			check(t, err)
			w.shell.do = secondRound
			looked := 0
			w.cfg.FindSession = func(string, string) (string, bool) {
				looked++
				return "", false
			}
			w.openUnwatched()
			got := w.ended(id)
			if looked != want.looked {
				t.Errorf("looked for a session %d times, want %d", looked, want.looked)
			}
			if w.expect(got, state.Done, ""); got.Attempt != 1 || got.Retries != want.retries || got.Iteration != 2 || got.Result != "fine" {
				t.Errorf("%+v", got)
			}
			if diff := cmp.Diff(want.turns, w.messages()); diff != "" || w.shell.count() != want.commands {
				t.Errorf("%d commands, sent: %s", w.shell.count(), diff)
			}
		})
	}
}

// firstRecords returns a journal up to the n-th record of a task that has a status.
func firstRecords(t *testing.T, journal []byte, id string, n int) []byte {
	t.Helper()
	doc := ledger.Parse(journal)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if string(s.ID) != id || s.Get(state.KeyStatus) == nil {
			continue
		}
		if n--; n == 0 {
			end := fmt.Sprintf("<!-- end %d -->\n", s.Seq)
			before, _, _ := strings.Cut(string(journal), end)
			return []byte(before + end)
		}
	}
	t.Fatal("there are not so many records")
	return nil
}
