package shared

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator/postgres/schema"
	"stint/coordinator/task"
	"stint/state"
)

// A Queue is the shared queue of a database. Its methods may be called by any goroutine; their errors are those of pgx, or *task.Error.
type Queue struct {
	pool *pgxpool.Pool

	inserting, untold atomic.Int64 // calls of Enqueue, and those that workers were not notified of yet
	tellers           sync.WaitGroup
}

// New returns the queue of a database whose schema was checked.
func New(pool *pgxpool.Pool) *Queue { return &Queue{pool: pool} }

// Channel is where the database says that something was queued.
const Channel = "stint_queue"

// A Task is a shared task, as its row has it.
type Task struct {
	ID             string            `json:"id" doc:"Id of its row" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Status         string            `json:"status" enum:"draft,queued,leased,running,succeeded,failed,canceled,deadletter" doc:"leased: a worker has it, and has not begun" example:"queued"`
	Tool           string            `json:"tool,omitempty" doc:"Its agent; left out: any that a worker has" example:"codex"`
	Model          string            `json:"model,omitempty" doc:"As the agent's CLI knows it" example:"gpt-5.5"`
	Account        string            `json:"account,omitempty" doc:"Account that it must run with; left out: any of its agent" example:"codex-main"`
	TenantID       string            `json:"tenantId" doc:"Free text to filter by" example:"default"`
	Queue          string            `json:"queue" doc:"Another free text to filter by" example:"default"`
	SessionKey     string            `json:"sessionKey,omitempty" doc:"Tasks with the same key share one conversation and run one after another" example:"web"`
	Label          string            `json:"label,omitempty" doc:"Free text" example:"nightly"`
	Priority       int               `json:"priority" doc:"1 to 9, 9 first" example:"5"`
	Prompt         string            `json:"prompt" doc:"What the agent is to do; in a list, its beginning" example:"Fix the flaky login test."`
	OutputSpec     []string          `json:"outputSpec,omitempty" doc:"Files to collect after the run" example:"report.md"`
	VerifyCommand  string            `json:"verifyCommand,omitempty" doc:"Must pass after each run of the agent" example:"test -s report.md"`
	Extra          map[string]string `json:"extra,omitempty" doc:"Further fields, by their names in the ledger"`
	IdempotencyKey string            `json:"idempotencyKey,omitempty" doc:"No other shared task has it" example:"deps-2026-11-21"`
	Retries        int               `json:"retries,omitempty" doc:"Leases that were no attempt: given back, or before it was queued again" example:"1"`
	Attempt        int               `json:"attempt" doc:"Leases so far" example:"1"`
	MaxAttempts    int               `json:"maxAttempts" doc:"Counted tries" example:"3"`
	LeasedBy       string            `json:"leasedBy,omitempty" doc:"Account whose slot it has" example:"codex-main"`
	WorkerHost     string            `json:"workerHost,omitempty" doc:"Host of the worker that leased it last" example:"build-1"`
	LeaseExpiresAt time.Time         `json:"leaseExpiresAt,omitzero" doc:"When the lease ends unless it is renewed" example:"2026-11-21T03:16:39Z"`
	ScheduledAt    time.Time         `json:"scheduledAt" doc:"Not leased before" example:"2026-11-21T03:15:09Z"`
	NextAttemptAt  time.Time         `json:"nextAttemptAt,omitzero" doc:"Not leased again before" example:"2026-11-21T03:20:09Z"`
	Answer         string            `json:"answer,omitempty" doc:"What the agent said last" example:"Fixed."`
	Error          string            `json:"error,omitempty" doc:"What went wrong" example:"exit status 1"`
	Reason         string            `json:"reason,omitempty" doc:"Class of that" example:"exit"`
	Note           string            `json:"note,omitempty" doc:"What else its user should know" example:"its worker has ended"`
	Usage          state.Usage       `json:"usage,omitzero" doc:"What its last lease has used"`
	CreatedAt      time.Time         `json:"createdAt" doc:"When it was queued" example:"2026-11-21T03:15:09Z"`
	StartedAt      time.Time         `json:"startedAt,omitzero" doc:"When it was leased last" example:"2026-11-21T03:15:10Z"`
	FinishedAt     time.Time         `json:"finishedAt,omitzero" doc:"When it ended" example:"2026-11-21T03:17:10Z"`

	Files []File `json:"files,omitempty" doc:"What came with it, and what was collected"`

	hasFiles bool  // in a table of their own
	wrong    error // why its files cannot be read
}

// A File goes with a shared task.
type File struct {
	Path    string `json:"path" doc:"A relative path" example:"report.md"`
	IsInput bool   `json:"isInput" doc:"It came with the task" example:"false"`
	Size    int64  `json:"size" doc:"In bytes" example:"1204"`
	SHA256  string `json:"sha256,omitempty" doc:"In hex" example:"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"`
	Content []byte `json:"content,omitempty" doc:"In base64, where it was asked for; left out: it is large, and stays where storageUrl says" example:"aGVsbG8="`
	Where   string `json:"storageUrl,omitempty" doc:"Where a large file is" example:"file://build-1/var/lib/stint/runs/x/files/report.md"`
}

// No time, and one that is too early, is Go's zero time.
const since, until = "least(greatest(", ", '0001-01-01Z'), '9999-12-30Z')"

// columns are those of a Task, as scan reads them. What a producer left out, or wrote in a way of its own, has a default.
// More of a prompt than any master takes is not read, and a time that Go cannot have, such as infinity, becomes the nearest one.
const columns = `t.id::text, t.status, coalesce(t.tool, ''), coalesce(t.model, ''), coalesce(t.account, ''), t.tenant_id, t.queue, coalesce(t.session_key, ''),
	coalesce(t.label, ''), t.priority, coalesce(left(t.prompt, 1048577), ''), t.input_files, t.output_spec, coalesce(t.verify_command, ''), t.extra, coalesce(t.idempotency_key, ''),
	t.attempt, t.retries, t.max_attempts, coalesce(t.leased_by, ''), coalesce(t.worker_host, ''), ` + since + `t.lease_expires_at` + until + `, ` + since + `t.scheduled_at` + until + `, ` + since + `t.next_attempt_at` + until + `,
	coalesce(t.answer, ''), coalesce(t.error_message, ''), coalesce(t.reason, ''), coalesce(t.note, ''), t.input_tokens, t.cached_input_tokens, t.output_tokens, t.reasoning_tokens, CASE WHEN t.cost_usd BETWEEN 0 AND 1e9 THEN t.cost_usd ELSE 0 END, ` + since + `t.created_at` + until + `, ` + since + `t.started_at` + until + `, ` + since + `t.finished_at` + until + `,
	EXISTS (SELECT FROM task_files f WHERE f.task_id = t.id), t.workspace IS NOT NULL OR t.after <> '[]'`

// scan reads a row of columns. A value that is no list of files, or of paths, is the task's own fault: see Task.wrong.
func scan(row pgx.CollectableRow) (t Task, err error) {
	var inputs, outputs, extra []byte
	var isLocal bool
	err = row.Scan(&t.ID, &t.Status, &t.Tool, &t.Model, &t.Account, &t.TenantID, &t.Queue, &t.SessionKey, &t.Label, &t.Priority, &t.Prompt,
		&inputs, &outputs, &t.VerifyCommand, &extra, &t.IdempotencyKey, &t.Attempt, &t.Retries, &t.MaxAttempts, &t.LeasedBy, &t.WorkerHost,
		&t.LeaseExpiresAt, &t.ScheduledAt, &t.NextAttemptAt,
		&t.Answer, &t.Error, &t.Reason, &t.Note, &t.Usage.InputTokens, &t.Usage.CachedInputTokens, &t.Usage.OutputTokens, &t.Usage.ReasoningTokens, &t.Usage.CostUSD, &t.CreatedAt, &t.StartedAt, &t.FinishedAt, &t.hasFiles, &isLocal)
	if isLocal {
		t.wrong = task.Wrong("workspace", "leave them out, or queue the task on one machine: stint task", "a shared task has neither a workspace nor tasks before it (after): any machine may run it")
	}
	var files []struct {
		Name    string
		Content *string
		Size    int64
		SHA256  string
	}
	if err := json.Unmarshal(inputs, &files); err != nil {
		t.wrong = task.Wrong("inputFiles", `write [{"name": "notes.md", "content": "…"}]`, "input_files is no list of files")
	}
	for _, f := range files {
		file := File{Path: f.Name, IsInput: true, Size: f.Size, SHA256: f.SHA256}
		if f.Content != nil {
			file.Content, file.Size = []byte(*f.Content), int64(len(*f.Content))
		}
		t.Files = append(t.Files, file)
	}
	if err := json.Unmarshal(outputs, &t.OutputSpec); err != nil {
		t.wrong = task.Wrong("outputSpec", `write ["report.md"]`, "output_spec is no list of paths")
	}
	if err := json.Unmarshal(extra, &t.Extra); err != nil {
		t.wrong = task.Wrong("extra", `write {"timeout": "30m"}`, "extra has a value that is no text")
	}
	return t, err
}

// tell has workers look at the queue, soon: a transaction with a notification holds a lock until it is on the disk, so that no two
// share a sync, and those who queue tasks at the same time share a notification after it.
func (q *Queue) tell() {
	if q.untold.Add(1) > 1 {
		return // who tells now does so again
	}
	q.tellers.Go(func() {
		for n := q.untold.Load(); n > 0; n = q.untold.Add(-n) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, _ = q.pool.Exec(ctx, "SELECT pg_notify($1, '')", Channel) // else a poll finds it
			cancel()
		}
	})
}

// insert makes rows of tasks as JSON has them, and returns those that are new. Workers are told by itself or by [Queue.tell], and not by the trigger.
//
//go:embed insert.sql
var insert string

// insertFiles is insert for tasks that have files.
var insertFiles = strings.Replace(insert, ") SELECT id::text", `), stored AS (
		INSERT INTO task_files (task_id, path, is_input, content, size_bytes, sha256)
		SELECT id, f->>'path', TRUE, decode(f->>'content', 'base64'), (f->>'size')::bigint, f->>'sha256' FROM given JOIN made USING (id), jsonb_array_elements(files) f
	) SELECT id::text`, 1)

// Enqueue queues tasks, all or none, and returns them as they are. One whose id or idempotency key is known is the
// task that is there already; the same key with another body is a conflict.
func (q *Queue) Enqueue(ctx context.Context, specs []task.TaskSpec) (list []Task, err error) {
	tools, id, tool := map[string]string{}, "", "" // of accounts
	if slices.ContainsFunc(specs, func(s task.TaskSpec) bool { return s.Account != "" }) {
		rows, _ := q.pool.Query(ctx, "SELECT id, tool FROM accounts WHERE host IS NULL") // ForEachRow returns the error
		if _, err := pgx.ForEachRow(rows, []any{&id, &tool}, func() error { tools[id] = tool; return nil }); err != nil {
			return nil, err
		}
	}
	for i := range specs {
		t, err := taskOf(&specs[i])
		if tool := tools[t.Account]; err == nil && t.Account != "" && (tool == "" || t.Tool != "" && t.Tool != tool) {
			err = task.Wrong("account", "stint account ls --shared", "the shared queue has no account %q%s", t.Account, map[bool]string{true: " of " + t.Tool}[t.Tool != ""])
		}
		if err != nil && len(specs) > 1 {
			err = task.AtTask(err, i, len(specs))
		}
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	sql := insert
	if slices.ContainsFunc(list, func(t Task) bool { return len(t.Files) > 0 }) {
		sql = insertFiles
	}
	isAlone := q.inserting.Add(1) == 1
	defer q.inserting.Add(-1)
	add := func(db schema.Querier) error {
		rows, _ := db.Query(ctx, sql, text, isAlone) // ForEachRow returns the error
		var made Task
		fresh := map[string]Task{}
		if _, err := pgx.ForEachRow(rows, []any{&made.ID, &made.ScheduledAt, &made.CreatedAt}, func() error { fresh[made.ID] = made; return nil }); err != nil {
			return err
		}
		for i := range list {
			if made, isNew := fresh[list[i].ID]; isNew {
				list[i].ScheduledAt, list[i].CreatedAt = made.ScheduledAt, made.CreatedAt
				continue
			}
			rows, _ := db.Query(ctx, "SELECT "+columns+" FROM tasks t WHERE t.host IS NULL AND (t.id = $1::text::uuid OR t.idempotency_key = nullif($2, ''))", list[i].ID, list[i].IdempotencyKey) // CollectExactlyOneRow returns the error
			there, err := pgx.CollectExactlyOneRow(rows, scan)
			if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, pgx.ErrTooManyRows) {
				err = task.Conflict("use another id, or none", "the id %s is that of a machine's own task, or of another one than the key", list[i].ID)
			}
			if err != nil {
				return err
			}
			if !sameBody(&list[i], &there) {
				return task.Conflict("use another key, or read the task that is there: stint tasks get --shared "+there.ID, "shared task %s is another one, with the same key or id", there.ID)
			}
			list[i] = there
		}
		return nil
	}
	if len(list) == 1 { // one statement is one transaction
		err = add(q.pool)
	} else {
		err = pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error { return add(tx) })
	}
	if err == nil && !isAlone {
		q.tell()
	}
	return list, err
}
