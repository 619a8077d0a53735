package shared

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stint/coordinator/task"
	"stint/state"
)

// Get returns a shared task with its files, and their contents if they are asked for. ref is its id, or any piece of it that no other has.
func (q *Queue) Get(ctx context.Context, ref string, contents bool) (t Task, err error) {
	id, err := q.find(ctx, ref)
	if err != nil {
		return t, err
	}
	rows, _ := q.pool.Query(ctx, "SELECT "+columns+" FROM tasks t WHERE t.host IS NULL AND t.id = $1", id) // CollectExactlyOneRow returns the error
	if t, err = pgx.CollectExactlyOneRow(rows, scan); err != nil {
		return t, err
	}
	list := []Task{t}
	err = q.readFiles(ctx, list, contents, true)
	return list[0], err
}

// find returns the id of the one shared task whose id has ref in it.
func (q *Queue) find(ctx context.Context, ref string) (string, error) {
	where, arg := "position($1 in id::text) > 0", strings.ToLower(ref)
	if id, err := uuid.Parse(ref); err == nil { // by the index
		where, arg = "id = $1::text::uuid", id.String()
	}
	rows, _ := q.pool.Query(ctx, "SELECT id::text FROM tasks WHERE host IS NULL AND "+where+" LIMIT 2", arg) // CollectRows returns the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0 || ref == "":
		return "", &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("there is no shared task %q", ref), Hint: "stint tasks ls --shared"}
	case len(ids) > 1:
		return "", task.Ambiguous("shared tasks", ref, ids)
	}
	return ids[0], nil
}

// listed are the columns of a task in a list.
var listed = strings.Replace(columns, "t.prompt", "left(t.prompt, 300)", 1)

// List returns shared tasks, the oldest first, with the beginnings of their prompts and without the files. A zero field of the
// filter is any, which has no statuses: those of rows are given with commas between them, "" being any.
func (q *Queue) List(ctx context.Context, f state.Filter, statuses string) ([]Task, error) {
	rows, _ := q.pool.Query(ctx, `SELECT `+listed+` FROM (
			SELECT * FROM tasks WHERE host IS NULL AND (@status = '' OR status = ANY(string_to_array(@status, ','))) AND (@tool = '' OR tool = @tool) AND (@session = '' OR session_key = @session) AND (@label = '' OR label = @label)
				AND (@tenant = '' OR tenant_id = @tenant) AND (@queue = '' OR queue = @queue) ORDER BY created_at DESC, id DESC LIMIT nullif(@most::int, 0)
		) t ORDER BY t.created_at, t.id`,
		pgx.NamedArgs{"status": statuses, "tool": f.Agent, "session": f.Session, "label": f.Label, "tenant": f.TenantID, "queue": f.Queue, "most": f.Limit}) // CollectRows returns the error
	return pgx.CollectRows(rows, scan)
}

// Cancel ends a shared task: at once, or if a worker has it, once that has ended its agent. It returns the task as it is then.
func (q *Queue) Cancel(ctx context.Context, ref string) (Task, error) {
	return q.act(ctx, ref, "has ended already", `UPDATE tasks SET (status, reason, finished_at, cancel_requested) = (SELECT 'canceled', 'canceled', now(), FALSE WHERE status IN ('draft', 'queued')
			UNION ALL SELECT status, reason, finished_at, TRUE WHERE status IN ('leased', 'running')), updated_at = now()
		WHERE id = $1 AND host IS NULL AND status IN ('draft', 'queued', 'leased', 'running')`)
}

// Requeue queues a shared task again that has ended: with all its attempts, and at once.
func (q *Queue) Requeue(ctx context.Context, ref string) (Task, error) {
	t, err := q.act(ctx, ref, "has not ended", `UPDATE tasks SET status = 'queued', retries = attempt, cancel_requested = FALSE, reason = NULL, error_message = NULL, next_attempt_at = NULL,
		finished_at = NULL, result = NULL, answer = NULL, note = NULL, run_id = NULL, verify_exit_code = NULL, held = FALSE, updated_at = now()
		WHERE id = $1 AND host IS NULL AND (status IN ('draft', 'succeeded', 'failed', 'canceled', 'deadletter') OR status = 'queued' AND held)`)
	if err == nil {
		q.tell()
	}
	return t, err
}

// act changes a shared task by a statement about the id $1, and returns the task as it is then; why says why it is refused if
// nothing has changed.
func (q *Queue) act(ctx context.Context, ref, why, sql string) (t Task, err error) {
	id, err := q.find(ctx, ref)
	if err == nil {
		err = q.Reclaim(ctx) // there may be no worker that does it
	}
	if err != nil {
		return t, err
	}
	tag, err := q.pool.Exec(ctx, sql, id)
	if err != nil {
		return t, err
	}
	if t, err = q.Get(ctx, id, false); err == nil && tag.RowsAffected() == 0 {
		err = task.Conflict("stint tasks get --shared "+id, "shared task %s %s: %s", id, why, t.Status)
	}
	return t, err
}

// readFiles adds what task_files has of the tasks in a list, with the contents of all files, or of inputs that a worker takes.
func (q *Queue) readFiles(ctx context.Context, list []Task, contents, large bool) error {
	place, ids := map[string]int{}, []string{}
	for i, t := range list {
		if t.hasFiles {
			place[t.ID], ids = i, append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, _ := q.pool.Query(ctx, `SELECT task_id::text, path, is_input, coalesce(size_bytes, 0), coalesce(sha256, ''), coalesce(storage_url, ''),
		CASE WHEN $2 AND ($3 OR is_input AND octet_length(content) <= 1 << 20) THEN content END FROM task_files WHERE task_id = ANY($1::text[]::uuid[]) ORDER BY path`, ids, contents, large) // ForEachRow returns the error
	var id string
	var f File
	_, err := pgx.ForEachRow(rows, []any{&id, &f.Path, &f.IsInput, &f.Size, &f.SHA256, &f.Where, &f.Content}, func() error {
		t := &list[place[id]]
		if i := slices.IndexFunc(t.Files, func(old File) bool { return old.IsInput && f.IsInput && old.Path == f.Path }); i >= 0 {
			t.Files[i] = f
		} else {
			t.Files = append(t.Files, f)
		}
		f = File{}
		return nil
	})
	return err
}
