package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"

	"github.com/google/uuid"
)

// checkSpec returns a spec as it can be sent, with an id.
func checkSpec(spec task.TaskSpec) (task.TaskSpec, error) {
	if err := checkText(&spec); err != nil {
		return spec, err
	}
	if spec.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return spec, fmt.Errorf("id of a task: %w", err)
		}
		spec.ID = id.String()
	}
	return spec, nil
}

// checkBatch is checkSpec for a list.
func checkBatch(specs []task.TaskSpec) (sent []task.TaskSpec, err error) {
	sent = make([]task.TaskSpec, len(specs))
	for i, spec := range specs {
		if sent[i], err = checkSpec(spec); err != nil {
			return nil, task.AtTask(err, i, len(specs))
		}
	}
	return sent, nil
}

// List returns the tasks that f lets through, newest first, without their texts.
func (c *Client) List(ctx context.Context, f state.Filter) ([]wire.TaskView, error) {
	out, err := fetch[wire.ListBody](ctx, c, http.MethodGet, wire.ListPath(f), nil)
	return out.Tasks, err
}

// ListJSON writes to w what List returns, in JSON, one task a line. An error of w is
// returned as it is.
func (c *Client) ListJSON(ctx context.Context, f state.Filter, w io.Writer) error {
	ctx, release := c.watch(ctx)
	defer release()
	resp, err := c.do(ctx, http.MethodGet, wire.ListPath(f), nil, wire.JSONLines)
	if err != nil {
		return err
	}
	return c.copyBody(ctx, w, resp)
}

// PageAddress returns the address of the page, with a code that lets one browser in.
func (c *Client) PageAddress(ctx context.Context) (wire.PageAddress, error) {
	return fetch[wire.PageAddress](ctx, c, http.MethodPost, "/v1/ui/code", nil)
}

// Findings returns what is wrong in the ledger.
func (c *Client) Findings(ctx context.Context) ([]task.Finding, error) {
	out, err := fetch[wire.FindingsBody](ctx, c, http.MethodGet, "/v1/ledger/findings", nil)
	return out.Findings, err
}

// Reconcile makes the master take over tasks.md now, and with accept also what is
// held as the work of a formatter.
func (c *Client) Reconcile(ctx context.Context, accept bool) (task.Reconciled, error) {
	return fetch[task.Reconciled](ctx, c, http.MethodPost, "/v1/ledger/reconcile", wire.ReconcileBody{Accept: accept})
}

// Edit changes fields of a task that waits, by a JSON merge patch of a TaskSpec.
func (c *Client) Edit(ctx context.Context, ref string, patch []byte) (wire.TaskView, error) {
	return fetchTask[wire.TaskView](ctx, c, http.MethodPatch, ref, "", json.RawMessage(patch))
}

// Accounts returns the accounts that are known to the master.
func (c *Client) Accounts(ctx context.Context) ([]state.AccountUse, error) {
	out, err := fetch[wire.AccountsBody](ctx, c, http.MethodGet, "/v1/accounts", nil)
	return out.Accounts, err
}

// ActOnAccount enables or disables an account: act is enable or disable.
func (c *Client) ActOnAccount(ctx context.Context, id, act string) (state.AccountUse, error) {
	return fetch[state.AccountUse](ctx, c, http.MethodPost, "/v1/accounts/"+url.PathEscape(id)+"/"+act, nil)
}

// Schedules returns all schedules.
func (c *Client) Schedules(ctx context.Context) ([]task.Schedule, error) {
	out, err := fetch[wire.SchedulesBody](ctx, c, http.MethodGet, "/v1/schedules", nil)
	return out.Schedules, err
}

// JobRuns returns how firings of a schedule went, the newest first, at most so many.
func (c *Client) JobRuns(ctx context.Context, name string, most int) ([]task.JobRun, error) {
	out, err := fetch[wire.JobRunsBody](ctx, c, http.MethodGet, "/v1/schedules/"+url.PathEscape(name)+"/runs?limit="+strconv.Itoa(most), nil)
	return out.Runs, err
}

// ActOnSchedule fires a schedule now, pauses or resumes it: act is run, pause or resume.
func (c *Client) ActOnSchedule(ctx context.Context, name, act string) (task.Schedule, error) {
	return fetch[task.Schedule](ctx, c, http.MethodPost, "/v1/schedules/"+url.PathEscape(name)+"/"+act, nil)
}

// SubmitAll makes tasks durable in one batch: all of them, or none if one is wrong.
// Specs without an id get one from the client. The answers are in the order of
// specs and without the prompts.
func (c *Client) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]wire.TaskView, error) {
	sent, err := checkBatch(specs)
	if err != nil {
		return nil, err
	}
	out, err := fetch[wire.ListBody](ctx, c, http.MethodPost, "/v1/tasks", sent)
	return out.Tasks, err
}

// Act does one thing to a task: act is cancel, hold, release, remove or retry.
func (c *Client) Act(ctx context.Context, ref, act string) (wire.TaskView, error) {
	return fetchTask[wire.TaskView](ctx, c, http.MethodPost, ref, "/"+act, nil)
}

// Move changes a queued task's place in its lane.
func (c *Client) Move(ctx context.Context, ref string, to task.Place) (wire.TaskView, error) {
	return fetchTask[wire.TaskView](ctx, c, http.MethodPost, ref, "/move", to)
}

// Pause makes the master start no more tasks, now and after a restart; those at
// work go on. The reason is shown with what waits, and may be "".
func (c *Client) Pause(ctx context.Context, reason string) error {
	if !utf8.ValidString(reason) {
		return notUTF8("reason")
	}
	return c.call(ctx, http.MethodPost, "/v1/pause", wire.PauseBody{Reason: reason}, nil)
}

// Resume makes the master start tasks again.
func (c *Client) Resume(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/resume", nil, nil)
}

// Compact makes the master merge records and move tasks that ended more than
// olderThan ago to the archive; with dryRun it only says what it would do, with
// keepFailed failed and dead tasks stay.
func (c *Client) Compact(ctx context.Context, olderThan time.Duration, dryRun, keepFailed bool) (ledger.CompactReport, error) {
	return fetch[ledger.CompactReport](ctx, c, http.MethodPost, "/v1/ledger/compact", wire.CompactBody{OlderThan: olderThan.String(), DryRun: dryRun, KeepFailed: keepFailed})
}

// Prune makes the master remove files of tasks that ended more than olderThan ago, and those beyond
// retention_size. With dryRun it only says which.
func (c *Client) Prune(ctx context.Context, olderThan time.Duration, dryRun bool) (task.Pruned, error) {
	return fetch[task.Pruned](ctx, c, http.MethodPost, "/v1/ledger/prune", wire.PruneBody{OlderThan: olderThan.String(), DryRun: dryRun})
}

// Preview returns what would be run for tasks if they were submitted together. Nothing
// is kept, and no agent is started.
func (c *Client) Preview(ctx context.Context, specs []task.TaskSpec) ([]task.TaskPreview, error) {
	sent, err := checkBatch(specs)
	if err != nil {
		return nil, err
	}
	out, err := fetch[wire.PreviewBody](ctx, c, http.MethodPost, "/v1/tasks/preview", sent)
	return out.Previews, err
}

// Prompt returns what the agent was sent in a run of a task: by the run's id, a unique
// piece of it, or its number; "" is the last one.
func (c *Client) Prompt(ctx context.Context, ref, run string) (task.SentPrompt, error) {
	return fetchTask[task.SentPrompt](ctx, c, http.MethodGet, ref, "/prompt?run="+url.QueryEscape(run), nil)
}
