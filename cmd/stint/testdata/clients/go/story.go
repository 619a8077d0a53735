// The story of the tests of the HTTP interface, told by a client that oapi-codegen has
// made of the description: client.go, beside this file when it is built.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bearer := func(token string) ClientOption {
		return WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		})
	}
	client, err := NewClientWithResponses(os.Getenv("STINT_URL"), bearer(os.Getenv("STINT_TOKEN")))
	check(err)
	stranger, err := NewClientWithResponses(os.Getenv("STINT_URL"), bearer("guessed"))
	check(err)
	workspace, session, key := os.Getenv("STINT_WORKSPACE"), "story-go", `"story-go"`

	// A stranger learns nothing; the master is well.
	refused, err := stranger.HealthWithResponse(ctx)
	check(err)
	expect(refused.ApplicationproblemJSON401 != nil && *refused.ApplicationproblemJSON401.Code == CodeUnauthorized, "a guessed token", refused.Body)
	health, err := client.HealthWithResponse(ctx)
	check(err)
	expect(health.JSON200 != nil && health.JSON200.Status == HealthStatusOk, "health", health.Body)

	// Submit: new, known, another body under the key, a wrong one.
	spec := TaskSpec{Prompt: "demo:write=out.txt|kept\ndemo:say=hello", Workspace: &workspace, SessionKey: &session, OutputSpec: &[]string{"out.txt"}}
	made, err := client.SubmitTaskWithResponse(ctx, &SubmitTaskParams{IdempotencyKey: &key}, spec)
	check(err)
	expect(made.JSON201 != nil && *made.JSON201.IdempotencyKey == "story-go", "submit", made.Body)
	id := made.JSON201.Id
	known, err := client.SubmitTaskWithResponse(ctx, &SubmitTaskParams{IdempotencyKey: &key}, spec)
	check(err)
	expect(known.JSON200 != nil && known.JSON200.Id == id, "submit again", known.Body)
	other, err := client.SubmitTaskWithResponse(ctx, &SubmitTaskParams{IdempotencyKey: &key}, TaskSpec{Prompt: "other", Workspace: &workspace})
	check(err)
	expect(other.ApplicationproblemJSON409 != nil && *other.ApplicationproblemJSON409.Code == CodeConflict, "another body", other.Body)
	wrong, err := client.SubmitTaskWithResponse(ctx, nil, TaskSpec{Prompt: "x", Workspace: pointer("nowhere")})
	check(err)
	expect(wrong.ApplicationproblemJSON422 != nil && *wrong.ApplicationproblemJSON422.Field == "workspace", "a wrong body", wrong.Body)

	// Wait, get, and get what has not changed.
	done, err := client.WaitTaskWithResponse(ctx, id, nil)
	check(err)
	expect(done.JSON200 != nil && done.JSON200.Status == StatusDone && *done.JSON200.Result == "hello", "wait", done.Body)
	got, err := client.GetTaskWithResponse(ctx, id, nil)
	check(err)
	expect(got.JSON200 != nil && *got.JSON200.Prompt == spec.Prompt && len(*got.JSON200.OutputFiles) == 1, "get", got.Body)
	same, err := client.GetTaskWithResponse(ctx, id, &GetTaskParams{IfNoneMatch: &[]string{got.HTTPResponse.Header.Get("ETag")}})
	check(err)
	expect(same.StatusCode() == http.StatusNotModified && len(same.Body) == 0, "get again", same.Body)
	nothing, err := client.GetTaskWithResponse(ctx, "nothing", nil)
	check(err)
	expect(nothing.ApplicationproblemJSON404 != nil && *nothing.ApplicationproblemJSON404.Code == CodeNotFound, "get nothing", nothing.Body)

	// What it has left: runs, files, logs, its session, what was used.
	runs, err := client.TaskRunsWithResponse(ctx, id)
	check(err)
	expect(runs.JSON200 != nil && len(runs.JSON200.Runs) == 1, "runs", runs.Body)
	file, err := client.TaskFileWithResponse(ctx, id, "out.txt", nil)
	check(err)
	expect(strings.TrimSpace(string(file.Body)) == "kept", "file", file.Body)
	logs, err := client.TaskLogsWithResponse(ctx, id, &TaskLogsParams{Tail: pointer(int64(1))})
	check(err)
	expect(logs.StatusCode() == http.StatusOK && len(logs.Body) > 0, "logs", logs.Body)
	shown, err := client.GetSessionWithResponse(ctx, session, nil)
	check(err)
	expect(shown.JSON200 != nil && shown.JSON200.Tasks[0].Id == id && len(shown.JSON200.Transcript) == 2, "session", shown.Body)
	used, err := client.UsageWithResponse(ctx, &UsageParams{By: pointer("task")})
	check(err)
	expect(used.JSON200 != nil && len(used.JSON200.Rows) > 0, "usage", used.Body)

	// A list of tasks, listed page by page, edited, moved, held, released and canceled.
	held := func(prompt string) TaskSpec {
		return TaskSpec{Prompt: prompt, Workspace: &workspace, SessionKey: &session, Hold: pointer(true)}
	}
	batch, err := client.SubmitTasksWithResponse(ctx, nil, []TaskSpec{held("a"), held("b"), held("c")})
	check(err)
	expect(batch.JSON201 != nil && len(batch.JSON201.Tasks) == 3, "submit a list", batch.Body)
	seen, next := []string{}, (*string)(nil)
	for page := 0; page < 4 && (page == 0 || next != nil); page++ {
		list, err := client.ListTasksWithResponse(ctx, &ListTasksParams{Status: &[]Status{StatusQueued, StatusDraft}, Session: &session, Limit: pointer(int64(2)), Cursor: next})
		check(err)
		expect(list.JSON200 != nil, "list", list.Body)
		for _, t := range list.JSON200.Tasks {
			expect(t.Why != nil && strings.HasPrefix(*t.Why, "held"), "why in the list", list.Body)
			seen = append(seen, t.Id)
		}
		next = list.JSON200.Next
	}
	expect(len(seen) == 3, "pages", []byte(strings.Join(seen, " ")))
	last := batch.JSON201.Tasks[2].Id
	edited, err := client.EditTaskWithResponse(ctx, last, nil, TaskPatch{Label: pointer("story")})
	check(err)
	expect(edited.JSON200 != nil && *edited.JSON200.Label == "story", "edit", edited.Body)
	stale, err := client.EditTaskWithResponse(ctx, last, &EditTaskParams{IfMatch: pointer(`"1"`)}, TaskPatch{Label: pointer("x")})
	check(err)
	expect(stale.ApplicationproblemJSON412 != nil && *stale.ApplicationproblemJSON412.Code == CodeChanged, "edit what has changed", stale.Body)
	moved, err := client.MoveTaskWithResponse(ctx, last, Place{First: pointer(true)})
	check(err)
	expect(moved.JSON200 != nil, "move", moved.Body)
	for _, t := range batch.JSON201.Tasks {
		canceled, err := client.CancelTaskWithResponse(ctx, t.Id, Empty{})
		check(err)
		expect(canceled.JSON200 != nil && canceled.JSON200.Status == StatusCanceled, "cancel", canceled.Body)
	}

	// Each change of a task, from the list on.
	list, err := client.ListTasksWithResponse(ctx, &ListTasksParams{Limit: pointer(int64(1))})
	check(err)
	stream, err := client.Events(ctx, &EventsParams{After: pointer(list.HTTPResponse.Header.Get("Stint-Seq"))}, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", "application/jsonl")
		return nil
	})
	check(err)
	followed, err := client.SubmitTaskWithResponse(ctx, nil, TaskSpec{Prompt: "demo:say=seen", Workspace: &workspace})
	check(err)
	expect(followed.JSON201 != nil, "submit", followed.Body)
	var statuses []string
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		var c Change
		check(json.Unmarshal(lines.Bytes(), &c))
		if c.Task == nil || c.Task.Id != followed.JSON201.Id {
			continue
		}
		statuses = append(statuses, string(c.Task.Status))
		if c.Task.Status == StatusDone {
			break
		}
	}
	expect(len(statuses) > 2 && statuses[0] == "queued", "events", []byte(strings.Join(statuses, " ")))
	check(stream.Body.Close())

	// Dispatch stops and goes on.
	paused, err := client.PauseWithResponse(ctx, Pause{Reason: pointer("story")})
	check(err)
	expect(paused.StatusCode() == http.StatusNoContent, "pause", paused.Body)
	resumed, err := client.ResumeWithResponse(ctx, Empty{})
	check(err)
	expect(resumed.StatusCode() == http.StatusNoContent, "resume", resumed.Body)
	fmt.Println("the story is told")
}

func pointer[T any](v T) *T { return &v }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func expect(is bool, what string, body []byte) {
	if !is {
		fmt.Fprintf(os.Stderr, "%s: %s\n", what, body)
		os.Exit(1)
	}
}
