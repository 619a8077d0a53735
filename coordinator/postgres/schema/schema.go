// Package schema is the schema of the mirror in PostgreSQL: the steps that make it, and the checks that a database has it.
package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

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
		list = append(list, migration{strings.TrimSuffix(e.Name(), ".sql"), string(sql)})
	}
	return list
})

const (
	migrationKey  = 0x7374696e74     // the advisory lock that a migration holds: "stint" in ASCII
	migrationWait = 30 * time.Second // for that lock, or for a table
)

// ErrNone: the database has none of our tables, and nobody else's by their names.
var ErrNone = errors.New("the database has no tables of stint")

// Tables and views are the names that must be free where there is no schema of ours. What
// writes or compares needs all of the tables, and none of the views.
var (
	Tables = []string{"tasks", "task_runs", "task_files", "accounts", "worker_registry", "mirrors"}
	views  = []string{"concurrency_limits", "worker_groups"}
)

// A Querier is a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A Database is a connection or a pool.
type Database interface {
	Querier
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Newest returns the version of the schema that this program needs.
func Newest() int { return len(migrations()) }

// Migrate brings the schema to the newest version, in one transaction. It returns the versions before and after.
func Migrate(ctx context.Context, db Database) (from, to int, err error) {
	if from, to, err = migrate(ctx, db, migrations(), migrationWait); err == nil {
		err = checkTables(ctx, db)
	}
	return from, to, err
}

// migrate makes the steps that are missing. Other hosts may do the same: the lock ends with the transaction, also behind a
// pooler that lends connections by the transaction, and only with the lock does it look what is there.
func migrate(ctx context.Context, db Database, list []migration, wait time.Duration) (from, to int, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
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
	if err == nil {
		return from, len(list), nil
	}
	return from, from, err
}

// Ensure checks the schema, and makes it in an empty database. One that is older or newer than this program is
// refused: other hosts may need it as it is.
func Ensure(ctx context.Context, db Database) error {
	err := Check(ctx, db)
	if errors.Is(err, ErrNone) {
		_, _, err = Migrate(ctx, db)
	}
	return err
}

// Check returns nil if the schema is the one that this program needs, ErrNone if there is none, else a *task.Error.
func Check(ctx context.Context, q Querier) error {
	version, err := schemaVersion(ctx, q, migrations())
	switch {
	case err != nil:
		return err
	case version == 0:
		return ErrNone
	case version < Newest():
		return task.Conflict(`when all hosts that use it have this stint: "stint sync migrate"`, "the database's schema has version %d, and this stint needs %d", version, Newest())
	}
	return checkTables(ctx, q)
}

// checkTables returns an error if somebody has dropped one of our tables: no migration makes it again.
func checkTables(ctx context.Context, q Querier) error {
	there, err := tablesThere(ctx, q)
	for _, name := range Tables {
		if err == nil && !slices.Contains(there, name) {
			err = task.Conflict("drop the tables of stint that are left (CASCADE), schema_migrations too, or name an empty database; then: stint sync once",
				"the database has stint's schema without its table %s", name)
		}
	}
	return err
}

// schemaVersion returns the version of the schema; 0 if there is none of it. The error is
// a *task.Error if the schema is newer than list, or somebody else's.
func schemaVersion(ctx context.Context, q Querier, list []migration) (int, error) {
	const hint = "nothing was changed; give stint a database, or a schema, of its own"
	tables, err := tablesThere(ctx, q)
	switch {
	case err != nil || len(tables) == 0:
		return 0, err
	case !slices.Contains(tables, "schema_migrations"):
		return 0, task.Conflict(hint, "the database has a table %s that is not stint's", tables[0])
	}
	// Several programs call a table so, with other columns.
	rows, _ := q.Query(ctx, "SELECT coalesce(to_jsonb(m)->>'name', '') FROM schema_migrations m ORDER BY 1") // CollectRows returns the error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	for i := range max(1, min(len(names), len(list))) {
		if i >= len(names) || names[i] != list[i].name {
			return 0, task.Conflict(hint, "the database has a table schema_migrations that is not stint's, or not as stint left it: it lacks %s", list[i].name)
		}
	}
	if len(names) > len(list) {
		return 0, task.Conflict("install a newer stint on this host", "the database's schema has version %d, and this stint knows those up to %d", len(names), len(list))
	}
	return len(names), nil
}

// tablesThere returns those of our tables' names that exist in the connection's schema:
// the first one of its search path, where a new table would be.
func tablesThere(ctx context.Context, q Querier) (tables []string, err error) {
	const sql = `SELECT ARRAY(
		SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = current_schema() AND c.relname::text = ANY($1::text[]) ORDER BY array_position($1::text[], c.relname::text))`
	if err := q.QueryRow(ctx, sql, slices.Concat(Tables, views, []string{"schema_migrations"})).Scan(&tables); err != nil {
		return nil, fmt.Errorf("look for the tables: %w", err)
	}
	return tables, nil
}
