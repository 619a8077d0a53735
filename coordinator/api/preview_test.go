package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/memory"
	"stint/state"
)

func (f *fakeMaster) Preview(ctx context.Context, specs []task.TaskSpec, isList bool) (list []task.TaskPreview, err error) {
	for _, spec := range specs {
		if spec.Prompt == "" {
			return nil, task.Invalid("stint task PROMPT", "the prompt is empty; a list: %v", isList)
		}
		list = append(list, task.TaskPreview{Task: state.Task{ID: spec.ID, Prompt: spec.Prompt}, Session: task.SessionNew, Argv: []string{"a", "b c"}, Prompt: "<" + spec.Prompt + ">"})
	}
	return list, ctx.Err()
}

func (f *fakeMaster) SentPrompt(_ context.Context, ref, run string) (task.SentPrompt, error) {
	t, err := f.find(ref)
	return task.SentPrompt{TaskID: t.ID, RunID: run, Prompt: "a", Memory: &memory.Result{Hits: []memory.Hit{{Path: "MEMORY.md", Line: 1}}}}, err
}

func TestPreview(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	preview := func(specs ...task.TaskSpec) ([]task.TaskPreview, error) {
		out, err := client.Fetch[wire.PreviewBody](t.Context(), s.client, http.MethodPost, "/v1/tasks/preview", specs)
		return out.Previews, err
	}
	list, err := preview(task.TaskSpec{Prompt: "a", ID: "mine"}, task.TaskSpec{Prompt: "b"})
	if err != nil || len(list) != 2 || list[0].Task.ID != "mine" || len(list[1].Task.ID) != 36 || list[1].Prompt != "<b>" || len(list[0].Argv) != 2 || len(m.tasks) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	for body, want := range map[string]string{`{"prompt":""}`: "a list: false", `[{"prompt":""}]`: "a list: true"} {
		if got := ask(newServer(m, Options{}), http.MethodPost, "/v1/tasks/preview", jsonType, body).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if _, err := preview(task.TaskSpec{Prompt: "a", VerifyCommand: "\xff"}); err == nil || !strings.Contains(err.Error(), `invalid UTF-8 within "/0/verifyCommand"`) {
		t.Errorf("%v", err)
	}
}

func TestSentPrompt(t *testing.T) {
	m := newFake(t)
	m.tasks = []state.Task{{ID: "t-1"}}
	s := serve(t, m, Options{})
	got, err := client.Fetch[task.SentPrompt](t.Context(), s.client, http.MethodGet, "/v1/tasks/t-1/prompt?run=a%26b%2Fc", nil)
	want := task.SentPrompt{TaskID: "t-1", RunID: "a&b/c", Prompt: "a", Memory: &memory.Result{Hits: []memory.Hit{{Path: "MEMORY.md", Line: 1}}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := client.Fetch[task.SentPrompt](t.Context(), s.client, http.MethodGet, "/v1/tasks/nobody/prompt", nil); !errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		t.Errorf("%v", err)
	}
}
