package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stint/coordinator"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations gives what makes the schema, in order. What was released is never changed: a change
// is a file of its own behind them.
var migrations = sync.OnceValue(func() []migration { return mustReadMigrations(migrationFiles) })

const (
	// migrationKey is the advisory lock that a migration holds: "stint" in ASCII.
	migrationKey = 0x7374696e74
	// migrationWait is how long a migration waits for that lock, or for a table.
	migrationWait = 30 * time.Second
	// lockNotAvailable is PostgreSQL's code of a wait that took too long.
	lockNotAvailable = "55P03"
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

// A migration is one step of the schema. The file 0002_mirror.sql is number 2.
type migration struct {
	version int
	name    string // "0002_mirror"
	sql     string
}

// A querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func mustReadMigrations(files fs.FS) []migration {
	list, err := readMigrations(files)
	if err != nil {
		panic(err) // they are part of the program
	}
	return list
}

// readMigrations gives the files migrations/NNNN_NAME.sql, which must be numbered from
// 1 without a gap.
func readMigrations(files fs.FS) ([]migration, error) {
	paths, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var list []migration
	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "migrations/"), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(list)+1 || len(number) != 4 || len(name) < 6 {
			return nil, fmt.Errorf("%s is not named like %04d_name.sql, the next one", path, len(list)+1)
		}
		sql, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		list = append(list, migration{version, name, string(sql)})
	}
	return list, nil
}

// newest is the version of the schema that this program needs.
func newest() int { return len(migrations()) }

// Migrate connects to the database of o and brings its schema to the newest version. It
// gives the versions before and after, also when it fails in between: each step is
// either done or not, and the next call goes on.
func Migrate(ctx context.Context, o Options) (from, to int, err error) {
	pool, t, err := o.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, 0, explain(err, t)
	}
	defer conn.Release()
	from, to, err = migrate(ctx, conn.Conn())
	return from, to, explain(err, t)
}

// migrate brings the schema to the newest version, whoever else does the same.
func migrate(ctx context.Context, conn *pgx.Conn) (from, to int, err error) {
	if from, to, err = (migrator{migrations(), migrationWait}).run(ctx, conn); err == nil {
		err = checkTables(ctx, conn)
	}
	return from, to, err
}

// A migrator goes forward only. The lock belongs to each step's transaction, so it ends
// with it in whatever way that ends, also behind a pooler that lends connections by the
// transaction.
type migrator struct {
	list []migration
	wait time.Duration
}

// run makes the steps that are missing, and gives the versions before and after.
func (m migrator) run(ctx context.Context, conn *pgx.Conn) (from, to int, err error) {
	from, to, err = m.step(ctx, conn)
	for err == nil && to < len(m.list) {
		var next int
		if _, next, err = m.step(ctx, conn); err == nil {
			to = next
		}
	}
	return from, to, err
}

// step makes what goes into one transaction: the next migration; in an empty database
// all of them, as one that was left in between would wait for a person, like any older
// schema. Only with the lock does it look what is there.
func (m migrator) step(ctx context.Context, conn *pgx.Conn) (from, to int, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		err := m.lock(ctx, tx)
		if err == nil {
			from, err = m.version(ctx, tx)
		}
		if to = min(from+1, len(m.list)); from == 0 {
			to = len(m.list)
		}
		for i := from; i < to && err == nil; i++ {
			err = m.list[i].apply(ctx, tx)
		}
		return err
	})
	if err != nil {
		return from, from, m.explainWait(err)
	}
	return from, to, nil
}

// lock takes the lock that all migrations in a database need.
func (m migrator) lock(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", m.wait.Milliseconds())); err != nil {
		return fmt.Errorf("bound the wait of a migration: %w", err)
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", migrationKey)); err != nil {
		return fmt.Errorf("wait for another migration: %w", err)
	}
	return nil
}

// apply makes the tables of that migration, and notes it.
func (g migration) apply(ctx context.Context, tx pgx.Tx) error {
	if g.version == 1 {
		const sql = "CREATE TABLE schema_migrations (version INT PRIMARY KEY, name TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the table schema_migrations: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, g.sql); err != nil {
		return fmt.Errorf("migration %s: %w", g.name, err)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO schema_migrations (version, name) VALUES ($1, $2)", g.version, g.name); err != nil {
		return fmt.Errorf("note migration %s: %w", g.name, err)
	}
	return nil
}

// explainWait says what the wait was for, if it took too long.
func (m migrator) explainWait(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != lockNotAvailable {
		return err
	}
	return &coordinator.Error{
		Code:    coordinator.CodeBusy,
		Message: fmt.Sprintf("the schema was not changed: for %s somebody else has changed it, or has held one of its tables", m.wait),
		Hint:    `try again; "SELECT * FROM pg_stat_activity" in the database says who is at work`,
	}
}

// checkSchema says whether the schema is the one that this program needs: nil;
// errNoSchema, if there is none; else an *Error that says what to do.
func checkSchema(ctx context.Context, q querier) error {
	version, err := schemaVersion(ctx, q)
	switch {
	case err != nil:
		return err
	case version == 0:
		return errNoSchema
	case version < newest():
		return &coordinator.Error{
			Code:    coordinator.CodeConflict,
			Message: fmt.Sprintf("the database's schema has version %d, and this stint needs %d", version, newest()),
			Hint:    `when all hosts that use it have this stint: "stint sync migrate"`,
		}
	}
	return checkTables(ctx, q)
}

// beginAnew is what helps where somebody has taken away a part of the schema.
const beginAnew = "drop the tables of stint that are left (CASCADE), schema_migrations too, or name an empty database; then: stint sync once"

// checkTables says which of our tables somebody has dropped: no migration makes it again.
func checkTables(ctx context.Context, q querier) error {
	there, err := tablesThere(ctx, q)
	if err != nil {
		return err
	}
	for _, name := range ourTables {
		if !slices.Contains(there, name) {
			return &coordinator.Error{
				Code:    coordinator.CodeConflict,
				Message: fmt.Sprintf("the database has stint's schema without its table %s", name),
				Hint:    beginAnew,
			}
		}
	}
	return nil
}

// schemaVersion gives the version of the schema; 0 if there is none of it. The error is
// an *Error if the schema is newer than this program, or somebody else's.
func schemaVersion(ctx context.Context, q querier) (int, error) {
	return migrator{list: migrations()}.version(ctx, q)
}

// version is schemaVersion for the migrations of m.
func (m migrator) version(ctx context.Context, q querier) (int, error) {
	tables, err := tablesThere(ctx, q)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(tables, "schema_migrations") {
		if len(tables) > 0 {
			return 0, foreign("the database has a table %s that is not stint's", tables[0])
		}
		return 0, nil
	}
	names, err := applied(ctx, q)
	if err != nil {
		return 0, err
	}
	for i, name := range names[:min(len(names), len(m.list))] {
		if name != m.list[i].name {
			return 0, foreign("the database's table schema_migrations says %q where stint has %q", name, m.list[i].name)
		}
	}
	if len(names) > len(m.list) {
		return 0, &coordinator.Error{
			Code:    coordinator.CodeConflict,
			Message: fmt.Sprintf("the database's schema has version %d, and this stint knows those up to %d", len(names), len(m.list)),
			Hint:    "install a newer stint on this host",
		}
	}
	return len(names), nil
}

// tablesThere gives those of our tables' names that the schema of the connection has
// already: the first one of its search path, where a new table would be.
func tablesThere(ctx context.Context, q querier) ([]string, error) {
	const sql = `SELECT current_schema(), ARRAY(
		SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = current_schema() AND c.relname::text = ANY($1::text[]) ORDER BY array_position($1::text[], c.relname::text))`
	var schema *string
	var tables []string
	if err := q.QueryRow(ctx, sql, slices.Concat(ourTables, ourViews, []string{"schema_migrations"})).Scan(&schema, &tables); err != nil {
		return nil, fmt.Errorf("look for the tables: %w", err)
	}
	if schema == nil {
		return nil, &coordinator.Error{
			Code:    coordinator.CodeForbidden,
			Message: "the database has no schema for the tables: the role's search_path names none that is there and that the role may use",
			Hint:    "create that schema, or grant the role USAGE and CREATE on it",
		}
	}
	return tables, nil
}

// applied gives the names of the migrations that were made, in order.
func applied(ctx context.Context, q querier) ([]string, error) {
	rows, err := q.Query(ctx, "SELECT version::bigint, name::text FROM schema_migrations ORDER BY version")
	if err != nil {
		return nil, othersTable(err)
	}
	type row struct {
		version int
		name    string
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (one row, err error) {
		return one, r.Scan(&one.version, &one.name)
	})
	if err != nil {
		return nil, othersTable(err)
	}
	if len(list) == 0 { // ours is made with its first row
		return nil, foreign("the database has a table schema_migrations that is empty")
	}
	var names []string
	for i, one := range list {
		if one.version != i+1 {
			return nil, foreign("the database's table schema_migrations has version %d, and not %d", one.version, i+1)
		}
		names = append(names, one.name)
	}
	return names, nil
}

// othersTable gives the error of a schema_migrations that has other columns than ours:
// several programs call a table so.
func othersTable(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && slices.Contains([]string{"42703", "42846", "22P02"}, pg.Code) { // no such column, no such cast, not a number
		return foreign("the database's table schema_migrations is not stint's")
	}
	return fmt.Errorf("read the version of the schema: %w", err)
}

func foreign(format string, args ...any) error {
	return &coordinator.Error{
		Code:    coordinator.CodeConflict,
		Message: fmt.Sprintf(format, args...),
		Hint:    "nothing was changed; give stint a database, or a schema, of its own",
	}
}
