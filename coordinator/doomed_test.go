package coordinator_test

import (
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/state"
)

// TestDependantsFailWithTheReason: what comes after a task that failed, was canceled, or was
// ended by a person in tasks.md, fails too, and what comes after that; also over a restart.
func TestDependantsFailWithTheReason(t *testing.T) {
	w := newWorld(t)
	w.outcomes(task.Outcome{Class: state.ClassVerify, Error: "it took\ntoo long", ExitCode: 1})
	w.open()
	add := func(after ...string) string {
		return w.submit(task.TaskSpec{Prompt: "p", After: after, Parallel: true, Hold: len(after) == 0}).ID
	}
	a, canceled, byHand := add(), add(), add()
	b := add(a)
	w.release(a)
	w.cancel(canceled)
	w.takeOver("## Task %s\n- status: failed\n- error: no more\n", byHand)
	for id, want := range map[string]string{
		b:             "it comes after " + a + ", which ended failed (verify): it took too long",
		add(b):        "it comes after " + b + ", which ended failed (verify): it comes after " + a + ", which ended failed (verify): it took too long",
		add(canceled): "it comes after " + canceled + ", which ended canceled",
		add(byHand):   "it comes after " + byHand + ", which ended failed: no more",
	} {
		if got := w.wait(id); got.Status != state.Failed || got.Error != want || got.Attempt != 0 {
			t.Errorf("%s: %s\nwant %s, with %d attempts", got.Status, got.Error, want, got.Attempt)
		}
	}
	if _, err := w.c.Retry(t.Context(), b, "client"); code(err) != task.CodeConflict || !strings.Contains(err.Error(), "comes after "+a+", which is failed; first: stint retry "+a) {
		t.Errorf("a retry that cannot succeed: %v", err)
	}
	w.moveOut()
	w.close()
	w.open()
	w.expect(w.wait(add(byHand)), state.Failed, state.ClassExit)
}

// TestHandEditsMakeNoCycle: the finding names the cycle, whether it is made by one
// section or by two of the same save.
func TestHandEditsMakeNoCycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	a := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web"}).ID
	b := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", After: []string{a}}).ID
	r := w.takeOver("## Task %s\n- after: %s\n", a, b)
	want := "it would wait for itself: " + a + " comes after " + b + ", " + b + " comes after " + a
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Message, want) || r.Findings[0].Line == 0 {
		t.Errorf("%v, want %s", r.Findings, want)
	}
	for _, also := range []string{"## Task x\n- status: queued\n- prompt: p\n- after: y\n\n## Task y\n- status: queued\n- prompt: p\n- after: x\n", ""} {
		r = w.takeOver("%s", also) // it is told as long as it stands there
		if n := len(r.Findings); n != 2 || !strings.Contains(r.Findings[1].Message, "it would wait for itself: y comes after x, x comes after y") {
			t.Errorf("the findings are %v", r.Findings)
		}
	}
	if list := w.c.Health().Findings; len(list) != 2 {
		t.Errorf("a refused section is in the journal: %q", list)
	}
}
