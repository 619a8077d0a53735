package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator/task"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// A migration is one step of the schema, such as migrations/0002_mirror.sql. What was
// released is never changed: a change is a file of its own after them.
type migration struct{ name, sql string }

// migrations returns the steps in order. Their number is the version of the schema.
var migrations = sync.OnceValue(func() (list []migration) {
	entries, _ := migrationFiles.ReadDir("migrations") // embedded, so it is there
	for _, e := range entries {
		sql, _ := migrationFiles.ReadFile("migrations/" + e.Name())
		list = append(list, migration{strings.TrimSuffix(path.Base(e.Name()), ".sql"), string(sql)})
	}
	return list
})

const (
	migrationKey  = 0x7374696e74     // the advisory lock that a migration holds: "stint" in ASCII
	migrationWait = 30 * time.Second // for that lock, or for a table
)

// errNoSchema says that the database has none of our tables, and nobody else's by
// their names.
var errNoSchema = errors.New("the database has no tables of stint")

// ourTables and ourViews are the names that must be free where there is no schema of
// ours. What writes or compares needs all of the tables, and none of the views.
var (
	ourTables = []string{"tasks", "task_runs", "task_files", "accounts", "worker_registry", "mirrors"}
	ourViews  = []string{"concurrency_limits", "worker_groups"}
)

// A querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Migrate connects to the database of o and brings its schema to the newest version. It
// returns the versions before and after. All steps are one transaction.
func Migrate(ctx context.Context, o Options) (from, to int, err error) {
	pool, t, err := o.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if from, to, err = migrate(ctx, c.Conn(), migrations(), migrationWait); err != nil {
			return err
		}
		return checkTables(ctx, c)
	})
	return from, to, explain(err, t)
}

// migrate makes the steps that are missing. Other hosts may do the same: the lock ends with
// the transaction, also behind a pooler that lends connections by the transaction, and only
// with the lock does it look what is there.
func migrate(ctx context.Context, conn *pgx.Conn, list []migration, wait time.Duration) (from, to int, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d; SELECT pg_advisory_xact_lock(%d)", wait.Milliseconds(), migrationKey))
		if err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
		if from, err = schemaVersion(ctx, tx, list); err != nil {
			return err
		}
		for i, m := range list[from:] {
			if from+i == 0 {
				m.sql = "CREATE TABLE schema_migrations (version INT PRIMARY KEY, name TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now());\n" + m.sql
			}
			if _, err = tx.Exec(ctx, m.sql); err == nil {
				_, err = tx.Exec(ctx, "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", from+i+1, m.name)
			}
			if err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
		}
		return nil
	})
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "55P03":
		err = &task.Error{
			Code:    task.CodeBusy,
			Message: fmt.Sprintf("the schema was not changed: for %s somebody else has changed it, or has locked one of its tables", wait),
			Hint:    `try again; "SELECT * FROM pg_stat_activity" in the database shows who is at work`,
		}
	case err == nil:
		return from, len(list), nil
	}
	return from, from, err
}

// checkSchema returns nil if the schema is the one that this program needs; errNoSchema
// if there is none; else a *task.Error.
func checkSchema(ctx context.Context, q querier) error {
	version, err := schemaVersion(ctx, q, migrations())
	switch {
	case err != nil:
		return err
	case version == 0:
		return errNoSchema
	case version < len(migrations()):
		return conflict(`when all hosts that use it have this stint: "stint sync migrate"`, "the database's schema has version %d, and this stint needs %d", version, len(migrations()))
	}
	return checkTables(ctx, q)
}

// checkTables returns an error if somebody has dropped one of our tables: no migration
// makes it again.
func checkTables(ctx context.Context, q querier) error {
	there, err := tablesThere(ctx, q)
	for _, name := range ourTables {
		if err == nil && !slices.Contains(there, name) {
			err = conflict("drop the tables of stint that are left (CASCADE), schema_migrations too, or name an empty database; then: stint sync once",
				"the database has stint's schema without its table %s", name)
		}
	}
	return err
}

// schemaVersion returns the version of the schema; 0 if there is none of it. The error is
// a *task.Error if the schema is newer than list, or somebody else's.
func schemaVersion(ctx context.Context, q querier, list []migration) (int, error) {
	const hint = "nothing was changed; give stint a database, or a schema, of its own"
	tables, err := tablesThere(ctx, q)
	switch {
	case err != nil || len(tables) == 0:
		return 0, err
	case !slices.Contains(tables, "schema_migrations"):
		return 0, conflict(hint, "the database has a table %s that is not stint's", tables[0])
	}
	// Several programs call a table so, with other columns.
	rows, _ := q.Query(ctx, "SELECT coalesce(to_jsonb(m)->>'name', '') FROM schema_migrations m ORDER BY 1") // CollectRows returns the error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	for i := range max(1, min(len(names), len(list))) {
		if i >= len(names) || names[i] != list[i].name {
			return 0, conflict(hint, "the database has a table schema_migrations that is not stint's, or not as stint left it: it lacks %s", list[i].name)
		}
	}
	if len(names) > len(list) {
		return 0, conflict("install a newer stint on this host", "the database's schema has version %d, and this stint knows those up to %d", len(names), len(list))
	}
	return len(names), nil
}

// tablesThere returns those of our tables' names that exist in the connection's schema:
// the first one of its search path, where a new table would be.
func tablesThere(ctx context.Context, q querier) (tables []string, err error) {
	const sql = `SELECT current_schema(), ARRAY(
		SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = current_schema() AND c.relname::text = ANY($1::text[]) ORDER BY array_position($1::text[], c.relname::text))`
	var schema *string
	if err := q.QueryRow(ctx, sql, slices.Concat(ourTables, ourViews, []string{"schema_migrations"})).Scan(&schema, &tables); err != nil {
		return nil, fmt.Errorf("look for the tables: %w", err)
	}
	if schema == nil {
		return nil, conflict("create that schema, or grant the role USAGE and CREATE on it",
			"the database has no schema for the tables: the role's search_path names none that exists and that the role may use")
	}
	return tables, nil
}

func conflict(hint, format string, args ...any) error {
	return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf(format, args...), Hint: hint}
}
