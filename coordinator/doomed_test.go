package coordinator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/state"
)

// failing answers well, but for prompts that say fail.
func failing(w *world) func(context.Context, task.Turn, func(task.Event)) task.Outcome {
	return func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		if t, err := w.c.Task(context.Background(), turn.TaskID); err != nil || strings.HasPrefix(t.Prompt, "fail") {
			return task.Outcome{Class: state.ClassVerify, Error: "it took\ntoo long", ExitCode: 1}
		}
		return task.Outcome{Result: "fine"}
	}
}

// TestDependantsFailWithTheReason: what comes after a failed task fails too, and
// what comes after that, unless it is content with any end.
func TestDependantsFailWithTheReason(t *testing.T) {
	w := newWorld(t)
	w.agent.do = failing(w)
	w.open()
	a := w.submit(task.TaskSpec{Prompt: "fail", Hold: true, Parallel: true}).ID
	add := func(spec task.TaskSpec, after ...string) string {
		spec.Prompt, spec.After, spec.Parallel = "p", after, true
		return w.submit(spec).ID
	}
	b := add(task.TaskSpec{}, a)
	c := add(task.TaskSpec{}, b)
	whatever := add(task.TaskSpec{AfterPolicy: "any"}, a, b)
	good := add(task.TaskSpec{AfterPolicy: "done"}, whatever)
	w.release(a)
	for id, want := range map[string]string{
		b: "it comes after " + a + ", which ended failed (verify): it took too long",
		c: "it comes after " + b + ", which ended failed (verify): it comes after " + a + ", which ended failed (verify): it took too long",
	} {
		got := w.wait(id)
		w.expect(got, state.Failed, state.ClassVerify)
		if got.Error != want || got.Attempt != 0 {
			t.Errorf("%s\nwant %s, with %d attempts", got.Error, want, got.Attempt)
		}
	}
	w.expect(w.wait(whatever), state.Done, "")
	w.expect(w.wait(good), state.Done, "")
	late := w.wait(add(task.TaskSpec{}, a)) // after one that has failed already
	w.expect(late, state.Failed, state.ClassVerify)

	conflict := &task.Error{Code: task.CodeConflict}
	if _, err := w.c.Retry(t.Context(), b, "client"); !errors.Is(err, conflict) || !strings.Contains(err.Error(), "comes after "+a+", which is failed; first: stint retry "+a) {
		t.Errorf("a retry that cannot succeed: %v", err)
	}
}

// TestDependantsOfACanceledTask, of one that a person ends by hand, and of one in
// the archive, fail as well; and over a restart.
func TestDependantsOfACanceledTask(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	a, b := w.submit(task.TaskSpec{Prompt: "p"}).ID, w.submit(task.TaskSpec{Prompt: "p"}).ID
	afterA := w.submit(task.TaskSpec{Prompt: "p", After: []string{a}})
	afterB := w.submit(task.TaskSpec{Prompt: "p", After: []string{b}})
	w.cancel(a)
	got := w.wait(afterA.ID)
	w.expect(got, state.Failed, state.ClassCanceled)
	if want := "it comes after " + a + ", which ended canceled"; got.Error != want {
		t.Errorf("%s, want %s", got.Error, want)
	}
	w.takeOver("## Task %s\n- status: failed\n- error: no more\n", b)
	got = w.wait(afterB.ID)
	w.expect(got, state.Failed, state.ClassExit)
	if want := "it comes after " + b + ", which ended failed: no more"; got.Error != want {
		t.Errorf("%s, want %s", got.Error, want)
	}
	if _, err := w.c.Compact(t.Context(), 0, false); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	late := w.submit(task.TaskSpec{Prompt: "p", After: []string{b}})
	w.expect(w.wait(late.ID), state.Failed, state.ClassExit)
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
