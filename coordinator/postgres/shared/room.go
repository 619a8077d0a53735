package shared

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/task"
	"stint/state"
)

// statuses are those of rows, and what the ledger calls them.
var statuses = map[string]state.Status{
	"draft": state.Draft, "queued": state.Queued, "leased": state.Queued, "running": state.Running,
	"succeeded": state.Done, "failed": state.Failed, "canceled": state.Canceled, "deadletter": state.Dead,
}

// asInLedger returns shared tasks as lists of a ledger have theirs, in the same order.
func asInLedger(list []Task) (tasks []state.Task) {
	for _, t := range list {
		s := state.Task{
			ID: t.ID, Status: statuses[t.Status], SessionKey: t.SessionKey, Isolation: state.IsolationTemp, Agent: t.Tool, Model: t.Model, Account: cmp.Or(t.LeasedBy, t.Account),
			Label: t.Label, Priority: t.Priority, IdempotencyKey: state.GivenKey(t.IdempotencyKey), NotBefore: t.ScheduledAt, TenantID: t.TenantID, Queue: t.Queue, Usage: t.Usage,
			Attempt: t.Attempt, Retries: t.Retries, MaxAttempts: t.MaxAttempts, Reason: state.Class(t.Reason), Error: t.Error, CreatedAt: t.CreatedAt, StartedAt: t.StartedAt,
			UpdatedAt: t.FinishedAt, VerifyCommand: t.VerifyCommand, OutputSpec: t.OutputSpec, Title: state.TitleOf(t.Prompt), Note: "shared",
		}
		if t.WorkerHost != "" {
			s.Note = "shared: " + t.Status + " on " + t.WorkerHost
		}
		tasks = append(tasks, s)
	}
	return tasks
}

// Submit queues one task, or returns the one that it is already.
func (o *Opener) Submit(ctx context.Context, spec task.TaskSpec) (t state.Task, err error) {
	list, err := o.SubmitOnce(ctx, "", []task.TaskSpec{spec})
	if err == nil {
		t = list[0]
	}
	return t, err
}

// SubmitOnce queues tasks, all or none. key is that of the list; "": it has none.
func (o *Opener) SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) (tasks []state.Task, err error) {
	for i := range specs {
		s := &specs[i]
		if !s.Shared {
			return nil, task.AtTask(task.Wrong("shared", "send two lists", "of a list all tasks are shared, or none"), i, len(specs))
		}
		if key != "" {
			s.IdempotencyKey = cmp.Or(s.IdempotencyKey, state.PartKey(key, i+1))
		}
	}
	err = o.Do(ctx, func(q *Queue) error {
		list, err := q.Enqueue(ctx, specs)
		tasks = asInLedger(list)
		return err
	})
	return tasks, err
}

// Task returns a whole task but for what is in its files. ref is its id, or a unique piece of it.
func (o *Opener) Task(ctx context.Context, ref string) (s state.Task, err error) {
	err = o.Do(ctx, func(q *Queue) error {
		t, err := q.Get(ctx, ref, false)
		s = asInLedger([]Task{t})[0]
		s.Prompt, s.Result = t.Prompt, cmp.Or(t.Answer, t.Error)
		for _, f := range t.Files {
			if !f.IsInput {
				s.OutputFiles = append(s.OutputFiles, state.OutputFile{Path: f.Path, Size: f.Size, SHA256: f.SHA256})
			}
		}
		return err
	})
	return s, err
}

// List returns tasks without their texts, the newest first. It refuses what it cannot filter by.
func (o *Opener) List(ctx context.Context, f state.Filter) (tasks []state.Task, err error) {
	if f.Before > 0 || f.Prompts {
		return nil, task.Wrong("shared", "leave cursor and prompts out", "shared tasks are listed without prompts and on one page")
	}
	var names []string
	for name, status := range statuses {
		if slices.Contains(f.Status, status) {
			names = append(names, name)
		}
	}
	err = o.Do(ctx, func(q *Queue) error {
		list, err := q.List(ctx, f, strings.Join(names, ","))
		slices.Reverse(list)
		tasks = asInLedger(list)
		return err
	})
	return tasks, err
}

// Status returns how the queue is, and who works for it.
func (o *Opener) Status(ctx context.Context) (s task.SharedStatus, err error) {
	err = o.Do(ctx, func(q *Queue) (err error) { s, err = q.Stats(ctx); return err })
	return s, err
}

// Watch calls tell with all tasks that have not ended, and then each second with those that have changed, or none, until something has
// an error. What comes and ends between two looks is not seen.
func (o *Opener) Watch(ctx context.Context, tell func([]state.Task) error) error {
	known := map[string]string{} // by id: how it was
	return o.Do(ctx, func(q *Queue) (err error) {
		for ; err == nil; err = cmp.Or(err, task.Sleep(ctx, time.Second)) {
			rows, _ := q.pool.Query(ctx, "SELECT "+listed+` FROM (SELECT * FROM tasks WHERE host IS NULL AND status = 'queued' UNION ALL SELECT * FROM tasks WHERE host IS NULL AND status IN ('leased', 'running')
				UNION ALL SELECT * FROM tasks WHERE host IS NULL AND id = ANY($1::text[]::uuid[]) AND status NOT IN ('queued', 'leased', 'running')) t ORDER BY t.created_at, t.id`,
				slices.Collect(maps.Keys(known))) // CollectRows returns the error
			list, err := pgx.CollectRows(rows, scan)
			if err != nil {
				return err
			}
			last := known
			known = map[string]string{}
			list = slices.DeleteFunc(list, func(t Task) bool {
				how := fmt.Sprint(t.Status, t.Attempt, t.Retries)
				if !statuses[t.Status].Terminal() {
					known[t.ID] = how
				}
				return last[t.ID] == how
			})
			if err := tell(asInLedger(list)); err != nil {
				return err
			}
		}
		return err
	})
}
