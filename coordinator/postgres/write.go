package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

// Bounds of a batch.
const (
	maxTasks = 1000
	maxBytes = 8 << 20 // of texts and files; one task may have more
)

// writeTimeout bounds a transaction, and those of others that we wait for.
const writeTimeout = 10 * time.Second

// A place is how far a mirror goes.
type place struct {
	seq        uint64 // all records up to it are in the mirror; 0: not even the first
	digest     []byte // of that record
	generation int64
}

// A batch is what one transaction writes.
type batch struct {
	tasks []*tables.Rows
	to    *place    // where the mirror is afterwards; nil: where it is
	since time.Time // when the oldest of its records was written; zero: it is part of a rebuild
	sweep bool      // at the end of a rebuild: rows of older generations go

	accounts []state.AccountUse // nil: as before
}

// What ends a session and is no trouble: the next one begins with where the mirror and the ledger are then.
var (
	// The mirror is not where we left it: another process writes it too, or a commit of ours went through though nobody told us.
	errMoved     = errors.New("the mirror was moved on by another writer")
	errBusy      = errors.New("the mirror is being rebuilt by another process")
	errCompacted = errors.New("the ledger was compacted") // tasks have other places than when a rebuild began
)

// isAgain reports whether a session ended with one of these.
func isAgain(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, errBusy) || errors.Is(err, errCompacted)
}

// staging returns the name of the temporary table that rows come through.
func staging(t *tables.Table) string { return "copy_" + t.Name }

// create makes the temporary table. It has no constraints, and is empty in each transaction.
func create(t *tables.Table) string {
	return fmt.Sprintf("CREATE TEMP TABLE IF NOT EXISTS %s ON COMMIT DELETE ROWS AS SELECT %s FROM %s WITH NO DATA",
		staging(t), strings.Join(t.Columns, ", "), t.Name)
}

// upsert takes the rows of the temporary table over. Those that are there already and say the same are not written again.
func upsert(t *tables.Table) string {
	return fmt.Sprintf("INSERT INTO %[1]s (id, %[2]s) SELECT id, %[2]s FROM %[3]s ON CONFLICT (id) DO UPDATE SET (%[2]s) = ROW(%[4]s) WHERE (%[5]s) IS DISTINCT FROM (%[4]s)",
		t.Name, strings.Join(t.Columns[1:], ", "), staging(t), values(t, "excluded", t.Name), values(t, t.Name, ""))
}

// values returns the columns of a row but for its id. Those that are kept have the value of the old row where they are NULL.
func values(t *tables.Table, row, old string) string {
	var list []string
	for _, c := range t.Columns[1:] {
		if old != "" && slices.Contains(t.Kept, c) {
			list = append(list, fmt.Sprintf("coalesce(%[1]s.%[3]s, %[2]s.%[3]s)", row, old, c))
		} else {
			list = append(list, row+"."+c)
		}
	}
	return strings.Join(list, ", ")
}

// freeKeys is for a key that has gone from one task to another: the one that had it loses it first.
const freeKeys = `UPDATE tasks t SET idempotency_key = NULL FROM copy_tasks c
	WHERE t.host = c.host AND t.idempotency_key = c.idempotency_key AND t.id <> c.id`

// upserts are the statements that take the rows over, in their order. They are made when they are first needed: most commands
// have no use for them.
var upserts = sync.OnceValue(func() []string {
	return []string{
		upsert(&tables.Tasks),
		`DELETE FROM task_files f USING copy_tasks c WHERE f.task_id = c.id AND NOT EXISTS (SELECT FROM copy_task_files n WHERE n.id = f.id)`,
		`DELETE FROM task_runs r USING copy_tasks c WHERE r.task_id = c.id AND NOT EXISTS (SELECT FROM copy_task_runs n WHERE n.id = r.id)`,
		upsert(&tables.Runs),
		upsert(&tables.Files),
	}
})

// rows returns what the tables have of a task.
func (w *writer) rows(im *task.TaskRecord) (*tables.Rows, error) {
	m := w.o.Maker
	m.RunDir = w.src.RunDir
	return m.Of(im)
}

// A writer makes the rows of tasks, and writes batches of them into the mirror of one host.
type writer struct {
	o   *Options
	db  *server.Database
	src Source // what it copies
	at  place
}

// slowest is the rate, in bytes a second, that a batch must be written with. A slower database is found out by patience.
const slowest = 1 << 20

// write writes a batch and moves the cursor, or does nothing. patience is how many times the usual time it gets.
func (w *writer) write(ctx context.Context, b *batch, patience int) error {
	size := 0
	for _, t := range b.tasks {
		size += t.Size
	}
	b.to = cmp.Or(b.to, &w.at)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(patience)*(writeTimeout+time.Duration(size)*time.Second/slowest))
	defer cancel()
	err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
		if err := w.begin(ctx, tx); err != nil {
			return err
		}
		if err := w.fill(ctx, tx, b); err != nil {
			return err
		}
		return w.finish(ctx, tx, b)
	})
	if err == nil {
		w.at = *b.to
	}
	return err
}

// begin bounds the transaction, on the server too, which may not hear of our end; then
// it takes the mirror's row, so that there is one writer at a time.
func (w *writer) begin(ctx context.Context, tx pgx.Tx) error {
	var there place
	var q pgx.Batch
	// While it waits for rows of a COPY, no limit counts but that of keepalives.
	q.Queue(`SELECT set_config('lock_timeout', $1, TRUE), set_config('idle_in_transaction_session_timeout', $1, TRUE),
		set_config('tcp_keepalives_idle', '5', TRUE), set_config('tcp_keepalives_interval', '2', TRUE), set_config('tcp_keepalives_count', '3', TRUE)`,
		fmt.Sprint(writeTimeout.Milliseconds()))
	q.Queue("SELECT seq, generation FROM mirrors WHERE host = $1 FOR UPDATE", w.o.Host).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&there.seq, &there.generation)
		if errors.Is(err, pgx.ErrNoRows) {
			return errMoved
		}
		return err
	})
	for _, t := range tables.All {
		q.Queue(create(t))
	}
	if err := tx.SendBatch(ctx, &q).Close(); err != nil {
		return err
	}
	if there.seq != w.at.seq || there.generation != w.at.generation {
		return errMoved
	}
	return nil
}

// fill puts the rows of a batch into the temporary tables.
func (w *writer) fill(ctx context.Context, tx pgx.Tx, b *batch) error {
	var tasks, runs, files [][]any
	for _, t := range b.tasks {
		t.Task[tables.Generation] = w.at.generation
		tasks, runs, files = append(tasks, t.Task), append(runs, t.Runs...), append(files, t.Files...)
	}
	for i, rows := range [][][]any{tasks, runs, files} {
		if len(rows) == 0 {
			continue
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{staging(tables.All[i])}, tables.All[i].Columns, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
	}
	return nil
}

// finish takes the rows over, moves the cursor, and tells who listens.
func (w *writer) finish(ctx context.Context, tx pgx.Tx, b *batch) error {
	var q pgx.Batch
	w.queueAccounts(&q, b.accounts)
	if len(b.tasks) > 0 {
		q.Queue(`INSERT INTO accounts (id, tool, max_concurrency, host) SELECT DISTINCT leased_by, tool, $1::int, host FROM copy_tasks
			WHERE leased_by IS NOT NULL ON CONFLICT (id) DO NOTHING`, w.o.MaxConcurrency)
		if slices.ContainsFunc(b.tasks, func(t *tables.Rows) bool { return t.HasKey }) {
			q.Queue(freeKeys)
		}
		for _, sql := range upserts() {
			q.Queue(sql)
		}
	}
	if len(b.tasks) > 0 || b.sweep || b.accounts != nil {
		q.Queue("SELECT pg_notify('stint', json_build_object('host', $1::text, 'seq', $2::bigint, 'count', $3::int)::text)", w.o.Host, int64(b.to.seq), len(b.tasks)) // channel stint
	}
	if b.sweep {
		q.Queue("UPDATE mirrors SET rebuilt_at = now(), worker_id = NULL WHERE host = $1", w.o.Host)
	}
	q.Queue("UPDATE mirrors SET seq = $2, digest = $3, settings = $4, version = $5, updated_at = now() WHERE host = $1",
		w.o.Host, int64(b.to.seq), b.to.digest, w.o.settings(), w.o.Version)
	return tx.SendBatch(ctx, &q).Close()
}

// settings returns what rows depend on beside the ledger.
func (o *Options) settings() string {
	return fmt.Sprintf("inline_threshold=%d stdout_limit=%d max_attempts=%d", o.InlineThreshold, o.OutputLimit, o.MaxAttempts)
}

// queueAccounts makes table accounts say what is known of the accounts of this host; nil is nothing new. Of an account that no
// task names now only what may be done with it is known, and one that is not listed is free.
func (w *writer) queueAccounts(q *pgx.Batch, list []state.AccountUse) {
	if list == nil {
		return
	}
	ids := []string{}
	q.Queue("UPDATE accounts SET name = NULL WHERE host = $1", w.o.Host) // else two could not swap theirs
	for _, a := range list {
		id := tables.AccountID(w.o.Host, a.Name)
		ids = append(ids, id)
		if slices.Contains(tables.Tools, a.Agent) {
			names := map[string]any{}
			for _, name := range a.Variables {
				names[name] = nil
			}
			q.Queue(`INSERT INTO accounts (id, host, tool, name, group_name, env_vars, cred_ref, max_concurrency, dangerous) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
				ON CONFLICT (id) DO UPDATE SET tool = excluded.tool, name = excluded.name, group_name = excluded.group_name, env_vars = excluded.env_vars,
					cred_ref = excluded.cred_ref, max_concurrency = excluded.max_concurrency, dangerous = excluded.dangerous`,
				id, w.o.Host, a.Agent, tables.OrNull(tables.Storable(cmp.Or(a.Title, a.Name))), tables.OrNull(tables.Storable(a.GroupName)), tables.JSON(names), tables.OrNull(tables.Storable(a.CredRef)),
				cmp.Or(a.Max, w.o.MaxConcurrency), a.Dangerous)
		}
		q.Queue("UPDATE accounts SET enabled = $2, held = $3, reason = $4, cool_until = $5 WHERE id = $1", id, !a.Disabled, a.Hold, tables.OrNull(a.Reason), tables.TimeOrNull(a.CoolUntil))
	}
	q.Queue("UPDATE accounts SET enabled = TRUE, held = FALSE, reason = NULL, cool_until = NULL WHERE host = $1 AND id <> ALL($2)", w.o.Host, ids)
}

// maxSwept is how many tasks one transaction removes.
const maxSwept = 1000

// sweep removes the tasks of older generations, with their runs and files.
func (w *writer) sweep(ctx context.Context) error {
	for removed := int64(maxSwept); removed == maxSwept; {
		bounded, cancel := context.WithTimeout(ctx, 3*writeTimeout)
		err := pgx.BeginFunc(bounded, w.db, func(tx pgx.Tx) error {
			if err := w.begin(bounded, tx); err != nil {
				return err
			}
			tag, err := tx.Exec(bounded, "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE host = $1 AND generation <> $2 LIMIT $3)",
				w.o.Host, w.at.generation, int64(maxSwept))
			removed = tag.RowsAffected()
			return err
		})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
