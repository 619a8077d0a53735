package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/prompt"
	"stint/state"
)

// A forker is an agent that begins a new session from an older one where it is told to. What happens in its
// turns is played from the list: each turn says whether it gets anywhere before it ends.
type forker struct {
	turns []forkedTurn
	next  int
	told  []string            // what each turn was: "resume n1", "fork n1", "new"
	says  map[string][]string // the prompts in the history of each session
}

type forkedTurn struct {
	works  bool // there is a message or a tool before the end
	class  state.Class
	thread state.Usage
}

func (f *forker) run(w *world) func(context.Context, task.Turn, func(task.Event)) task.Outcome {
	return func(_ context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
		now := forkedTurn{works: true}
		if f.next < len(f.turns) {
			now = f.turns[f.next]
		}
		f.next++
		session, what := turn.Session, "resume "+turn.Session
		switch {
		case turn.Session == "":
			session, what = fmt.Sprint("n", f.next), "new"
		case turn.Fork:
			session, what = fmt.Sprint("n", f.next), "fork "+turn.Session
		}
		f.told = append(f.told, what)
		f.says[session] = append(slices.Clone(f.says[turn.Session]), w.sent(f.next-1))
		out := task.Outcome{Class: now.class, Session: session, Kept: now.class != "", Forked: turn.Fork, Thread: now.thread, ExitCode: 1}
		if turn.Fork && !now.works {
			out.Session, out.Kept, out.Forked = "", false, false
			return out
		}
		report(task.Event{Session: session, Forked: turn.Fork})
		if now.class == "" {
			out.Result = "ok"
		}
		return out
	}
}

// TestKeptPromptIsContinuedOnce: however often a turn that goes on with a kept prompt is refused, the
// conversation has the prompt once, and one word to go on for each turn that got anywhere.
func TestKeptPromptIsContinuedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.ResumeMissing = "error" // a fork is no other session
	limit := state.ClassRateLimited
	f := &forker{says: map[string][]string{}, turns: []forkedTurn{
		{works: true, thread: tokens(100, 10)},
		{class: limit, works: true},
		{class: limit},
		{class: limit},
		{class: state.ClassNetwork},
		{class: limit},
		{class: limit, works: true},
		{class: limit},
		{works: true, thread: tokens(160, 16)},
		{works: true, thread: tokens(170, 17)},
	}}
	w.agent.do = f.run(w)
	w.open()
	web := task.TaskSpec{Prompt: "first", SessionKey: "web"}
	w.done(web)
	web.Prompt = "do it"
	got := w.done(web)
	if got.AgentSession != "n9" || got.PromptInHistory != "" || got.Note != "" || got.Usage != tokens(60, 6) || got.Attempt != 2 {
		t.Errorf("session %s, kept in %q, note %q, used %+v, attempt %d", got.AgentSession, got.PromptInHistory, got.Note, got.Usage, got.Attempt)
	}
	web.Prompt = "and on"
	if next := w.done(web); next.Usage != tokens(10, 1) {
		t.Errorf("the next task has used %+v", next.Usage)
	}
	w.close()
	want := []string{"new", "resume n1", "fork n1", "fork n1", "fork n1", "fork n1", "fork n1", "fork n7", "fork n7", "resume n9"}
	if diff := cmp.Diff(want, f.told); diff != "" {
		t.Errorf("turns:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"first", "do it", prompt.GoOn, prompt.GoOn, "and on"}, f.says["n9"]); diff != "" {
		t.Errorf("the conversation:\n%s", diff)
	}
	w.open()
	if s, _, err := w.c.Session("web", 0, 0); err != nil || s.Native != "n9" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestForkAndCrash: a master that is killed while a fork is at work leaves a task that
// goes on with the fork if it got anywhere, and else with what it was forked from.
func TestForkAndCrash(t *testing.T) {
	t.Parallel()
	for _, works := range []bool{true, false} {
		w := newWorld(t)
		begun := make(chan struct{})
		w.agent.do = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
			if !turn.Fork {
				report(task.Event{Session: "n1"})
				return task.Outcome{Class: state.ClassNetwork, Session: "n1", Kept: true}
			}
			if works {
				report(task.Event{Session: "n2", Forked: true})
			}
			close(begun)
			<-ctx.Done()
			return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
		}
		w.open()
		id := w.submit(task.TaskSpec{Prompt: "do it"}).ID
		<-begun
		next := newWorld(t)
		next.copies(w)
		w.close()
		next.cfg.FindSession = func(string, string) (string, bool) { return "n2", true } // as its output tells
		next.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
			return task.Outcome{Result: turn.Session, Session: "n3", Forked: turn.Fork}
		}
		next.open()
		got := next.wait(id)
		want := map[bool]string{true: "n2", false: "n1"}[works]
		if turn := next.agent.turns[0]; got.Result != want || !turn.Fork || next.sent(0) != prompt.GoOn {
			t.Errorf("works %v: it went on with %s, by a fork %v, told %q", works, got.Result, turn.Fork, next.sent(0))
		}
	}
}

// TestEditWhileForked: what a person has made of the prompt meanwhile is still to be sent.
func TestEditWhileForked(t *testing.T) {
	w := newWorld(t)
	begun, edited := make(chan struct{}), make(chan struct{})
	w.agent.do = func(_ context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
		switch turn.Attempt {
		case 1:
			return task.Outcome{Class: state.ClassNetwork, Session: "n1", Kept: true}
		case 2:
			close(begun)
			<-edited
			report(task.Event{Session: "n2", Forked: true})
			return task.Outcome{Class: state.ClassNetwork, Session: "n2", Kept: true, Forked: true}
		}
		return task.Outcome{Result: "ok", Session: turn.Session}
	}
	w.open()
	id := w.submit(task.TaskSpec{Prompt: "do it"}).ID
	<-begun
	w.reconcile("## Task %s\n- prompt: do that\n", id)
	close(edited)
	w.wait(id)
	w.close()
	if turn := w.agent.turns[2]; turn.Session != "n2" || turn.Fork || w.sent(2) != "do that" {
		t.Errorf("in session %s (a fork: %v) it was told %q", turn.Session, turn.Fork, w.sent(2))
	}
}

// TestRetryGoesOnWhereItsSessionIs: a task that ended before its session was forked for a
// later one goes on with the fork.
func TestRetryGoesOnWhereItsSessionIs(t *testing.T) {
	w := newWorld(t)
	f := &forker{says: map[string][]string{}, turns: []forkedTurn{{works: true}, {class: state.ClassNetwork}, {works: true}}}
	w.agent.do = f.run(w)
	w.open()
	first := w.wait(w.submit(task.TaskSpec{Prompt: "a", SessionKey: "web"}).ID).ID
	w.wait(w.submit(task.TaskSpec{Prompt: "b", SessionKey: "web"}).ID)
	w.retry(first)
	w.wait(first)
	w.close()
	if got := strings.Join(f.told, ", "); got != "new, resume n1, fork n1, resume n3" {
		t.Errorf("turns: %s", got)
	}
}

// escaper is a fakeAgent whose CLI would expand every @.
type escaper struct{ *fakeAgent }

func (escaper) EscapePrompt(text string) string {
	return "escaped\n" + strings.ReplaceAll(text, "@", `\@`)
}

// TestPromptIsEscaped: prompt.md and the preview hold what is sent, for an evaluator too; the transcript has
// the user's own words; and a prompt that the session has already is known again.
func TestPromptIsEscaped(t *testing.T) {
	w := newJudgeWorld(t)
	w.cfg.Agents = map[string]task.Agent{"demo": escaper{w.agent}}
	failed, answered := false, w.agent.do
	w.agent.do = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
		if !failed {
			failed = true
			report(task.Event{Session: "native-1"})
			return task.Outcome{Class: state.ClassNetwork, ExitCode: 1, Error: "no", Session: "native-1", Kept: true}
		}
		return answered(ctx, turn, report)
	}
	w.open()
	spec := task.TaskSpec{Prompt: "see @a", Workspace: w.work}
	list, err := w.c.Preview(t.Context(), []task.TaskSpec{spec}, true)
	if err != nil || !strings.HasPrefix(list[0].Prompt, "escaped\n") || !strings.HasSuffix(list[0].Prompt, `see \@a`) {
		t.Errorf("preview: %+v, %v", list, err)
	}
	got := w.done(spec)
	w.close()
	if first, second := w.sent(0), w.sent(1); first != `see \@a` || second != prompt.GoOn {
		t.Errorf("sent %q, then %q", first, second)
	}
	for i := range w.agent.turns {
		if text := read(t, w.agent.turns[i].Prompt); !strings.HasPrefix(text, "escaped\n") {
			t.Errorf("run %d: %q", i, text)
		}
	}
	if len(w.agent.turns) != 3 {
		t.Errorf("%d turns", len(w.agent.turns))
	}
	if transcript := read(t, w.dir, "sessions", got.SessionID+".jsonl"); !strings.Contains(transcript, `"see @a"`) {
		t.Errorf("transcript: %s", transcript)
	}
}
