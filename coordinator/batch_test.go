package coordinator_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// submitAll is SubmitOnce with the world's workspace.
func (w *world) submitAll(specs []task.TaskSpec) ([]state.Task, error) {
	for i := range specs {
		if specs[i].Workspace == "" {
			specs[i].Workspace = w.work
		}
	}
	return w.c.SubmitOnce(w.t.Context(), "", specs)
}

// submitted is what submitAll returns, which must not fail.
func (w *world) submitted(specs ...task.TaskSpec) []state.Task {
	w.t.Helper()
	tasks, err := w.submitAll(specs)
	fatal(w.t, err)
	return tasks
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// TestBatchIsAllOrNothing: of 1,001 tasks of which the last is wrong, none is
// taken in; put right, all are, in one change of the ledger.
func TestBatchIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := idleWorld(t)
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
	w := openWorld(t)
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
	w := openWorld(t)
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
	w := idleWorld(t)
	a, b := newID(), newID()
	tests := []struct {
		specs []task.TaskSpec
		want  string
	}{
		{nil, "the list has no task"},
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
	w.open()
	first := w.submitted(specs...)
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
	w.cfg.DefaultAgent, w.cfg.Fallback = func([]string) string { return "claude" }, nil
	w.open()
	if again, err := w.try(spec); err != nil || again.ID != first.ID {
		t.Errorf("again: %v", err)
	}
	spec.Agent = "claude"
	if _, err := w.try(spec); code(err) != task.CodeConflict {
		t.Errorf("with another agent: %v", err)
	}
}

// TestErrorsNameTheField: as JSON names it, in a list after the place of the task.
func TestErrorsNameTheField(t *testing.T) {
	w := idleWorld(t)
	w.submit(task.TaskSpec{Prompt: "p", IdempotencyKey: "known"})
	tests := []struct {
		spec  task.TaskSpec
		field string
	}{
		{task.TaskSpec{}, "prompt"},
		{task.TaskSpec{ID: "x"}, "id"},
		{task.TaskSpec{Workspace: "here"}, "workspace"},
		{task.TaskSpec{Workspace: "/"}, "workspace"},
		{task.TaskSpec{Agent: "nobody"}, "agent"},
		{task.TaskSpec{Account: "nobody"}, "account"},
		{task.TaskSpec{SessionKey: "dir:/"}, "sessionKey"},
		{task.TaskSpec{SessionKey: "a b"}, "sessionKey"},
		{task.TaskSpec{Resume: "perhaps"}, "resume"},
		{task.TaskSpec{Parallel: true, Continue: true}, "parallel"},
		{task.TaskSpec{Continue: true, Workspace: t.TempDir()}, "continue"},
		{task.TaskSpec{AgentSession: "a b"}, "agentSession"},
		{task.TaskSpec{Timeout: "soon"}, "timeout"},
		{task.TaskSpec{Priority: 10}, "priority"},
		{task.TaskSpec{MaxAttempts: -1}, "maxAttempts"},
		{task.TaskSpec{MaxAttempts: 1 << 31}, "maxAttempts"},
		{task.TaskSpec{Model: "a b"}, "model"},
		{task.TaskSpec{AfterPolicy: "both"}, "afterPolicy"},
		{task.TaskSpec{After: []string{"nobody"}}, "after"},
		{task.TaskSpec{IdempotencyKey: "a\nb"}, "idempotencyKey"},
		{task.TaskSpec{IdempotencyKey: "known", Label: "x"}, "idempotencyKey"},
		{task.TaskSpec{Label: "a\nb"}, "label"},
		{task.TaskSpec{TenantID: "a\nb"}, "tenantId"},
		{task.TaskSpec{Queue: "a\nb"}, "queue"},
		{task.TaskSpec{VerifyCommand: " "}, "verifyCommand"},
		{task.TaskSpec{VerifyTimeout: "soon"}, "verifyTimeout"},
		{task.TaskSpec{MaxIterations: -1}, "maxIterations"},
		{task.TaskSpec{OnFailure: "{{.Colour}}"}, "onFailure"},
		{task.TaskSpec{OnIssue: "{{"}, "onIssue"},
		{task.TaskSpec{Fallback: []string{"nobody"}}, "fallback"},
		{task.TaskSpec{NotBefore: time.Now().Add(-time.Hour)}, "notBefore"},
		{task.TaskSpec{NotBefore: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "notBefore"},
		{task.TaskSpec{InputFiles: []state.InputFile{{Name: "a"}, {Name: "../b"}}}, "inputFiles.1.name"},
		{task.TaskSpec{InputFiles: []state.InputFile{{Name: "a"}, {Name: "b", Content: "\xff"}}}, "inputFiles.1.content"},
		{task.TaskSpec{OutputSpec: []string{"a", "/b"}}, "outputSpec.1"},
	}
	for _, tt := range tests {
		if tt.field != "prompt" {
			tt.spec.Prompt = "p"
		}
		_, err := w.try(tt.spec)
		if got := fieldOf(err); got != tt.field {
			t.Errorf("%+v: field %q, want %q: %v", tt.spec, got, tt.field, err)
		}
		_, err = w.submitAll([]task.TaskSpec{{Prompt: "p"}, tt.spec})
		_, alone := w.submitAll([]task.TaskSpec{tt.spec})
		if fieldOf(err) != "1."+tt.field || fieldOf(alone) != "0."+tt.field {
			t.Errorf("in a list: %+v: field %q and %q: %v", tt.spec, fieldOf(err), fieldOf(alone), err)
		}
	}
}

func fieldOf(err error) string {
	var e *task.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Field
}

// TestWorkspaceRoot: a client that does not call from a directory need not name one.
func TestWorkspaceRoot(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers, w.cfg.WorkspaceRoot = 0, ""
	w.open()
	if _, err := w.c.Submit(t.Context(), task.TaskSpec{Prompt: "p"}); fieldOf(err) != "workspace" || !strings.Contains(err.Error(), "workspace_root") {
		t.Errorf("%v", err)
	}
	w.close()
	w.cfg.WorkspaceRoot = w.work
	w.open()
	if got, err := w.c.Submit(t.Context(), task.TaskSpec{Prompt: "p"}); err != nil || got.Workspace != w.work || got.SessionKey != "dir:"+w.work {
		t.Errorf("%+v %v", got, err)
	}
}

// TestWorkspaceIsADirectory: no task is taken in whose agent would have nowhere to work,
// and each is recorded with the path that has no links.
func TestWorkspaceIsADirectory(t *testing.T) {
	w := idleWorld(t)
	root, err := filepath.EvalSymlinks(t.TempDir())
	in := func(name string) string { return filepath.Join(root, name) }
	err = errors.Join(err, os.Mkdir(in("dir"), 0o700), os.WriteFile(in("file"), nil, 0o600),
		os.Symlink("dir", in("link")), os.Symlink(in("file"), in("wrong")), os.Symlink("nowhere", in("broken")))
	fatal(t, err)
	for name, want := range map[string]string{
		"dir": "", "dir/": "", "link": "", "link/../dir/.": "",
		"file": "cannot be used: not a directory", "wrong": "cannot be used: not a directory", "file/x": "cannot be used: not a directory",
		"missing": "cannot be used: no such file or directory", "broken": "cannot be used: no such file or directory",
	} {
		task, err := w.try(task.TaskSpec{Prompt: "p", Workspace: root + "/" + name})
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", name, err, want)
		case want == "" && (err != nil || task.Workspace != in("dir")):
			t.Errorf("%s: %v, in %q", name, err, task.Workspace)
		}
	}
}
