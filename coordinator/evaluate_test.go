package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/memory"
	"stint/prompt"
	"stint/state"
)

// A judgeWorld has an agent and its evaluator, told apart by the schema, and verify
// commands that end with the exit codes of checks, the last one again and again.
type judgeWorld struct {
	*world
	judge  func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome
	mu     sync.Mutex
	checks []int
}

func newJudgeWorld(t *testing.T) *judgeWorld {
	w := &judgeWorld{world: newWorld(t), judge: judges(`{"findings":[],"lessons":[]}`)}
	w.settings(queue.WorkspaceSettings{EvalPrompt: "Judge it.", EvalMaxChars: 2000, LessonsPath: memory.DefaultLessons})
	w.cfg.Shell = w
	w.cfg.MaxIterations = 2
	w.agent.do = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
		if turn.Schema != "" {
			return w.judge(ctx, turn, report)
		}
		report(task.Event{Session: "native-1"})
		return task.Outcome{Result: "the answer", Session: "native-1", Thread: tokens(100, 10)}
	}
	return w
}

func (w *judgeWorld) Verify(context.Context, task.VerifyRun) task.VerifyResult {
	w.mu.Lock()
	defer w.mu.Unlock()
	code := w.checks[0]
	if len(w.checks) > 1 {
		w.checks = w.checks[1:]
	}
	return task.VerifyResult{ExitCode: code, Error: fmt.Sprintf("the verify command ended with exit code %d", code), Output: "checked\n", Duration: time.Second}
}

// judged lets a task be judged, which lasts until it is ended.
func (w *judgeWorld) judged(spec task.TaskSpec) (id string) {
	w.t.Helper()
	begun := make(chan struct{})
	w.judge = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
		close(begun)
		<-ctx.Done()
		class := state.ClassInterrupted
		if errors.Is(context.Cause(ctx), task.ErrCanceled) {
			class = state.ClassCanceled
		}
		return task.Outcome{Class: class, ExitCode: -1, Error: context.Cause(ctx).Error()}
	}
	w.open()
	id = w.submit(spec).ID
	<-begun
	return id
}

// killed returns a world with what a kill -9 leaves of one that judges such a task, the
// exit codes of whose verify commands are checks.
func killed(t *testing.T, spec task.TaskSpec, checks ...int) (old, next *judgeWorld, id string) {
	t.Helper()
	old, next = newJudgeWorld(t), newJudgeWorld(t)
	old.checks = checks
	id = old.judged(spec)
	next.copies(old.world)
	old.close()
	return old, next, id
}

// judges makes an evaluator that answers so, in a session of its own.
func judges(text string) func(context.Context, task.Turn, func(task.Event)) task.Outcome {
	return func(_ context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
		report(task.Event{Session: "judge-1", Text: text})
		return task.Outcome{Result: text, Session: "judge-1", Thread: tokens(7, 3)}
	}
}

// turns counts the turns of the agent and of its evaluator.
func (w *judgeWorld) turns() (agent, judge int) {
	w.agent.mu.Lock()
	defer w.agent.mu.Unlock()
	for _, turn := range w.agent.turns {
		if turn.Schema != "" {
			judge++
		} else {
			agent++
		}
	}
	return agent, judge
}

// records returns what the records of a task say, one after the other, of some keys.
func (w *world) records(id string, keys ...string) (list []string) {
	w.t.Helper()
	for _, s := range ledger.Parse([]byte(read(w.t, w.dir, ledger.JournalName))).Sections { // it has what was acknowledged, tasks.md gets it a moment later
		var said []string
		for _, key := range keys {
			if s.Get(key) != nil {
				said = append(said, key+"="+s.Value(key))
			}
		}
		if string(s.ID) == id && len(said) > 0 {
			list = append(list, strings.Join(said, " "))
		}
	}
	return list
}

// TestEvaluation: the answer is recorded before the evaluator begins; what it finds
// and what it has used are the task's, its session is nobody's.
func TestEvaluation(t *testing.T) {
	w := newJudgeWorld(t)
	w.checks = []int{1, 0}
	w.judge = judges("Here it is:\n```json\n" + `{"findings":[{"kind":"incomplete","message":"No test."}],"lessons":["The tests need make."]}` + "\n```\n")
	w.open()
	got := w.done(task.TaskSpec{Prompt: "Fix it.", VerifyCommand: "make test", SessionKey: "web"})
	id, want := got.ID, []state.Issue{{Kind: "incomplete", Message: "No test."}}
	if !cmp.Equal(got.Findings, want) || got.Result != "the answer" || got.Usage != tokens(107, 13) || got.AgentSession != "native-1" || got.Phase != "" {
		t.Errorf("the task has %v, %q, %+v, session %s", got.Findings, got.Result, got.Usage, got.AgentSession)
	}
	again := w.wait(w.submit(task.TaskSpec{Prompt: "More.", SessionKey: "web"}).ID) // its session goes on
	if again.AgentSession != "native-1" || again.Usage != tokens(7, 3) {
		t.Errorf("the next task has session %s and used %+v", again.AgentSession, again.Usage)
	}
	w.close()

	said := w.records(id, state.KeyStatus, state.KeyPhase, state.KeyIteration, state.KeyVerifyExitCode, state.KeyResult, state.KeyFindings)
	if diff := cmp.Diff([]string{
		"status=queued", "status=running",
		"status=running phase=verify iteration=1 result=the answer",
		"status=running phase= iteration=2 verifyExitCode=1",
		"status=running phase=verify iteration=2 result=the answer",
		"status=running phase=evaluate iteration=2 verifyExitCode=0",
	}, said[:6]); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if end := said[len(said)-1]; !strings.Contains(end, `findings=[{"kind":"incomplete"`) {
		t.Errorf("the last record is %s", end)
	}
	i := slices.IndexFunc(w.agent.turns, func(turn task.Turn) bool { return turn.Schema != "" })
	turn := w.agent.turns[i]
	inside, err := os.ReadDir(turn.Workspace)
	if err != nil || len(inside) > 0 || turn.Session != "" || !turn.ReadOnly || turn.RunID == w.agent.turns[0].RunID {
		t.Errorf("the evaluator's turn is %+v, its directory has %v, %v", turn, inside, err)
	}
	if text := read(t, turn.Prompt); !strings.HasPrefix(text, "Judge it.\n") || !strings.Contains(text, "\n> Fix it.\n") || !strings.Contains(text, "\n> the answer\n") || !strings.Contains(text, "\n> exit code: 0\n") {
		t.Errorf("the evaluator was told:\n%s", text)
	}
	lessons, err := memory.Lessons(w.work, memory.DefaultLessons)
	if err != nil || len(lessons) != 1 || lessons[0].Text != "The tests need make." || lessons[0].Source != "task "+id || lessons[0].Date == "" {
		t.Errorf("the lessons are %+v, %v", lessons, err)
	}
}

// TestEvaluationFails: whatever becomes of the evaluator, the task ends as it would
// have without it, and says in a note what was wrong.
func TestEvaluationFails(t *testing.T) {
	t.Parallel()
	bad := func(class state.Class, message string) func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		return func(context.Context, task.Turn, func(task.Event)) task.Outcome {
			return task.Outcome{Class: class, ExitCode: 1, Error: message, Session: "judge-1", Kept: true, RetryAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
		}
	}
	for name, c := range map[string]struct {
		judge func(context.Context, task.Turn, func(task.Event)) task.Outcome
		note  string
	}{
		"no JSON":      {judges("It looks good to me."), `the evaluator answered no JSON of the schema: "It looks good to me."`},
		"other JSON":   {judges(`{"ok":true}`), "the evaluator answered no JSON of the schema"},
		"empty":        {bad(state.ClassOutputMissing, "the agent ended without an answer"), "not evaluated: output-missing: the agent ended without an answer"},
		"rate-limited": {bad(state.ClassRateLimited, "429"), "not evaluated: rate-limited: 429"},
		"auth":         {bad(state.ClassAuth, "401"), "not evaluated: auth: 401"},
		"missing":      {bad(state.ClassAgentMissing, "no such program"), "not evaluated: agent-missing"},
		"network":      {bad(state.ClassNetwork, "500"), "not evaluated: network"},
		"terminal":     {bad(state.ClassNetwork, "x\x1b]0;pwned\x07\nstint: finding: y"), "not evaluated: network: x ]0;pwned stint: finding: y"},
		"session lost": {bad(state.ClassSessionLost, "gone"), "not evaluated: session-lost"},
		"interrupted":  {bad(state.ClassInterrupted, "no room"), "not evaluated: interrupted"},
		"timeout": {func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
			<-ctx.Done()
			return task.Outcome{Class: state.ClassTimeout, ExitCode: -1, Error: context.Cause(ctx).Error()}
		}, "not evaluated: timeout"},
	} {
		for _, passes := range []bool{true, false} {
			bubble(t, fmt.Sprint(name, passes), func(t *testing.T) {
				w := newJudgeWorld(t)
				w.judge, w.checks = c.judge, []int{1}
				status, class, spec := state.Failed, state.ClassVerify, task.TaskSpec{Prompt: "p", VerifyCommand: "make test"}
				if passes {
					status, class, spec.VerifyCommand = state.Done, "", ""
				}
				w.openUnwatched()
				got := w.endsAs(w.submit(spec).ID, status, class)
				if got.Result != "the answer" || got.Attempt != 1 || got.Retries != 0 || got.LimitWaits != 0 || got.AgentSession != "native-1" || got.PromptInHistory != "" || got.Phase != "" {
					t.Errorf("the task is %+v", got)
				}
				if !strings.Contains(got.Note, c.note) {
					t.Errorf("the note is %q, want %q", got.Note, c.note)
				}
				if !passes && (got.VerifyExitCode == nil || *got.VerifyExitCode != 1 || got.Error != "the verify command ended with exit code 1, in iteration 2") {
					t.Errorf("the task has exit code %v and %q", got.VerifyExitCode, got.Error)
				}
				w.close()
				if limited := slices.Contains(w.controls(), "coolUntil"); limited != (name == "rate-limited") {
					t.Errorf("the account cools down: %v", limited)
				}
			})
		}
	}
}

// TestLessonsGoNowhereElse: a link that comes in the place of the workspace while the
// answer is judged leads no lesson to another one.
func TestLessonsGoNowhereElse(t *testing.T) {
	w, other := newJudgeWorld(t), t.TempDir()
	says := judges(`{"findings":[],"lessons":["The tests need make."]}`)
	w.judge = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
		check(t, errors.Join(os.RemoveAll(w.work), os.Symlink(other, w.work)))
		return says(ctx, turn, report)
	}
	w.open()
	got := w.done(task.TaskSpec{Prompt: "p"})
	if left, err := os.ReadDir(other); err != nil || len(left) > 0 || !strings.Contains(got.Note, "were not kept") {
		t.Errorf("there is %v, %v; note %q", left, err, got.Note)
	}
}

// TestNothingGoesElsewhereLater: nor does a link that the task's run has made before its
// master was killed lead the next one there, to add lessons or to collect files.
func TestNothingGoesElsewhereLater(t *testing.T) {
	old, next, id := killed(t, task.TaskSpec{Prompt: "p", OutputSpec: []string{"key"}})
	other := t.TempDir()
	check(t, errors.Join(os.RemoveAll(old.work), os.Symlink(other, old.work), os.WriteFile(filepath.Join(other, "key"), nil, 0o600)))
	next.judge = judges(`{"findings":[],"lessons":["The tests need make."]}`)
	next.open()
	got := next.endsAs(id, state.Failed, state.ClassOutputMissing)
	if left, err := os.ReadDir(other); err != nil || len(left) != 1 || len(got.OutputFiles) > 0 || !strings.Contains(got.Note, "were not kept") {
		t.Errorf("there is %v, %v; collected %v, note %q", left, err, got.OutputFiles, got.Note)
	}
}

// TestFindingsWithoutOutput: what is found of an answer stays on the task though a file
// is missing then, and goes where nothing is found of a later one.
func TestFindingsWithoutOutput(t *testing.T) {
	w := newJudgeWorld(t)
	w.judge = judges(`{"findings":[{"kind":"wrong","message":"It is not."}],"lessons":[]}`)
	w.open()
	got := w.endsAs(w.submit(task.TaskSpec{Prompt: "p", OutputSpec: []string{"report.md"}, OnFailure: "look at {{.Findings}}"}).ID, state.Failed, state.ClassOutputMissing)
	if len(got.Findings) != 1 {
		t.Errorf("it has the findings %v", got.Findings)
	}
	w.close()
	w = newJudgeWorld(t)
	w.settings(queue.WorkspaceSettings{})
	answers := []string{"", "Done: report.md is written."}
	w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		defer func() { answers = answers[1:] }()
		return task.Outcome{Result: answers[0]}
	}
	w.checks, w.cfg.MaxIterations = []int{1, 0}, 1
	w.open()
	got = w.wait(w.submit(task.TaskSpec{Prompt: "p", VerifyCommand: "make", MaxAttempts: 2, OutputSpec: []string{"report.md"}}).ID)
	said := w.records(got.ID, state.KeyFindings)
	if len(got.Findings) > 0 || len(said) != 2 || got.Reason != state.ClassOutputMissing {
		t.Errorf("it has the findings %v of an earlier attempt; %q, %s", got.Findings, said, got.Reason)
	}
}

// controls returns the control records as text.
func (w *world) controls() (list []string) {
	for _, s := range ledger.Parse([]byte(read(w.t, w.dir, ledger.JournalName))).Sections {
		if s.Kind == ledger.KindControl {
			for i := range s.Fields {
				list = append(list, string(s.Fields[i].Key))
			}
		}
	}
	return list
}

// TestEvaluationOfWhatNeverPassed: the task has failed as it would have, and is tried again if it says so.
func TestEvaluationOfWhatNeverPassed(t *testing.T) {
	w := newJudgeWorld(t)
	w.checks = []int{1, 2, 1, 0}
	w.judge = judges(`{"findings":[{"kind":"wrong","message":"It does not build."}],"lessons":[]}`)
	w.open()
	got := w.done(task.TaskSpec{Prompt: "p", VerifyCommand: "make", MaxAttempts: 2})
	if agent, judge := w.turns(); agent != 4 || judge != 2 || got.Attempt != 2 || len(got.Findings) != 1 {
		t.Errorf("%d turns, %d of them judged, attempt %d, %v", agent, judge, got.Attempt, got.Findings)
	}
}

// TestJudgementWaitsForNoAccount: an answer that is right ends its task well, also if the
// account meets a limit, or is held, before the next master has it judged.
func TestJudgementWaitsForNoAccount(t *testing.T) {
	t.Parallel()
	for _, account := range []string{"coolUntil: " + state.FormatTime(time.Now().Add(time.Hour)), "hold: true"} {
		_, next, id := killed(t, task.TaskSpec{Prompt: "p", VerifyCommand: "make test", NoWaitLimit: true, OnFailure: "Mend it."}, 0)
		next.edit("\n## Control account:demo\n- %s\n", account)
		next.judge = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
			return task.Outcome{Class: state.ClassRateLimited, ExitCode: -1}
		}
		next.open()
		got := next.endsAs(id, state.Done, "")
		if got.Result != "the answer" || len(got.FollowUps) > 0 || !strings.Contains(got.Note, "not evaluated: rate-limited") {
			t.Errorf("%s: %+v", account, got)
		}
	}
}

// TestEndsWhileEvaluated: what a user or a shutdown ends has the answer of its agent all
// the same; after a shutdown it is done, unjudged.
func TestEndsWhileEvaluated(t *testing.T) {
	w := newJudgeWorld(t)
	id := w.judged(task.TaskSpec{Prompt: "p"})
	if got := w.task(id); got.Phase != state.PhaseEvaluate || got.Result != "the answer" {
		t.Errorf("phase %s, result %q", got.Phase, got.Result)
	}
	w.cancel(id)
	got := w.endsAs(id, state.Canceled, state.ClassCanceled)
	w.close()
	again := w.judged(task.TaskSpec{Prompt: "p"})
	w.restart()
	end := w.task(again)
	w.expect(end, state.Done, "")
	if got.Result != "the answer" || end.Result != got.Result || end.Attempt != 1 || end.Retries != 0 || !strings.Contains(end.Note, "not evaluated: interrupted") {
		t.Errorf("%q; %q, attempt %d, retries %d, note %q", got.Result, end.Result, end.Attempt, end.Retries, end.Note)
	}
}

// TestCrashWhileEvaluated: after the old evaluator was proved dead there is another, and the agent itself
// does not run again; when that happens too often, the task ends with its answer, unjudged.
func TestCrashWhileEvaluated(t *testing.T) {
	for _, patience := range []int{5, 0} {
		_, next, id := killed(t, task.TaskSpec{Prompt: "p", VerifyCommand: "make"}, 1)
		next.checks = []int{0}
		next.cfg.MaxRetries = patience
		next.judge = judges(`{"findings":[{"kind":"wrong","message":"m"}],"lessons":[]}`)
		var proved []string
		next.cfg.Recover = func(_ context.Context, _, run string) error {
			proved = append(proved, run)
			return nil
		}
		next.open()
		got := next.endsAs(id, state.Failed, state.ClassVerify)
		agent, judge := next.turns()
		if len(proved) != 1 || agent != 0 || judge != min(patience, 1) || len(got.Findings) != judge || got.Attempt != 1 || got.Result != "the answer" {
			t.Errorf("proved dead %v; %d turns, %d judged; findings %v, attempt %d, result %q", proved, agent, judge, got.Findings, got.Attempt, got.Result)
		}
		if patience == 0 && !strings.Contains(got.Note, "interrupted too often") {
			t.Errorf("the note is %q", got.Note)
		}
	}
}

// TestLessonsWithoutRoom: lessons for which there is no room are not dropped in silence.
func TestLessonsWithoutRoom(t *testing.T) {
	w := newJudgeWorld(t)
	w.settings(queue.WorkspaceSettings{EvalPrompt: "Judge it.", EvalMaxChars: 20, LessonsPath: memory.DefaultLessons})
	w.judge = judges(`{"findings":[],"lessons":["twelve chars","more than is left","8 chars."]}`)
	w.open()
	got := w.done(task.TaskSpec{Prompt: "p"})
	if want := "1 of the 3 lessons of this task were not kept: they do not fit into self_eval_max_chars (20)"; got.Note != want {
		t.Errorf("the note is %q", got.Note)
	}
}

// TestPolicyOfATemplate: the evaluator hears of no policy that the agent was not told.
func TestPolicyOfATemplate(t *testing.T) {
	for text, want := range map[string]bool{"{{.Policy}}": true, "{{.Memory}}": false, "": true} {
		template, err := prompt.ParseTemplate(text)
		fatal(t, err)
		w := newJudgeWorld(t)
		w.cfg.OutputPolicy = prompt.DefaultPolicy
		w.settings(queue.WorkspaceSettings{EvalPrompt: "Judge it.", PromptTemplate: template})
		w.open()
		w.done(task.TaskSpec{Prompt: "p"})
		if told := read(t, w.agent.turns[1].Prompt); strings.Contains(told, "at most six lines") != want {
			t.Errorf("with %q the evaluator is told:\n%s", text, told)
		}
	}
}

// TestDeniedToolsAreFindings: what an agent was denied in the turns of an attempt is on the
// task, which is done all the same, and sets off what is to follow an issue; also behind a
// verify command, and when the turn was continued.
func TestDeniedToolsAreFindings(t *testing.T) {
	push := state.Issue{Kind: "denied", Message: `shell "git push" was denied`}
	commit := state.Issue{Kind: "denied", Message: `shell "git commit" was denied`}
	fine := task.Outcome{Result: "Done.", Session: "n1"}
	with := func(out task.Outcome, found ...state.Issue) task.Outcome {
		out.Findings = found
		return out
	}
	for _, tc := range []struct {
		name     string
		outcomes []task.Outcome
		verify   func(context.Context, task.VerifyRun) task.VerifyResult
		want     string
	}{
		{"a turn", []task.Outcome{with(fine, push, commit)}, nil, "git push, git commit"},
		{"none", []task.Outcome{fine}, nil, ""},
		{"verified", []task.Outcome{with(fine, push)}, exits(0), "git push"},
		{"an earlier iteration", []task.Outcome{with(fine, push), with(fine, push, commit), fine}, exits(1, 1, 0), "git push, git commit"},
		{"continued", []task.Outcome{with(task.Outcome{Class: state.ClassRateLimited, Session: "n1", Kept: true}, push), fine}, nil, "git push"},
		{"begun anew", []task.Outcome{with(task.Outcome{Class: state.ClassNetwork}, push), fine}, nil, ""},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := followWorld(t)
			w.outcomes(append(tc.outcomes, fine)...) // and the follow-up's
			spec := task.TaskSpec{Prompt: "p", OnIssue: "allow it?"}
			if tc.verify != nil {
				w.cfg.Shell, w.cfg.MaxIterations, spec.VerifyCommand = &fakeShell{do: tc.verify}, 3, "make test"
			}
			w.openUnwatched()
			got := w.done(spec)
			var found []string
			for _, f := range got.Findings {
				found = append(found, strings.Split(f.Message, `"`)[1])
			}
			if strings.Join(found, ", ") != tc.want || len(w.task(got.ID).FollowUps) != min(1, len(found)) {
				t.Errorf("findings %v, followed by %v", got.Findings, w.task(got.ID).FollowUps)
			}
		})
	}
}
