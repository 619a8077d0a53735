package shared

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
	"stint/state"
)

// newOpener returns an opener of the database of q.
func newOpener(t testing.TB, q *Queue) *Opener {
	o := NewOpener(func() (string, error) { return q.pool.Config().ConnString(), nil }, 3)
	t.Cleanup(o.Close)
	return o
}

// TestClientsOfAMaster: specs become tasks as a ledger has them, all or none, and come back by what they are filtered by.
func TestClientsOfAMaster(t *testing.T) {
	q := newQueue(t, "codex-main codex 4")
	o := newOpener(t, q)
	one, err := o.Submit(t.Context(), task.TaskSpec{Shared: true, Prompt: "one\nmore", Agent: "codex", SessionKey: "web", Label: "l", TenantID: "ana", IdempotencyKey: "k"})
	if err != nil || one.Status != state.Queued || one.Title != "one" || one.Prompt != "" || one.CreatedAt.IsZero() {
		t.Fatalf("%+v, %v", one, err)
	}
	for range 2 { // the second time they are there
		list, err := o.SubmitOnce(t.Context(), "list", []task.TaskSpec{{Shared: true, Prompt: "two"}, {Shared: true, Prompt: "three", IdempotencyKey: "own"}})
		if err != nil || len(list) != 2 || list[0].IdempotencyKey.Given() != "list" || list[1].IdempotencyKey != "own" {
			t.Fatalf("%+v, %v", list, err)
		}
	}
	for field, wrong := range map[string]task.TaskSpec{
		"prompt": {Shared: true}, "priority": {Shared: true, Prompt: "p", Priority: 77}, "shared": {Prompt: "p"}, "workspace": {Shared: true, Prompt: "p", Workspace: "/x"},
		"inputFiles.0.name": {Shared: true, Prompt: "p", InputFiles: []state.InputFile{{Name: "../x"}}}, "id": {Shared: true, Prompt: "p", ID: "x"},
	} {
		_, err := o.SubmitOnce(t.Context(), "", []task.TaskSpec{{Shared: true, Prompt: "fine"}, wrong})
		var bad *task.Error
		if !errors.As(err, &bad) || bad.Field != "1."+field || bad.Code != task.CodeInvalid || !strings.HasPrefix(bad.Message, "task 2 of 2: ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	q.lease(t, holder("build-1"), "codex-main", 1)
	q.exec(t, "UPDATE tasks SET status = 'deadletter', worker_host = NULL WHERE prompt = 'two'")
	for _, f := range []struct {
		state.Filter
		want string
	}{
		{state.Filter{}, "three two one"},
		{state.Filter{Limit: 2}, "three two"},
		{state.Filter{Status: []state.Status{state.Queued}}, "three one"},
		{state.Filter{Status: []state.Status{state.Dead, state.Done}}, "two"},
		{state.Filter{Session: "web", Label: "l", TenantID: "ana", Queue: "default"}, "one"},
		{state.Filter{Label: "other"}, ""},
	} {
		list, err := o.List(t.Context(), f.Filter)
		must(t, err)
		var titles []string
		for _, s := range list {
			titles = append(titles, s.Title)
		}
		if got := strings.Join(titles, " "); got != f.want {
			t.Errorf("%+v: %s, want %s", f.Filter, got, f.want)
		}
		if i := slices.Index(titles, "one"); i >= 0 && (list[i].Note != "shared: leased on build-1" || list[i].Account != "codex-main") {
			t.Errorf("where it is: %+v", list[i])
		}
	}
	q.exec(t, "UPDATE tasks SET status = 'succeeded', answer = 'yes' WHERE prompt = 'three'")
	whole, err := o.Task(t.Context(), one.ID)
	if err != nil || whole.Prompt != "one\nmore" || whole.Result != "" || whole.CreatedAt.IsZero() {
		t.Errorf("%+v, %v", whole, err)
	}
	list, err := o.List(t.Context(), state.Filter{Status: []state.Status{state.Done}})
	must(t, err)
	if whole, err = o.Task(t.Context(), list[0].ID); err != nil || whole.Answer() != "yes" {
		t.Errorf("%+v, %v", whole, err)
	}
	if _, err = o.Task(t.Context(), "nothing"); !errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		t.Errorf("no task: %v", err)
	}
	for _, f := range []state.Filter{{Before: 7}, {Prompts: true}} {
		if _, err := o.List(t.Context(), f); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
	h := holder("build-1")
	must(t, q.Beat(t.Context(), h, task.WorkerRow{PID: 7, Accounts: "codex-main", Processes: 4}))
	s, err := o.Status(t.Context())
	if err != nil || s.Tasks["queued"] != 0 || s.Tasks["leased"] != 1 || len(s.Workers) != 1 || s.Workers[0].Host != "build-1" || s.Workers[0].Silent != "0s" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestWatch: all that has not ended comes first, then each change once, and the end of a task as well.
func TestWatch(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "codex-main codex 4")
	h := holder("build-1")
	q.add(t, task.TaskSpec{Prompt: "old"}, task.TaskSpec{Prompt: "kept"})
	q.exec(t, "UPDATE tasks SET status = 'succeeded' WHERE prompt = 'old'")
	enough := errors.New("enough")
	steps := []struct {
		want string // what is told,
		do   func() // and what is done then
	}{
		{"kept queued", func() { q.lease(t, h, "codex-main", 1) }},
		{"kept queued", func() { q.add(t, task.TaskSpec{Prompt: "new"}) }}, // it is leased
		{"new queued", func() { q.exec(t, "UPDATE tasks SET status = 'failed' WHERE prompt = 'kept'") }},
		{"kept failed", func() {}},
		{"", nil},
	}
	err := newOpener(t, q).Watch(t.Context(), func(list []state.Task) error {
		var told []string
		for _, s := range list {
			told = append(told, fmt.Sprint(s.Title, " ", s.Status))
		}
		if got := strings.Join(told, ", "); got != steps[0].want {
			return fmt.Errorf("%q was told, and not %q", got, steps[0].want)
		}
		if steps[0].do == nil {
			return enough
		}
		steps[0].do()
		steps = steps[1:]
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), enough.Error()) {
		t.Error(err)
	}
}

// TestNobodyWaitsLonger: who asks for a database that does not answer waits as long as he wants to, also behind others.
func TestNobodyWaitsLonger(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	url := server.Database(t)
	server.Signal(t, "STOP")
	defer server.Signal(t, "CONT")
	o := NewOpener(func() (string, error) { return url, nil }, 1)
	defer o.Close()
	patient, end := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { // its end is waited for below
		_, err := o.Status(patient)
		first <- err
	}()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := o.Status(ctx)
		cancel()
		if err == nil || patient.Err() != nil {
			t.Errorf("a database that does not answer: %v", err)
		}
	}
	end()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
