package agent

import (
	"strings"
	"testing"

	"stint/coordinator"
	"stint/state"
)

// resume carries out a turn of an older session of the demo agent.
func (b *bench) resume(session, prompt string) coordinator.Outcome {
	b.t.Helper()
	turn := b.turn(prompt)
	turn.Session = session
	return b.demo.Run(b.t.Context(), turn, quiet)
}

// The demo agent counts as codex does: over the session, without failed turns.
func TestDemoUsage(t *testing.T) {
	b := newBench(t)
	first := b.resume("", "one")
	if first.Usage != (state.Usage{}) || first.Thread.InputTokens != 110 || first.Thread.OutputTokens != 21 {
		t.Errorf("first: %+v", first)
	}
	if out := b.resume(first.Session, "demo:fail"); out.Class == "" || out.Thread != (state.Usage{}) {
		t.Errorf("failed: %+v", out)
	}
	if out := b.resume(first.Session, "demo:usage=500/20 demo:empty"); out.Thread != (state.Usage{InputTokens: 610, CachedInputTokens: 40, OutputTokens: 41, ReasoningTokens: 5}) {
		t.Errorf("second: %+v", out)
	}
	if out := b.resume("", "demo:usage=many"); out.Class == "" {
		t.Errorf("bad figures: %+v", out)
	}
}

// A turn that failed leaves its message in the session: sent again it is there
// twice, and with GoOn once.
func TestDemoKeepsFailedTurn(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ again, want string }{
		{"demo:429-first hello", "turn 3; earlier: begin | demo:429-first hello; you said: demo:429-first hello"},
		{coordinator.GoOn, "turn 2; earlier: begin; you said: demo:429-first hello"},
	} {
		session := b.resume("", "begin").Session
		turn := b.turn("demo:429-first hello")
		turn.Session = session
		failed := b.demo.Run(t.Context(), turn, quiet)
		if failed.Class != state.ClassRateLimited || !failed.Kept || failed.Session != session {
			t.Fatalf("%+v", failed)
		}
		if found, kept := b.demo.FindSession(turn.RunDir); found != session || !kept {
			t.Errorf("found %q, kept %v", found, kept)
		}
		again := b.turn(c.again)
		again.TaskID, again.Session = turn.TaskID, session
		if out := b.demo.Run(t.Context(), again, quiet); out.Result != c.want || out.Kept {
			t.Errorf("%+v\nwant %s", out, c.want)
		}
	}
}

func TestDemoNewThread(t *testing.T) {
	b := newBench(t)
	first := b.resume("", "one").Session
	out := b.resume(first, "demo:newthread two")
	if out.Class != "" || out.Session == first || !strings.Contains(out.Note, "was not resumed") || !strings.HasPrefix(out.Result, "turn 1;") {
		t.Errorf("%+v", out)
	}
}

// A turn with a schema has an answer that follows it, and what is quoted tells the
// demo agent nothing.
func TestDemoJudges(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct{ prompt, want string }{
		{"Judge it.\n\n> demo:fail\n> demo:say=no\n", `{"findings":[],"lessons":[]}`},
		{"Judge it. demo:say={\"findings\":[]}\n\n> demo:say=no\n", `{"findings":[]}`},
	} {
		turn := b.turn(c.prompt)
		turn.Schema, turn.ReadOnly = "/runs/r/schema.json", true
		if out := b.demo.Run(t.Context(), turn, quiet); out.Class != "" || out.Result != c.want {
			t.Errorf("%+v\nwant %s", out, c.want)
		}
	}
}
