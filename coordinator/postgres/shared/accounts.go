package shared

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
)

// An Account is one of the shared queue's: which tool it is for, and how many tasks may run with it at the same time, on all
// hosts together. Its login is not here: each worker has an account of the same id, with a login of its own. Env and CredRef
// tell people what that needs.
type Account struct {
	ID        string            `json:"id" doc:"Its id, here and on each worker" example:"codex-main"`
	Tool      string            `json:"tool" doc:"Its agent" example:"codex"`
	GroupName string            `json:"groupName,omitempty" doc:"Workers of that group use it" example:"codex-main"`
	Max       int               `json:"max" doc:"Tasks that may run at the same time, on all hosts" example:"4"`
	Env       map[string]string `json:"env,omitempty" doc:"Variables that its agent needs, and where their values come from; never a secret"`
	CredRef   string            `json:"credRef,omitempty" doc:"Where its login lies; never the login" example:"/secrets/codex.json"`
	Enabled   bool              `json:"enabled" doc:"Workers may lease for it" example:"true"`
	Running   int               `json:"running" doc:"Leases that live" example:"1"`
	CoolUntil time.Time         `json:"coolUntil,omitzero" doc:"Rate-limited until then" example:"2026-11-21T03:20:00Z"`
}

// Accounts returns the accounts of the shared queue in the order of their ids.
func (q *Queue) Accounts(ctx context.Context) ([]Account, error) {
	rows, _ := q.pool.Query(ctx, `SELECT a.id, a.tool, coalesce(a.group_name, ''), a.max_concurrency,
		CASE jsonb_typeof(a.env_vars) WHEN 'object' THEN (SELECT jsonb_object_agg(key, coalesce(value #>> '{}', '')) FROM jsonb_each(a.env_vars)) END, coalesce(a.cred_ref, ''), a.enabled, c.current_concurrent,
		`+since+`a.cool_until`+until+` FROM accounts a JOIN concurrency_limits c ON c.scope = 'account:' || a.id WHERE a.host IS NULL ORDER BY a.id`) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Account])
}

// AddAccount adds an account to the shared queue.
func (q *Queue) AddAccount(ctx context.Context, a Account) error {
	switch {
	case !slices.Contains(tables.Tools, a.Tool):
		return task.Wrong("tool", "name one of them", "the shared queue has the agents %s, and not %q", strings.Join(tables.Tools, ", "), a.Tool)
	case a.ID == "" || strings.ContainsAny(a.ID, "/\x00"): // a mirror's begin with a host and a slash
		return task.Wrong("id", "give it an id such as codex-main", "%q cannot be the id of a shared account", a.ID)
	case a.Max < 1:
		return task.Wrong("max", "give --max N, at least 1", "max is how many tasks may run with %s at the same time, on all hosts, and is %d", a.ID, a.Max)
	case a.CredRef != "" && !strings.HasPrefix(a.CredRef, "/") && !strings.HasPrefix(a.CredRef, "env:"):
		return task.Wrong("credRef", "write the absolute path of a file on the workers, or env:NAME", "the database does not keep the login of %s, only where each worker has it", a.ID)
	}
	for name, value := range a.Env {
		if !strings.HasPrefix(value, "env:") && !strings.HasPrefix(value, "file:/") {
			return task.Wrong("env", name+"=env:NAME, or "+name+"=file:/PATH", "the value of %s may be a secret: the database does not keep it, only where each worker has it", name)
		}
	}
	env, _ := json.Marshal(a.Env) // names and texts
	tag, err := q.pool.Exec(ctx, `INSERT INTO accounts (id, tool, group_name, max_concurrency, env_vars, cred_ref) VALUES ($1, $2, $3, $4, coalesce(nullif($5::jsonb, 'null'), '{}'), nullif($6, ''))
		ON CONFLICT (id) DO NOTHING`, a.ID, a.Tool, a.GroupName, a.Max, env, a.CredRef)
	if err == nil && tag.RowsAffected() == 0 {
		err = task.Conflict("stint account set-limits --shared "+a.ID, "there is a shared account %s already", a.ID)
	}
	return err
}

// SetAccount changes an account of the shared queue: whether it is enabled, and unless most is 0, how many tasks may run with it.
func (q *Queue) SetAccount(ctx context.Context, id string, enabled *bool, most int) error {
	if most < 0 || most == 0 && enabled == nil {
		return task.Wrong("max", "let at least one task run, or disable it", "max is %d", most)
	}
	tag, err := q.pool.Exec(ctx, `UPDATE accounts SET enabled = coalesce($2, enabled), max_concurrency = coalesce(nullif($3, 0), max_concurrency),
		cool_until = CASE WHEN $2 THEN NULL ELSE cool_until END WHERE id = $1 AND host IS NULL`, id, enabled, most)
	if err == nil && tag.RowsAffected() == 0 {
		err = &task.Error{Code: task.CodeNotFound, Message: "there is no shared account " + id, Hint: "stint account ls --shared"}
	}
	return err
}

// Cool notes that an account is rate-limited until that time, by the clock of the database; it lasts for at most so long as the last one who says it.
func (q *Queue) Cool(ctx context.Context, id string, wait time.Duration) error {
	_, err := q.pool.Exec(ctx, "UPDATE accounts SET cool_until = CASE WHEN $2::interval > '0' THEN now() + $2::interval END WHERE id = $1 AND host IS NULL", id, wait)
	return err
}

// beatsLost is how many leases a worker may be silent until its row goes, and its conversations are anybody's.
const beatsLost = 3

// Beat notes that a worker lives, removes the rows of those that are gone, and fails tasks of accounts that are not there. A worker with the id of another one, from whose
// directory its own was copied, is refused.
func (q *Queue) Beat(ctx context.Context, h Holder, w task.WorkerRow) error {
	var beat, tidy pgx.Batch
	isOurs := false
	beat.Queue(waitBriefly)
	beat.Queue(`INSERT INTO worker_registry (worker_id, group_name, hostname, pid, state_dir, processes, draining, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (worker_id) DO UPDATE SET group_name = excluded.group_name, pid = excluded.pid, processes = excluded.processes, draining = excluded.draining,
			version = excluded.version, last_heartbeat = now(), started_at = CASE WHEN worker_registry.pid = excluded.pid THEN worker_registry.started_at ELSE now() END
		WHERE (worker_registry.hostname, worker_registry.state_dir) = (excluded.hostname, excluded.state_dir)
			OR worker_registry.draining AND NOT EXISTS (SELECT FROM tasks t WHERE t.host IS NULL AND t.status IN ('leased', 'running') AND t.worker_id = excluded.worker_id)`,
		h.Worker, w.Accounts, h.Host, w.PID, w.StateDir, w.Processes, w.Draining, w.Version).Exec(func(tag pgconn.CommandTag) error { isOurs = tag.RowsAffected() > 0; return nil })
	if err := q.pool.SendBatch(ctx, &beat).Close(); hasCode(err, locked) {
		return nil // it says so the next time
	} else if err != nil {
		return err
	}
	tidy.Queue(waitBriefly)
	tidy.Queue("DELETE FROM worker_registry WHERE worker_id IN (SELECT worker_id FROM worker_registry WHERE last_heartbeat < now() - $1 * $2::interval FOR UPDATE SKIP LOCKED)", beatsLost, h.TTL)
	tidy.Queue(`UPDATE tasks SET status = 'failed', reason = 'exit', finished_at = now(), updated_at = now(), error_message = 'the shared queue has no account ' || account || coalesce(' of ' || tool, '')
			|| '; name another one, or add it, and then: stint tasks requeue --shared ' || id
		WHERE id IN (SELECT id FROM tasks t WHERE host IS NULL AND status = 'queued' AND account IS NOT NULL AND NOT EXISTS (SELECT FROM accounts a WHERE a.host IS NULL AND a.id = t.account AND a.tool = coalesce(t.tool, a.tool)) FOR UPDATE SKIP LOCKED)`)
	if err := q.pool.SendBatch(ctx, &tidy).Close(); err != nil && !hasCode(err, locked) {
		return err
	} else if isOurs {
		return nil
	}
	return task.Conflict("if this directory is a copy of another one, remove worker.id in it; if this machine has another name now, wait for three leases", "a worker on another machine, or of another directory, has the id %s", h.Worker)
}

// Workers returns the workers in the order of their hosts.
func (q *Queue) Workers(ctx context.Context) ([]task.WorkerRow, error) {
	rows, _ := q.pool.Query(ctx, `SELECT w.worker_id::text, w.hostname, w.pid, coalesce(w.state_dir, ''), w.group_name, coalesce(w.processes, 0),
		(SELECT count(*)::int FROM tasks t WHERE t.host IS NULL AND t.status IN ('leased', 'running') AND t.worker_id = w.worker_id), w.draining, coalesce(w.version, ''),
		w.started_at, w.last_heartbeat, extract(epoch FROM now() - w.last_heartbeat)::int || 's'
		FROM worker_registry w WHERE w.group_name IS NOT NULL AND NOT (w.draining AND NOT EXISTS (SELECT FROM tasks t WHERE t.host IS NULL AND t.status IN ('leased', 'running') AND t.worker_id = w.worker_id)) ORDER BY w.hostname, w.worker_id`) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[task.WorkerRow])
}

const statsSQL = `SELECT status, count(*)::int, coalesce(max(now() - greatest(scheduled_at, '2000-01-01Z')) FILTER (WHERE status = 'queued' AND scheduled_at <= now()), '0')
	FROM (SELECT * FROM tasks WHERE host IS NULL AND status = 'queued' UNION ALL SELECT * FROM tasks WHERE host IS NULL AND status IN ('leased', 'running')) t GROUP BY 1`

// Stats counts what is in the shared queue and has not ended, by the indexes of the lease query, and says who leases.
func (q *Queue) Stats(ctx context.Context) (s task.SharedStatus, err error) {
	s.Tasks = map[string]int{}
	rows, _ := q.pool.Query(ctx, statsSQL)
	var status string
	var n int
	var waited time.Duration
	_, err = pgx.ForEachRow(rows, []any{&status, &n, &waited}, func() error {
		s.Tasks[status], s.Oldest = n, max(s.Oldest, waited)
		return nil
	})
	if err == nil {
		s.Workers, err = q.Workers(ctx)
	}
	return s, err
}
