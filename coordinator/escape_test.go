package coordinator_test

import (
	"context"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/prompt"
	"stint/state"
)

// escaper is a fakeAgent whose CLI would expand every @.
type escaper struct{ *fakeAgent }

func (escaper) EscapePrompt(text string) string {
	return "escaped\n" + strings.ReplaceAll(text, "@", `\@`)
}

// TestPromptIsEscaped: prompt.md and the preview hold what is sent, for an evaluator too;
// the transcript has the user's own words; and a prompt that the session has already is
// known again.
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
