package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/postgres/shared"
	"stint/state"
)

const (
	sharedTask     = "queue it in the database of [postgres], for a worker on any machine"
	sharedAccount  = "of the shared queue, for the workers on all machines"
	sharedStatuses = "draft, queued, leased, running, succeeded, failed, canceled, deadletter"
)

// errNoShared is the answer where no database is configured.
var errNoShared = usage("stint config set postgres.url postgres://db.example/cli_worker", "no database is configured for a shared queue")

// withShared adds --shared to a command; these of its other options do not go with it.
func (a *app) withShared(c *cobra.Command, usage string, without ...string) *cobra.Command {
	c.Flags().BoolVar(&a.shared, "shared", false, usage)
	for _, name := range without {
		exclusive(c, "shared", name)
	}
	return c
}

// onShared calls do with the shared queue in the configured database, unless this command is part of a run.
func (a *app) onShared(c *cobra.Command, do func(ctx context.Context, q *shared.Queue) error) error {
	if err := a.refuseRun(); err != nil {
		return err
	}
	cfg, err := a.base()
	if err != nil {
		return err
	}
	o, on := postgresOptions(cfg, "", slog.New(slog.DiscardHandler))
	if !on {
		return errNoShared
	}
	opener := shared.NewOpener(o.URL, 1)
	defer opener.Close()
	return opener.Do(c.Context(), func(q *shared.Queue) error { return do(c.Context(), q) })
}

// fromShared returns what get has from the shared queue.
func fromShared[T any](a *app, c *cobra.Command, get func(*shared.Queue, context.Context) (T, error)) (v T, err error) {
	err = a.onShared(c, func(ctx context.Context, q *shared.Queue) (err error) { v, err = get(q, ctx); return err })
	return v, err
}

// listShared prints tasks of the shared queue, the newest first.
func (a *app) listShared(c *cobra.Command, o *lsOptions) error {
	words := map[string]string{"done": "succeeded", "dead": "deadletter"} // as the ledger has them
	for i, s := range o.status {
		s = cmp.Or(words[s], s)
		o.status[i] = s
		if !slices.Contains(strings.Split(sharedStatuses, ", "), s) {
			return usage("stint ls --shared --status queued", "the shared queue has no status %q; it is one of %s", s, sharedStatuses)
		}
	}
	list, err := fromShared(a, c, func(q *shared.Queue, ctx context.Context) ([]shared.Task, error) {
		return q.List(ctx, o.filter, strings.Join(o.status, ","))
	})
	if err != nil {
		return err
	}
	slices.Reverse(list)
	if o.filter.Limit > 0 && len(list) == o.filter.Limit {
		a.hint("stint: the newest %d; all of them: stint ls --shared -n 0\n", len(list))
	}
	return printTable(a, list, nil, "no such tasks in the shared queue; add one with: stint enqueue --shared \"PROMPT\"",
		[]string{"ID", "STATUS", "AGE", "SESSION", "AGENT", "WORKER", "PROMPT"}, []string{"AGE", "AGENT", "WORKER", "SESSION"}, func(t shared.Task) (string, []string) {
			return t.ID, []string{shortID(t.ID), t.Status, ago(max(0, time.Since(t.CreatedAt))), clip(t.SessionKey, 20), t.Tool, t.WorkerHost, state.TitleOf(t.Prompt)}
		})
}

// showShared prints a task of the shared queue, or what was collected after it as path.
func (a *app) showShared(c *cobra.Command, ref string, contents bool, path ...string) error {
	t, err := fromShared(a, c, func(q *shared.Queue, ctx context.Context) (shared.Task, error) { return q.Get(ctx, ref, contents) })
	if err != nil {
		return err
	}
	d, files := &description{}, ""
	notBefore := ""
	if t.ScheduledAt.After(time.Now()) {
		notBefore = localTime(t.ScheduledAt)
	}
	for _, f := range t.Files {
		if len(path) > 0 && f.Path == path[0] && !f.IsInput && f.Content != nil {
			return copySafe(a.stdout, bytes.NewReader(f.Content))
		}
		files += fmt.Sprintf("%s  %s  %s\n", oneLine(f.Path), count(int(f.Size), "byte"), cmp.Or(f.Where, map[bool]string{true: "input", false: "collected"}[f.IsInput]))
	}
	if len(path) > 0 {
		return &cliError{code: exitNotFound, message: fmt.Sprintf("the database has no collected file %q of shared task %s", path[0], t.ID), try: "stint files --shared " + t.ID}
	}
	for l := range slices.Chunk([]string{
		"task", t.ID, "status", t.Status, "reason", t.Reason, "error", t.Error, "note", t.Note, "session", t.SessionKey, "agent", strings.TrimSpace(t.Tool + " " + t.Model),
		"account", cmp.Or(t.LeasedBy, t.Account), "worker", t.WorkerHost, "lease until", localTime(t.LeaseExpiresAt), "label", t.Label, "priority", fmt.Sprint(t.Priority),
		"attempt", fmt.Sprintf("%d of %d", t.Attempt-t.Retries, t.MaxAttempts), "next try", localTime(t.NextAttemptAt), "not before", notBefore, "tenant", t.TenantID, "queue", t.Queue,
		"to collect", strings.Join(t.OutputSpec, ", "), "verify", t.VerifyCommand, "tokens", tokens(t.Usage), "started", localTime(t.StartedAt), "finished", localTime(t.FinishedAt),
	}, 2) {
		d.line(l[0], l[1])
	}
	if c.Name() == "files" {
		return a.print(t.Files, files)
	}
	d.text("files", files)
	d.text("prompt", t.Prompt)
	d.text("answer", t.Answer)
	return a.print(t, d.String())
}

// actShared cancels a task of the shared queue, or queues it again.
func (a *app) actShared(c *cobra.Command, name, ref string) (v wire.TaskView, err error) {
	do := map[string]func(*shared.Queue, context.Context, string) (shared.Task, error){"cancel": (*shared.Queue).Cancel, "retry": (*shared.Queue).Requeue}[name]
	t, err := fromShared(a, c, func(q *shared.Queue, ctx context.Context) (shared.Task, error) { return do(q, ctx, ref) })
	if v.ID, v.Status = t.ID, state.Status(t.Status); t.Status == "leased" || t.Status == "running" {
		a.hint("stint: the worker of %s on %s ends it\n", t.ID, escapeText(oneLine(t.WorkerHost)))
	}
	return v, err
}
