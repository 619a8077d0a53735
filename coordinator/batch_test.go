package coordinator_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// submitAll is SubmitAll with the world's workspace.
func (w *world) submitAll(specs []task.TaskSpec) ([]state.Task, error) {
	for i := range specs {
		if specs[i].Workspace == "" {
			specs[i].Workspace = w.work
		}
	}
	return w.c.SubmitAll(w.t.Context(), specs)
}

// submitted is what submitAll returns, which must not fail.
func (w *world) submitted(specs ...task.TaskSpec) []state.Task {
	w.t.Helper()
	tasks, err := w.submitAll(specs)
	if err != nil {
		w.t.Fatal(err)
	}
	return tasks
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// TestBatchIsAllOrNothing: of 1,001 tasks of which the last is wrong, none is
// taken in; put right, all are, in one change of the ledger.
func TestBatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	const n = 1001
	specs := make([]task.TaskSpec, n)
	for i := range specs {
		specs[i] = task.TaskSpec{Prompt: fmt.Sprint("task ", i), Parallel: true}
	}
	specs[n-1].Model = "two words"
	_, err := w.submitAll(specs)
	if want := `task 1001 of 1001: "two words" cannot be the name of a model`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	specs[n-1].Model, specs[n-1].After = "", []string{"nobody"} // seen when the others are on their way
	if _, err = w.submitAll(specs); err == nil || !strings.HasPrefix(err.Error(), `task 1001 of 1001: there is no task "nobody"`) {
		t.Errorf("got %v", err)
	}
	if got := len(w.c.List(state.Filter{})); got != 0 {
		t.Fatalf("%d tasks were taken in", got)
	}
	specs[n-1].After = nil
	tasks := w.submitted(specs...)
	if len(tasks) != n || tasks[n-1].Prompt != "task 1000" || len(w.c.List(state.Filter{})) != n {
		t.Fatalf("%d tasks", len(tasks))
	}
	w.close()
	journal := read(t, w.dir, ledger.JournalName) // of which a crash leaves the first half
	writeRested(t, filepath.Join(w.dir, ledger.JournalName), journal[:len(journal)/2])
	writeRested(t, filepath.Join(w.dir, ledger.TasksName), "")
	w.open()
	if got := len(w.c.List(state.Filter{})); got != 0 {
		t.Errorf("of a batch that was cut off %d tasks are there", got)
	}
}

// TestSubmitGivesWholeTask: what a submit answers, which is not read back from the
// ledger, is what the ledger has; for a spec that is asked for again, too.
func TestSubmitGivesWholeTask(t *testing.T) {
	w := newWorld(t)
	w.open()
	spec := task.TaskSpec{
		ID: newID(), Prompt: "\n Fix it.\nKeep it small. \n", Hold: true, Label: "l", IdempotencyKey: "k", Priority: 7, Timeout: "3m",
		VerifyCommand: "true", OnFailure: "Look at it.", OnIssue: "Look again.", OutputSpec: []string{"out"},
		InputFiles: []state.InputFile{{Name: "a", Content: "b\n"}},
	}
	again := spec
	again.ID = newID()
	tasks := w.submitted(spec, task.TaskSpec{Prompt: "another", Hold: true})
	known := w.submitted(again, task.TaskSpec{Prompt: "one more", Hold: true})
	for _, got := range append(tasks, known...) {
		if want := w.task(got.ID); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, and there is %+v", got, want)
		}
	}
	if known[0].ID != spec.ID || known[1].Prompt != "one more" {
		t.Errorf("asked for again: %+v", known)
	}
}

// TestBatchKnowsItsOwn: tasks of a batch may come after each other, in any order,
// and share a new session as if they had come one by one.
func TestBatchKnowsItsOwn(t *testing.T) {
	w := newWorld(t)
	w.open()
	a, b := newID(), newID()
	tasks := w.submitted(
		task.TaskSpec{ID: a, Prompt: "a", After: []string{b}, SessionKey: "one"},
		task.TaskSpec{ID: b, Prompt: "b", SessionKey: "two"},
		task.TaskSpec{Prompt: "c", SessionKey: "two"},
		task.TaskSpec{Prompt: "d", After: []string{a, b}},
		task.TaskSpec{Prompt: "e", Continue: true},
	)
	if tasks[1].SessionID != tasks[2].SessionID || tasks[0].SessionID == tasks[1].SessionID || tasks[3].SessionID != tasks[4].SessionID {
		t.Errorf("sessions: %+v", tasks)
	}
	for _, task := range tasks {
		w.expect(w.wait(task.ID), state.Done, "")
	}
	at := func(id string) int {
		return slices.IndexFunc(w.agent.turns, func(turn task.Turn) bool { return turn.TaskID == id })
	}
	if at(a) < at(b) || at(tasks[3].ID) < at(a) || at(tasks[4].ID) < at(tasks[3].ID) {
		t.Errorf("a %s, b %s: the order was %v", a, b, w.agent.turns)
	}
}

// TestBatchContinuesBesideParallel: a parallel task of a batch is in no lane, so its
// agent is not that of the task which continues the directory's last session.
func TestBatchContinuesBesideParallel(t *testing.T) {
	w := newWorld(t)
	w.cfg.Agents["codex"] = w.agent
	w.open()
	last := w.done(task.TaskSpec{Prompt: "a", Agent: "demo"})
	tasks := w.submitted(task.TaskSpec{Prompt: "b", Agent: "codex", Parallel: true}, task.TaskSpec{Prompt: "c", Continue: true})
	if tasks[1].Agent != "demo" || tasks[1].SessionID != last.SessionID {
		t.Errorf("it goes on with %s in %s", tasks[1].Agent, tasks[1].SessionID)
	}
}

func TestBatchRefuses(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	a, b := newID(), newID()
	tests := []struct {
		specs []task.TaskSpec
		want  string
	}{
		{nil, "there is no task to take in"},
		{make([]task.TaskSpec, task.MaxBatch+1), "more than 100000 tasks are too many at once"},
		{[]task.TaskSpec{{Prompt: "a", ID: a}, {Prompt: "b", ID: a}}, "task 2 of 2: the id " + a + " is that of task 1 as well"},
		{[]task.TaskSpec{{Prompt: "a", IdempotencyKey: "k"}, {Prompt: "a", IdempotencyKey: "k"}}, `task 2 of 2: the idempotency key "k" is that of task 1 as well`},
		{
			[]task.TaskSpec{{Prompt: "a", ID: a, After: []string{b}, SessionKey: "s"}, {Prompt: "b", ID: b, SessionKey: "s"}},
			"task 1 of 2: it would wait for itself: " + a + " comes after " + b + ", " + b + " is behind " + a + " in session s",
		},
		{
			[]task.TaskSpec{{Prompt: "x"}, {Prompt: "a", ID: a, After: []string{b}, Parallel: true}, {Prompt: "b", ID: b, After: []string{a}, Parallel: true}},
			"task 2 of 3: it would wait for itself: " + a + " comes after " + b + ", " + b + " comes after " + a,
		},
		{
			[]task.TaskSpec{{Prompt: "a", ID: a, After: []string{b}}, {Prompt: "b", ID: b, Continue: true}},
			"task 1 of 2: it would wait for itself: " + a + " comes after " + b + ", " + b + " is behind " + a + " in the lane of",
		},
		{[]task.TaskSpec{{Prompt: "a", ID: a, After: []string{a}}}, "the task cannot come after itself"},
		{[]task.TaskSpec{{Prompt: "a"}, {Prompt: " "}}, "task 2 of 2: the prompt is empty"},
	}
	for _, tt := range tests {
		if _, err := w.submitAll(tt.specs); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	if got := len(w.c.List(state.Filter{})); got != 0 {
		t.Errorf("%d tasks were taken in", got)
	}
}

// TestBatchAgain: a batch that is sent again gives the tasks that are there.
func TestBatchAgain(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	specs := []task.TaskSpec{{Prompt: "a", IdempotencyKey: "ka", Workspace: w.work}, {Prompt: "b", ID: newID(), Workspace: w.work}}
	specs = append(specs, task.TaskSpec{Prompt: "c", After: []string{specs[1].ID}, IdempotencyKey: "kc", Workspace: w.work})
	first, err := statedir.SubmitAllOffline(t.Context(), w.cfg, specs)
	if err != nil {
		t.Fatal(err)
	}
	w.open()
	var journal [2]bytes.Buffer
	check(t, w.c.Dump(&journal[0]))
	again := w.submitted(specs...)
	for i := range first {
		if first[i].ID != again[i].ID {
			t.Errorf("task %d was %s and is %s", i, first[i].ID, again[i].ID)
		}
	}
	if err := w.c.Dump(&journal[1]); err != nil || journal[0].String() != journal[1].String() {
		t.Errorf("something has changed: %v", err)
	}
	if _, err := statedir.SubmitAllOffline(t.Context(), w.cfg, specs); code(err) != task.CodeBusy {
		t.Errorf("beside a master: %v", err)
	}
}

// TestAgainWithAnotherConfiguration: what a spec left to the configuration may be
// another one when it is sent again.
func TestAgainWithAnotherConfiguration(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["claude"] = w.agent
	w.cfg.Fallback = []string{"claude"}
	spec := task.TaskSpec{Prompt: "a", IdempotencyKey: "k", Parallel: true}
	w.open()
	first := w.submit(spec)
	w.close()
	w.cfg.DefaultAgent, w.cfg.Fallback = func() string { return "claude" }, nil
	w.open()
	if again, err := w.try(spec); err != nil || again.ID != first.ID {
		t.Errorf("again: %v", err)
	}
	spec.Agent = "claude"
	if _, err := w.try(spec); code(err) != task.CodeConflict {
		t.Errorf("with another agent: %v", err)
	}
}
