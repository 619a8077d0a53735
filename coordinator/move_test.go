package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/state"
)

// TestMoveAnywhere moves random tasks of a queue, some of which a person has given
// orders at the ends of what there is, and compares with a plain list.
func TestMoveAnywhere(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
	for i := range 8 {
		w.submit(task.TaskSpec{Prompt: fmt.Sprint(i), SessionKey: "web"})
	}
	ids := idsOf(w.c.Queue("web"))
	for _, order := range []int64{math.MinInt64, math.MaxInt64, 1} {
		w.reconcile("## Task %s\n- order: %d\n", ids[5], order)
		ids = idsOf(w.c.Queue("web"))
		for range 60 {
			from := rand.IntN(len(ids))
			id := ids[from]
			ids = slices.Delete(ids, from, from+1)
			to := rand.IntN(len(ids))
			place := task.Place{Before: ids[to]}
			if to == 0 && rand.IntN(2) == 0 {
				place = task.Place{First: true}
			}
			ids = slices.Insert(ids, to, id)
			_, err := w.c.Move(t.Context(), id, place, "client")
			if got := idsOf(w.c.Queue("web")); err != nil || !slices.Equal(got, ids) {
				t.Fatalf("moved %s to %+v: %v; the queue is\n%v, want\n%v", id, place, err, got, ids)
			}
		}
	}
}

// reconcile appends something to tasks.md, as a person would, and has it taken over.
func (w *world) reconcile(format string, args ...any) task.Reconciled {
	w.t.Helper()
	w.edit("\n"+format, args...)
	r, err := w.c.Reconcile(context.Background(), false)
	check(w.t, err)
	return r
}

// TestMoveRefuses what is not clear, or would make a cycle. A running task keeps its place.
func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hangs()
	w.open()
	a := w.submit(task.TaskSpec{Prompt: "a", SessionKey: "web"}).ID
	b := w.submit(task.TaskSpec{Prompt: "b", SessionKey: "web"}).ID
	c := w.submit(task.TaskSpec{Prompt: "c", SessionKey: "web"}).ID
	other := w.submit(task.TaskSpec{Prompt: "o", SessionKey: "other", After: []string{b}}).ID
	after := w.submit(task.TaskSpec{Prompt: "x", SessionKey: "web", After: []string{other}}).ID
	w.until(a, func(t *state.Task) bool { return t.Status == state.Running })
	for _, tt := range []struct {
		task string
		to   task.Place
		code task.Code
		want string
	}{
		{b, task.Place{}, task.CodeInvalid, "it is not clear where the task is to go"},
		{b, task.Place{First: true, Before: c}, task.CodeInvalid, "it is not clear"},
		{b, task.Place{Before: b}, task.CodeInvalid, "cannot come before itself"},
		{b, task.Place{Before: "nobody"}, task.CodeNotFound, `there is no task "nobody"`},
		{"nobody", task.Place{First: true}, task.CodeNotFound, `there is no task "nobody"`},
		{b, task.Place{Before: a}, task.CodeConflict, "is running; only queued tasks have a place in a queue"},
		{a, task.Place{First: true}, task.CodeConflict, "is running"},
		{b, task.Place{Before: other}, task.CodeConflict, "waits in web, and task " + other + " in other"},
		{
			after,
			task.Place{Before: b},
			task.CodeConflict,
			after + " comes after " + other + ", " + other + " comes after " + b + ", " + b + " is behind " + after + " in session web",
		},
	} {
		_, err := w.c.Move(t.Context(), tt.task, tt.to, "client")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, &task.Error{Code: tt.code}) {
			t.Errorf("%+v: got %v, want %s", tt.to, err, tt.want)
		}
	}
	if _, err := w.c.Move(t.Context(), after, task.Place{Before: c}, "client"); err != nil || w.task(a).Order == 0 {
		t.Errorf("the order of the running task is %d, %v", w.task(a).Order, err)
	}
}

// TestRetryMakesNoCycle: a task is not queued again behind one that comes after it.
func TestRetryMakesNoCycle(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	first := w.wait(w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web"}).ID).ID
	check(t, w.c.Pause(t.Context(), "", "client"))
	w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web"})
	later := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", After: []string{first}}).ID
	if _, err := w.c.Move(t.Context(), later, task.Place{First: true}, "client"); err != nil {
		t.Fatal(err)
	}
	_, err := w.c.Retry(t.Context(), first, "client")
	if !errors.Is(err, &task.Error{Code: task.CodeConflict}) || !strings.Contains(err.Error(), "behind "+later+" in session web") {
		t.Errorf("retry: %v", err)
	}
}

// hangs makes the agent work until it is ended.
func (w *world) hangs() {
	w.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
		<-ctx.Done()
		return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
	}
}
