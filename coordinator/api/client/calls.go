package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger/journal"
	"stint/state"

	"github.com/google/uuid"
)

// checkBatch returns specs as they can be sent, each with an id.
func checkBatch(specs []task.TaskSpec) ([]task.TaskSpec, error) {
	sent := make([]task.TaskSpec, len(specs))
	for i, spec := range specs {
		if err := checkText(&spec); err != nil {
			return nil, task.AtTask(err, i, len(specs))
		}
		if spec.ID == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("id of a task: %w", err)
			}
			spec.ID = id.String()
		}
		sent[i] = spec
	}
	return sent, nil
}

// List returns the tasks that f lets through, newest first, without their texts.
func (c *Client) List(ctx context.Context, f state.Filter) ([]wire.TaskView, error) {
	var out wire.ListBody
	err := c.call(ctx, http.MethodGet, wire.ListPath(f), nil, &out)
	return out.Tasks, err
}

// ListJSON writes to w what List gives, in JSON, one task a line. An error of w is
// given as it is.
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
func (c *Client) PageAddress(ctx context.Context) (p wire.PageAddress, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/ui/code", nil, &p)
	return p, err
}

// Findings returns what is wrong in the ledger.
func (c *Client) Findings(ctx context.Context) ([]task.Finding, error) {
	var out wire.FindingsBody
	err := c.call(ctx, http.MethodGet, "/v1/ledger/findings", nil, &out)
	return out.Findings, err
}

// Reconcile makes the master take over tasks.md now, and with accept also what is
// held as the work of a formatter.
func (c *Client) Reconcile(ctx context.Context, accept bool) (task.TakeOver, error) {
	var t task.TakeOver
	err := c.call(ctx, http.MethodPost, "/v1/ledger/reconcile", wire.ReconcileBody{Accept: accept}, &t)
	return t, err
}

// Edit changes fields of a task that waits, by a JSON merge patch of a TaskSpec.
func (c *Client) Edit(ctx context.Context, ref string, patch []byte) (wire.TaskView, error) {
	path, err := refPath("/v1/tasks/", ref, "")
	if err != nil {
		return wire.TaskView{}, err
	}
	return c.view(ctx, http.MethodPatch, path, json.RawMessage(patch))
}

// Accounts returns the accounts that are known to the master.
func (c *Client) Accounts(ctx context.Context) ([]state.AccountUse, error) {
	var out wire.AccountsBody
	err := c.call(ctx, http.MethodGet, "/v1/accounts", nil, &out)
	return out.Accounts, err
}

// SubmitAll makes tasks durable in one batch: all of them, or none if one is wrong.
// Specs without an id get one from the client. The answers are in the order of
// specs and without the prompts.
func (c *Client) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]wire.TaskView, error) {
	sent, err := checkBatch(specs)
	if err != nil {
		return nil, err
	}
	var out wire.ListBody
	err = c.call(ctx, http.MethodPost, "/v1/tasks", sent, &out)
	return out.Tasks, err
}

// Hold lets a queued task wait until it is released.
func (c *Client) Hold(ctx context.Context, ref string) (wire.TaskView, error) {
	return c.taskView(ctx, http.MethodPost, ref, "/hold")
}

// Release lets a held task run.
func (c *Client) Release(ctx context.Context, ref string) (wire.TaskView, error) {
	return c.taskView(ctx, http.MethodPost, ref, "/release")
}

// Move changes a queued task's place in its lane.
func (c *Client) Move(ctx context.Context, ref string, to task.Place) (wire.TaskView, error) {
	path, err := refPath("/v1/tasks/", ref, "/move")
	if err != nil {
		return wire.TaskView{}, err
	}
	return c.view(ctx, http.MethodPost, path, to)
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
// olderThan ago to the archive; with dryRun it only says what it would do.
func (c *Client) Compact(ctx context.Context, olderThan time.Duration, dryRun bool) (journal.CompactReport, error) {
	var r journal.CompactReport
	err := c.call(ctx, http.MethodPost, "/v1/ledger/compact", wire.CompactBody{OlderThan: olderThan.String(), DryRun: dryRun}, &r)
	return r, err
}

// Preview returns what would be run for tasks if they were submitted together. Nothing
// is kept, and no agent is started.
func (c *Client) Preview(ctx context.Context, specs []task.TaskSpec) ([]task.TaskPreview, error) {
	sent, err := checkBatch(specs)
	if err != nil {
		return nil, err
	}
	var out wire.PreviewBody
	err = c.call(ctx, http.MethodPost, "/v1/tasks/preview", sent, &out)
	return out.Previews, err
}

// Prompt returns what the agent was sent in a run of a task: by the run's id, a unique
// piece of it, or its number; "" is the last one.
func (c *Client) Prompt(ctx context.Context, ref, run string) (p task.SentPrompt, err error) {
	path, err := refPath("/v1/tasks/", ref, "/prompt")
	if err != nil {
		return p, err
	}
	if run != "" {
		path += "?run=" + url.QueryEscape(run)
	}
	err = c.call(ctx, http.MethodGet, path, nil, &p)
	return p, err
}
