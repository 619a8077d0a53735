package client

// The story of the tests of the HTTP interface, told by a client that oapi-codegen has
// made of the description: client.go, beside this file when it is built.

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStory(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	header := func(name, value string) RequestEditorFn {
		return func(_ context.Context, r *http.Request) error {
			r.Header.Set(name, value)
			return nil
		}
	}
	client := must(NewClientWithResponses(os.Getenv("STINT_URL"), WithRequestEditorFn(header("Authorization", "Bearer "+os.Getenv("STINT_TOKEN")))))
	workspace, session, key := os.Getenv("STINT_WORKSPACE"), "story-go", `"story-go"`

	// A stranger learns nothing; the master is well.
	refused := must(client.HealthWithResponse(ctx, header("Authorization", "Bearer guessed")))
	expect(t, refused.ApplicationproblemJSON401 != nil && *refused.ApplicationproblemJSON401.Code == CodeUnauthorized, "a guessed token", refused.Body)
	health := must(client.HealthWithResponse(ctx))
	expect(t, health.JSON200 != nil && health.JSON200.Status == HealthStatusOk, "health", health.Body)

	// Submit: new, known, another body under the key, a wrong one.
	spec := TaskSpec{Prompt: "demo:write=out.txt|kept\ndemo:say=hello", Workspace: &workspace, SessionKey: &session, OutputSpec: &[]string{"out.txt"}}
	made := must(client.SubmitTaskWithResponse(ctx, &SubmitTaskParams{IdempotencyKey: &key}, spec))
	expect(t, made.JSON201 != nil && *made.JSON201.IdempotencyKey == "story-go", "submit", made.Body)
	id := made.JSON201.Id
	known := must(client.SubmitTaskWithResponse(ctx, &SubmitTaskParams{IdempotencyKey: &key}, spec))
	expect(t, known.JSON200 != nil && known.JSON200.Id == id, "submit again", known.Body)
	other := must(client.SubmitTaskWithResponse(ctx, &SubmitTaskParams{IdempotencyKey: &key}, TaskSpec{Prompt: "other", Workspace: &workspace}))
	expect(t, other.ApplicationproblemJSON409 != nil && *other.ApplicationproblemJSON409.Code == CodeConflict, "another body", other.Body)
	wrong := must(client.SubmitTaskWithResponse(ctx, nil, TaskSpec{Prompt: "x", Workspace: new("nowhere")}))
	expect(t, wrong.ApplicationproblemJSON422 != nil && *wrong.ApplicationproblemJSON422.Field == "workspace", "a wrong body", wrong.Body)

	// Wait, get, and get what has not changed.
	done := must(client.WaitTaskWithResponse(ctx, id))
	expect(t, done.JSON200 != nil && done.JSON200.Status == StatusDone && *done.JSON200.Result == "hello", "wait", done.Body)
	got := must(client.GetTaskWithResponse(ctx, id, nil))
	expect(t, got.JSON200 != nil && *got.JSON200.Prompt == spec.Prompt && len(*got.JSON200.OutputFiles) == 1, "get", got.Body)
	same := must(client.GetTaskWithResponse(ctx, id, &GetTaskParams{IfNoneMatch: &[]string{got.HTTPResponse.Header.Get("ETag")}}))
	expect(t, same.StatusCode() == http.StatusNotModified && len(same.Body) == 0, "get again", same.Body)
	nothing := must(client.GetTaskWithResponse(ctx, "nothing", nil))
	expect(t, nothing.ApplicationproblemJSON404 != nil && *nothing.ApplicationproblemJSON404.Code == CodeNotFound, "get nothing", nothing.Body)

	// What it has left: runs, files, logs, its session, what was used.
	runs := must(client.TaskRunsWithResponse(ctx, id))
	expect(t, runs.JSON200 != nil && len(runs.JSON200.Runs) == 1, "runs", runs.Body)
	file := must(client.TaskFileWithResponse(ctx, id, "out.txt", nil))
	expect(t, strings.TrimSpace(string(file.Body)) == "kept", "file", file.Body)
	logs := must(client.TaskLogsWithResponse(ctx, id, nil))
	expect(t, logs.StatusCode() == http.StatusOK && len(logs.Body) > 0, "logs", logs.Body)
	shown := must(client.GetSessionWithResponse(ctx, session, nil))
	expect(t, shown.JSON200 != nil && shown.JSON200.Tasks[0].Id == id && len(shown.JSON200.Transcript) == 2, "session", shown.Body)
	used := must(client.UsageWithResponse(ctx, &UsageParams{By: new("task")}))
	expect(t, used.JSON200 != nil && len(used.JSON200.Rows) > 0, "usage", used.Body)

	// A list of tasks, listed page by page, edited, moved, held, released and canceled.
	held := func(prompt string) TaskSpec {
		return TaskSpec{Prompt: prompt, Workspace: &workspace, SessionKey: &session, Hold: new(true)}
	}
	batch := must(client.SubmitTasksWithResponse(ctx, nil, []TaskSpec{held("a"), held("b"), held("c")}))
	expect(t, batch.JSON201 != nil && len(batch.JSON201.Tasks) == 3, "submit a list", batch.Body)
	seen, next := []string{}, (*string)(nil)
	for page := 0; page < 4 && (page == 0 || next != nil); page++ {
		list := must(client.ListTasksWithResponse(ctx, &ListTasksParams{Status: &[]Status{StatusQueued, StatusDraft}, Session: &session, Limit: new(int64(2)), Cursor: next}))
		expect(t, list.JSON200 != nil, "list", list.Body)
		for _, listed := range list.JSON200.Tasks {
			expect(t, listed.Why != nil && strings.HasPrefix(*listed.Why, "held"), "why in the list", list.Body)
			seen = append(seen, listed.Id)
		}
		next = list.JSON200.Next
	}
	expect(t, len(seen) == 3, "pages", []byte(strings.Join(seen, " ")))
	last := batch.JSON201.Tasks[2].Id
	edited := must(client.EditTaskWithResponse(ctx, last, nil, TaskPatch{Label: new("story")}))
	expect(t, edited.JSON200 != nil && *edited.JSON200.Label == "story", "edit", edited.Body)
	stale := must(client.EditTaskWithResponse(ctx, last, &EditTaskParams{IfMatch: new(`"1"`)}, TaskPatch{Label: new("x")}))
	expect(t, stale.ApplicationproblemJSON412 != nil && *stale.ApplicationproblemJSON412.Code == CodeChanged, "edit what has changed", stale.Body)
	moved := must(client.MoveTaskWithResponse(ctx, last, Place{First: new(true)}))
	expect(t, moved.JSON200 != nil, "move", moved.Body)
	for _, one := range batch.JSON201.Tasks {
		canceled := must(client.CancelTaskWithResponse(ctx, one.Id, Empty{}))
		expect(t, canceled.JSON200 != nil && canceled.JSON200.Status == StatusCanceled, "cancel", canceled.Body)
	}

	// Each change of a task, from the list on.
	list := must(client.ListTasksWithResponse(ctx, &ListTasksParams{Limit: new(int64(1))}))
	stream := must(client.Events(ctx, &EventsParams{After: new(list.HTTPResponse.Header.Get("Stint-Seq"))}, header("Accept", "application/jsonl")))
	followed := must(client.SubmitTaskWithResponse(ctx, nil, TaskSpec{Prompt: "demo:say=seen", Workspace: &workspace}))
	expect(t, followed.JSON201 != nil, "submit", followed.Body)
	var statuses []string
	for lines := bufio.NewScanner(stream.Body); !slices.Contains(statuses, string(StatusDone)) && lines.Scan(); {
		var c Change
		expect(t, json.Unmarshal(lines.Bytes(), &c) == nil, "an event", lines.Bytes())
		if c.Task != nil && c.Task.Id == followed.JSON201.Id {
			statuses = append(statuses, string(c.Task.Status))
		}
	}
	expect(t, len(statuses) > 2 && statuses[0] == "queued", "events", []byte(strings.Join(statuses, " ")))
	expect(t, stream.Body.Close() == nil, "the end of events", nil)

	// Dispatch stops and goes on.
	paused := must(client.PauseWithResponse(ctx, Pause{Reason: new("story")}))
	expect(t, paused.StatusCode() == http.StatusNoContent, "pause", paused.Body)
	resumed := must(client.ResumeWithResponse(ctx, Empty{}))
	expect(t, resumed.StatusCode() == http.StatusNoContent, "resume", resumed.Body)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func expect(t *testing.T, is bool, what string, body []byte) {
	t.Helper()
	if !is {
		t.Fatalf("%s: %s", what, body)
	}
}
