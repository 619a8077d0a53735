package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func (f *fakeMaster) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]state.Task, error) {
	for i, spec := range specs {
		if spec.Prompt == "" {
			return nil, task.AtTask(task.Invalid("stint task PROMPT", "the prompt is empty"), i, len(specs))
		}
	}
	var out []state.Task
	for _, spec := range specs {
		t, err := f.Submit(ctx, spec)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func (f *fakeMaster) SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) ([]state.Task, error) {
	f.mu.Lock()
	f.keys["list "+key] = ""
	f.mu.Unlock()
	return f.SubmitAll(ctx, specs)
}

func (f *fakeMaster) Hold(_ context.Context, ref, by string) (state.Task, error) {
	return f.change(ref, by, func(t *state.Task) { t.Hold = true })
}

func (f *fakeMaster) Release(_ context.Context, ref, by string) (state.Task, error) {
	return f.change(ref, by, func(t *state.Task) { t.Hold = false })
}

func (f *fakeMaster) Move(_ context.Context, ref string, to task.Place, by string) (state.Task, error) {
	return f.change(ref, by, func(t *state.Task) { t.Note = fmt.Sprintf("%+v", to) })
}

func (f *fakeMaster) SetAccount(_ context.Context, id string, enabled bool, by string) (state.AccountUse, error) {
	return state.AccountUse{Account: state.Account{Name: id, Disabled: !enabled, Reason: by}}, nil
}

func (f *fakeMaster) Edit(_ context.Context, ref string, p task.Patch, by string) (state.Task, error) {
	if len(p.Seqs) > 0 && !slices.Contains(p.Seqs, 42) {
		return state.Task{}, &task.Error{Code: task.CodeChanged, Message: "it has changed"}
	}
	return f.change(ref, by, func(t *state.Task) { t.Note, t.Seq = string(p.Fields), 43 })
}

func (f *fakeMaster) Pause(_ context.Context, reason, by string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused, f.by = "because "+reason, by
	return f.err
}

func (f *fakeMaster) Resume(_ context.Context, by string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused, f.by = "", by
	return f.err
}

func (f *fakeMaster) Queue(key string) []state.Task {
	tasks := f.List(state.Filter{Session: key, Status: []state.Status{state.Queued}})
	slices.Reverse(tasks) // the oldest is the next
	return tasks
}

func (f *fakeMaster) Live(id string) (time.Time, *task.LogEvent, bool) {
	if id != "aa-3" {
		return time.Time{}, nil, false
	}
	return lastWord, &task.LogEvent{Kind: task.LogCommand, State: task.LogStarted, Text: "make"}, true
}

var lastWord = time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)

func TestBatch(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	specs := []task.TaskSpec{
		{Prompt: "one", ID: "mine", TenantID: "ana", InputFiles: []state.InputFile{{Name: "a", Content: "b"}}},
		{Prompt: "two", After: []string{"mine"}},
	}
	views, err := s.client.SubmitAll(t.Context(), specs)
	if err != nil || len(views) != 2 || views[0].ID != "mine" || len(views[1].ID) != 36 || views[0].Prompt != "" || views[0].InputFiles != nil {
		t.Fatalf("%+v %v", views, err)
	}
	if specs[1].ID != "" {
		t.Error("the caller's specs were changed")
	}
	if got := m.tasks; len(got) != 2 || got[0].Prompt != "one" || got[0].TenantID != "ana" || !slices.Equal(got[1].After, []string{"mine"}) {
		t.Errorf("the master has %+v", got)
	}

	specs = []task.TaskSpec{{Prompt: "three"}, {}}
	_, err = s.client.SubmitAll(t.Context(), specs)
	if !errors.Is(err, &task.Error{Code: task.CodeInvalid}) || !strings.Contains(err.Error(), "task 2 of 2: the prompt is empty") || len(m.tasks) != 2 {
		t.Errorf("%v, and %d tasks", err, len(m.tasks))
	}
	specs[1] = task.TaskSpec{Prompt: "x", InputFiles: []state.InputFile{{Name: "b", Content: "\xff"}}}
	if _, err = s.client.SubmitAll(t.Context(), specs); err == nil || !strings.Contains(err.Error(), `invalid UTF-8 within "/1/inputFiles/0/content"`) {
		t.Errorf("%v", err)
	}
}

func TestBatchMayBeLargerThanATask(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	long := strings.Repeat("x", 1<<20)
	specs := make([]task.TaskSpec, 63)
	for i := range specs {
		specs[i].Prompt = long
	}
	if views, err := s.client.SubmitAll(t.Context(), specs); err != nil || len(views) != 63 {
		t.Errorf("63 MiB: %d tasks, %v", len(views), err)
	}
	specs = append(specs, specs[0])
	if _, err := s.client.SubmitAll(t.Context(), specs); !errors.Is(err, &task.Error{Code: task.CodeInvalid}) {
		t.Errorf("64 MiB and more: %v", err)
	}
}

func TestSessionHasItsQueue(t *testing.T) {
	m := twoTasks(t)
	m.add(state.Task{ID: "aa-3", Status: state.Running, SessionKey: "web"})
	m.add(state.Task{ID: "aa-4", Status: state.Queued, SessionKey: "web"})
	m.add(state.Task{ID: "aa-5", Status: state.Queued, SessionKey: "web"})
	s := serve(t, m, Options{})
	ses, err := client.Fetch[wire.SessionView](t.Context(), s.client, "GET", "/v1/sessions/web", nil)
	if err != nil || len(ses.Queue) != 2 || ses.Queue[0].ID != "aa-4" || ses.Queue[1].ID != "aa-5" || ses.Queue[0].Why != "it is queued" {
		t.Errorf("%+v %v", ses.Queue, err)
	}
	list, err := s.client.List(t.Context(), state.Filter{Status: []state.Status{state.Running}})
	if err != nil || len(list) != 1 || !list[0].LastOutput.Equal(lastWord) || !list[0].Settling || list[0].Event.Title() != "$ make" {
		t.Errorf("last output: %+v %v", list, err)
	}
}
