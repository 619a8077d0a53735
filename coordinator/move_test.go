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

// queued submits one task of a session for each letter, and gives their ids by it.
func (w *world) queued(session, letters string) map[string]string {
	w.t.Helper()
	ids := map[string]string{}
	for _, l := range strings.Fields(letters) {
		ids[l] = w.submit(task.TaskSpec{Prompt: l, SessionKey: session}).ID
	}
	return ids
}

// titles returns the queue of a lane as the first lines of its prompts.
func (w *world) titles(key string) string {
	var list []string
	for _, t := range w.c.Queue(key) {
		list = append(list, t.Title)
	}
	return strings.Join(list, " ")
}

func (w *world) move(id string, to task.Place) {
	w.t.Helper()
	if _, err := w.c.Move(context.Background(), id, to, "client"); err != nil {
		w.t.Fatal(err)
	}
}

// TestMove: a queue is ordered anew, over a restart, and run in that order.
func TestMove(t *testing.T) {
	w := newWorld(t)
	w.open()
	if err := w.c.Pause(t.Context(), "so that they wait", "client"); err != nil {
		t.Fatal(err)
	}
	ids := w.queued("web", "a b c d e")
	steps := []struct {
		task   string
		before string // "": first
		want   string
	}{
		{"c", "", "c a b d e"},
		{"e", "", "e c a b d"},
		{"e", "", "e c a b d"},
		{"d", "b", "e c a d b"},
		{"a", "e", "a e c d b"},
		{"b", "c", "a e b c d"},
		{"a", "d", "e b c a d"},
		{"b", "c", "e b c a d"},
	}
	for _, s := range steps {
		w.move(ids[s.task], task.Place{First: s.before == "", Before: ids[s.before]})
		if got := w.titles("web"); got != s.want {
			t.Fatalf("after %s before %q the queue is %s, want %s", s.task, s.before, got, s.want)
		}
	}
	w.close()
	w.open()
	if got := w.titles("web"); got != "e b c a d" {
		t.Errorf("after a restart the queue is %s", got)
	}
	if err := w.c.Resume(t.Context(), "client"); err != nil {
		t.Fatal(err)
	}
	w.wait(ids["d"])
	var ran []string
	for _, turn := range w.agent.turns {
		i := slices.IndexFunc([]string{"a", "b", "c", "d", "e"}, func(l string) bool { return ids[l] == turn.TaskID })
		ran = append(ran, string(rune('a'+i)))
	}
	if got := strings.Join(ran, " "); got != "e b c a d" {
		t.Errorf("they ran in the order %s", got)
	}
	w.close()
}

// TestMoveAnywhere moves random tasks of a queue, some of which a person has given
// orders at the ends of what there is, and compares with a plain list.
func TestMoveAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	defer w.close()
	var ids []string
	for i := range 8 {
		ids = append(ids, w.submit(task.TaskSpec{Prompt: fmt.Sprint(i), SessionKey: "web"}).ID)
	}
	for _, order := range []int64{math.MinInt64, math.MaxInt64, 1} {
		w.takeOver("## Task %s\n- order: %d\n", ids[5], order)
		ids = nil
		for _, t := range w.c.Queue("web") {
			ids = append(ids, t.ID)
		}
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
			w.move(id, place)
			var got []string
			for _, t := range w.c.Queue("web") {
				got = append(got, t.ID)
			}
			if !slices.Equal(got, ids) {
				t.Fatalf("moved %s to %+v: the queue is\n%v, want\n%v", id, place, got, ids)
			}
		}
	}
}

// takeOver appends something to tasks.md, as a person would, and has it taken over.
func (w *world) takeOver(format string, args ...any) task.TakeOver {
	w.t.Helper()
	w.edit("\n"+format, args...)
	r, err := w.c.Reconcile(context.Background(), false)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestMoveRefuses(t *testing.T) {
	w := newWorld(t)
	w.open()
	defer w.close()
	release := make(chan struct{})
	w.agent.do = func(ctx context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return task.Outcome{Result: "fine"}
	}
	ids := w.queued("web", "a b c")
	other := w.submit(task.TaskSpec{Prompt: "o", SessionKey: "other", After: []string{ids["b"]}})
	after := w.submit(task.TaskSpec{Prompt: "x", SessionKey: "web", After: []string{other.ID}})
	w.until(ids["a"], func(t *state.Task) bool { return t.Status == state.Running })
	tests := []struct {
		task string
		to   task.Place
		code task.Code
		want string
	}{
		{ids["b"], task.Place{}, task.CodeInvalid, "it is not clear where the task is to go"},
		{ids["b"], task.Place{First: true, Before: ids["c"]}, task.CodeInvalid, "it is not clear"},
		{ids["b"], task.Place{Before: ids["b"]}, task.CodeInvalid, "cannot come before itself"},
		{ids["b"], task.Place{Before: "nobody"}, task.CodeNotFound, `there is no task "nobody"`},
		{"nobody", task.Place{First: true}, task.CodeNotFound, `there is no task "nobody"`},
		{ids["b"], task.Place{Before: ids["a"]}, task.CodeConflict, "is running; only queued tasks have a place in a queue"},
		{ids["a"], task.Place{First: true}, task.CodeConflict, "is running"},
		{ids["b"], task.Place{Before: other.ID}, task.CodeConflict, "waits in web, and task " + other.ID + " in other"},
		{
			after.ID,
			task.Place{Before: ids["b"]},
			task.CodeConflict,
			after.ID + " comes after " + other.ID + ", " + other.ID + " comes after " + ids["b"] + ", " + ids["b"] + " is behind " + after.ID + " in session web",
		},
	}
	for _, tt := range tests {
		_, err := w.c.Move(t.Context(), tt.task, tt.to, "client")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, &task.Error{Code: tt.code}) {
			t.Errorf("%+v: got %v, want %s", tt.to, err, tt.want)
		}
	}
	w.move(after.ID, task.Place{Before: ids["c"]})
	if got := w.titles("web"); got != "b x c" {
		t.Errorf("the queue is %s", got)
	}
	if a, err := w.c.Task(t.Context(), ids["a"]); err != nil || a.Order == 0 { // it keeps its place before b
		t.Errorf("the order of the running task is %d, %v", a.Order, err)
	}
	close(release)
	w.expect(w.wait(after.ID), state.Done, "")
}

// TestRetryMakesNoCycle: a task is not queued again behind one that comes after it.
func TestRetryMakesNoCycle(t *testing.T) {
	w := newWorld(t)
	w.open()
	defer w.close()
	first := w.wait(w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web"}).ID).ID
	if err := w.c.Pause(t.Context(), "", "client"); err != nil {
		t.Fatal(err)
	}
	w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web"})
	later := w.submit(task.TaskSpec{Prompt: "p", SessionKey: "web", After: []string{first}}).ID
	w.move(later, task.Place{First: true})
	_, err := w.c.Retry(t.Context(), first, "client")
	if !errors.Is(err, &task.Error{Code: task.CodeConflict}) || !strings.Contains(err.Error(), "behind "+later+" in session web") {
		t.Errorf("retry: %v", err)
	}
}

// TestHoldAndPause: held tasks are passed over, a pause stops all, and both last
// over a restart.
func TestHoldAndPause(t *testing.T) {
	w := newWorld(t)
	w.open()
	if err := errors.Join(w.c.Pause(t.Context(), "lunch", "client"), w.c.Pause(t.Context(), "lunch", "client")); err != nil {
		t.Fatal(err)
	}
	ids := w.queued("web", "a b")
	for range 2 { // the second time nothing changes
		if held, err := w.c.Hold(t.Context(), ids["a"], "client"); err != nil || !held.Hold {
			t.Fatal(held, err)
		}
	}
	w.close()
	w.open()
	if why, err := w.c.Why(ids["b"]); err != nil || !strings.HasPrefix(why, "dispatch is paused: lunch") || !w.c.Health().Paused {
		t.Errorf("%s, %v", why, err)
	}
	if err := w.c.Resume(t.Context(), "client"); err != nil {
		t.Fatal(err)
	}
	w.expect(w.wait(ids["b"]), state.Done, "")
	if why, _ := w.c.Why(ids["a"]); why != "held" || len(w.agent.turns) != 1 {
		t.Errorf("%s, %d runs", why, len(w.agent.turns))
	}
	if a, err := w.c.Release(t.Context(), ids["a"], "client"); err != nil || a.Hold {
		t.Error(a, err)
	}
	w.expect(w.wait(ids["a"]), state.Done, "")
	for what, f := range map[string]func(context.Context, string, string) (state.Task, error){"hold": w.c.Hold, "release": w.c.Release} {
		if _, err := f(t.Context(), ids["a"], "client"); !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
			t.Errorf("%s of an ended task: %v", what, err)
		}
	}
	w.close()
}
