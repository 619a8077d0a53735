package schema

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

var update = flag.Bool("update", false, "write the golden files")

// open returns a connection that is closed with the test.
func open(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // it may have been cut
	return conn
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do runs statements.
func do(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// empty returns a connection to a new database.
func empty(t *testing.T) *pgx.Conn {
	t.Helper()
	return open(t, postgrestest.Shared(t).Database(t))
}

// migrateTo makes the first n migrations.
func migrateTo(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	_, _, err := migrate(t.Context(), conn, migrations()[:n], time.Minute)
	must(t, err)
}

// migrated returns a connection to a new database with the newest schema.
func migrated(t *testing.T) *pgx.Conn {
	t.Helper()
	conn := empty(t)
	migrateTo(t, conn, Newest())
	return conn
}

// tablesOf counts what is in the schemas that are not PostgreSQL's own.
func tablesOf(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	const sql = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"
	must(t, conn.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// TestMigrate: an empty database gets the newest schema, once.
func TestMigrate(t *testing.T) {
	conn := empty(t)
	if err := Check(t.Context(), conn); !errors.Is(err, ErrNone) {
		t.Errorf("an empty database: %v", err)
	}
	for _, want := range []int{0, Newest()} {
		from, to, err := Migrate(t.Context(), conn)
		if from != want || to != Newest() || err != nil {
			t.Errorf("from %d to %d, want %d: %v", from, to, want, err)
		}
		must(t, Check(t.Context(), conn))
	}
}

// TestMigrateAtOnce: hosts that start at the same time do not get into each other's way.
func TestMigrateAtOnce(t *testing.T) {
	url := postgrestest.Shared(t).Database(t)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for range 8 {
		conn := open(t, url)
		wg.Go(func() {
			<-begin
			if _, to, err := migrate(t.Context(), conn, migrations(), time.Minute); to != Newest() || err != nil {
				t.Errorf("to %d, %v", to, err)
			}
		})
	}
	close(begin)
	wg.Wait()
	must(t, Check(t.Context(), open(t, url)))
}

// TestMigrateKilled: wherever a migration is cut off, or fails, nothing of it is there, and
// the next one makes it all.
func TestMigrateKilled(t *testing.T) {
	url := postgrestest.Shared(t).Database(t)
	watch := open(t, url)
	for i, m := range migrations() {
		before := tablesOf(t, watch)
		statements := strings.SplitAfter(m.sql, ";\n")
		for n := range len(statements) + 1 {
			for _, end := range []string{"SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1/0"} {
				cut := migration{m.name, strings.Join(statements[:n], "") + "; " + end}
				list := append(append([]migration{}, migrations()[:i]...), cut)
				conn := open(t, url)
				from, to, err := migrate(t.Context(), conn, list, time.Minute)
				_ = conn.Close(t.Context()) // it may have been cut; a server has not many
				if from != i || to != i || err == nil {
					t.Fatalf("%s, cut after %d statements: from %d to %d, %v", m.name, n, from, to, err)
				}
				if after := tablesOf(t, watch); after != before {
					t.Fatalf("%s, cut after %d statements: %d tables and indexes of it are there", m.name, n, after-before)
				}
			}
		}
		from, to, err := migrate(t.Context(), open(t, url), migrations()[:i+1], time.Minute)
		if from != i || to != i+1 || err != nil {
			t.Fatalf("from %d to %d, %v", from, to, err)
		}
	}
	must(t, Check(t.Context(), watch))
}

// TestMigrateWithRows: what mirrors and other programs have left in the tables of version 3 is there in the newest.
func TestMigrateWithRows(t *testing.T) {
	conn := empty(t)
	migrateTo(t, conn, 3)
	do(t, conn, `INSERT INTO accounts (id, host, tool, max_concurrency) VALUES ('laptop/codex', 'laptop', 'codex', 4), ('codex-main', NULL, 'codex', 4);
		INSERT INTO worker_registry (worker_id, group_name, hostname, pid) VALUES (gen_random_uuid(), 'laptop', 'laptop', 1);
		INSERT INTO mirrors (host, state_dir, seq, settings, version) VALUES ('laptop', '/s', 7, '', '1');
		INSERT INTO tasks (host, status, session_key, leased_by, prompt) SELECT 'laptop', 'running', 'web', 'laptop/codex', 'mirrored' FROM generate_series(1, 3);
		INSERT INTO tasks (status, session_key, output_spec, prompt) SELECT 'running', 'web', '["a"]', 'of another program' FROM generate_series(1, 3);
		INSERT INTO tasks (prompt, input_files) VALUES ('plain', '{}')`)
	from, to, err := Migrate(t.Context(), conn)
	if from != 3 || to != Newest() || err != nil {
		t.Fatal(from, to, err)
	}
	for sql, want := range map[string]string{
		"SELECT string_agg(n, ', ' ORDER BY n) FROM (SELECT concat_ws(' ', count(*), host, status, session_key, leased_by, prompt, output_spec) n FROM tasks GROUP BY host, status, session_key, leased_by, prompt, output_spec) r": `1 queued plain [], 3 laptop running web laptop/codex mirrored [], 3 queued web of another program ["a"]`,
		"SELECT concat_ws(' ', group_name IS NULL, hostname, draining, state_dir IS NULL) FROM worker_registry":                                                                                                                     "t laptop f t",
		"SELECT concat_ws(' ', host, seq) FROM mirrors":                               "laptop 7",
		"SELECT string_agg(concat_ws(' ', id, host), ', ' ORDER BY id) FROM accounts": "codex-main, laptop/codex laptop",
	} {
		var got string
		if must(t, conn.QueryRow(t.Context(), sql).Scan(&got)); got != want {
			t.Errorf("%s:\n%s, want\n%s", sql, got, want)
		}
	}
	do(t, conn, `INSERT INTO tasks (prompt, output_files) VALUES ('new', '["b"]')`)
	var n int
	must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM tasks WHERE output_spec = '["b"]' AND output_files IS NULL`).Scan(&n))
	if n != 1 {
		t.Error("output_files are not taken for output_spec")
	}
}

// TestMigrateBusy: a migration does not wait for ever.
func TestMigrateBusy(t *testing.T) {
	for name, held := range map[string]string{
		"by another migration": fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", migrationKey),
		"by who uses a table":  "LOCK TABLE tasks IN ACCESS SHARE MODE",
	} {
		t.Run(name, func(t *testing.T) {
			url := postgrestest.Shared(t).Database(t)
			conn := open(t, url)
			migrateTo(t, conn, 1)
			other := open(t, url)
			do(t, other, "BEGIN; "+held)
			_, _, err := migrate(t.Context(), conn, migrations(), 50*time.Millisecond)
			if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
				t.Errorf("%v", err)
			}
			do(t, other, "COMMIT")
			if from, to, err := migrate(t.Context(), conn, migrations(), time.Minute); from != 1 || to != Newest() || err != nil {
				t.Errorf("from %d to %d, %v", from, to, err)
			}
		})
	}
}

// TestSchemaRefused: a schema that is not the newest is left as it is, and said in a
// sentence; so is a database that has another use.
func TestSchemaRefused(t *testing.T) {
	t.Parallel()
	newer := fmt.Sprintf("INSERT INTO schema_migrations (version, name) VALUES (%d, 'what comes')", Newest()+1)
	for name, c := range map[string]struct {
		ours int    // so many migrations are made
		sql  string // and this
		want string
	}{
		"newer":              {Newest(), newer, "install a newer stint"},
		"tables of others":   {0, "CREATE TABLE task_runs (id INT)", "a table task_runs that is not stint's"},
		"a view of others":   {0, "CREATE VIEW accounts AS SELECT 1 AS id", "a table accounts that is not stint's"},
		"of Rails":           {0, "CREATE TABLE schema_migrations (version VARCHAR PRIMARY KEY); INSERT INTO schema_migrations VALUES ('20260101')", "a table schema_migrations that is not stint's"},
		"of Rails, named":    {0, "CREATE TABLE schema_migrations (version VARCHAR PRIMARY KEY, name TEXT); INSERT INTO schema_migrations VALUES ('first', '')", "a table schema_migrations that is not stint's"},
		"a number of others": {0, "CREATE TABLE schema_migrations (version BIGINT, name TEXT); INSERT INTO schema_migrations VALUES (20260101, '')", "a table schema_migrations that is not stint's"},
		"a name of others":   {0, "CREATE TABLE schema_migrations (version INT, name TEXT); INSERT INTO schema_migrations VALUES (1, '0001_users')", "it lacks 0001_scheduler"},
		"of golang-migrate":  {0, "CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY, dirty BOOLEAN)", "a table schema_migrations that is not stint's"},
		"emptied":            {Newest(), "DELETE FROM schema_migrations", "it lacks 0001_scheduler"},
		"a gap":              {Newest(), "DELETE FROM schema_migrations WHERE version = 1", "it lacks 0001_scheduler"},
		"a table is gone":    {Newest(), "DROP TABLE task_files", "without its table task_files"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := empty(t)
			if c.ours > 0 {
				migrateTo(t, conn, c.ours)
			}
			do(t, conn, c.sql)
			before := tablesOf(t, conn)
			_, _, err := migrate(t.Context(), conn, migrations(), time.Minute)
			if err == nil {
				err = checkTables(t.Context(), conn) // as Migrate does
			}
			for _, err := range []error{err, Check(t.Context(), conn)} {
				var e *task.Error
				if !errors.As(err, &e) || !strings.Contains(e.Error(), c.want) || e.Hint == "" {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
			if after := tablesOf(t, conn); after != before {
				t.Errorf("it has made %d tables and indexes", after-before)
			}
		})
	}
}

// TestBeginAnew: whichever table was dropped, it is said, and what is said then helps.
func TestBeginAnew(t *testing.T) {
	t.Parallel()
	for _, name := range Tables {
		conn := migrated(t)
		do(t, conn, "DROP TABLE "+name+" CASCADE")
		var e *task.Error
		if err := Check(t.Context(), conn); !errors.As(err, &e) || !strings.HasSuffix(e.Hint, "then: stint sync once") || !strings.HasSuffix(e.Message, " "+name) {
			t.Errorf("without %s: %v", name, err)
		}
		do(t, conn, "DROP TABLE IF EXISTS schema_migrations, task_queue, job_runs, server_metrics, usage_daily, "+strings.Join(Tables, ", ")+" CASCADE")
		if _, _, err := migrate(t.Context(), conn, migrations(), time.Minute); err != nil {
			t.Errorf("begun anew after %s: %v", name, err)
		}
	}
}

// TestOlderSchema: it is said, and left to a person, as other hosts may need it as it is.
func TestOlderSchema(t *testing.T) {
	conn := empty(t)
	migrateTo(t, conn, 1)
	var e *task.Error
	if err := Check(t.Context(), conn); !errors.As(err, &e) || !strings.Contains(e.Hint, `"stint sync migrate"`) {
		t.Error(err)
	}
}

// TestMigrateSearchPath: the tables are made where the role's new tables are, whatever
// else is in the database.
func TestMigrateSearchPath(t *testing.T) {
	url := postgrestest.Shared(t).Database(t)
	do(t, open(t, url), `CREATE TABLE public.tasks (id INT); CREATE TABLE public.schema_migrations (id INT); CREATE SCHEMA "My App"`)
	conn := open(t, url+"&search_path="+`%22My%20App%22,public`)
	from, to, err := migrate(t.Context(), conn, migrations(), time.Minute)
	if from != 0 || to != Newest() || err != nil {
		t.Fatalf("from %d to %d, %v", from, to, err)
	}
	must(t, Check(t.Context(), conn))
	do(t, conn, `INSERT INTO "My App".tasks (prompt) VALUES ('p')`)
	if _, _, err := migrate(t.Context(), open(t, url+"&search_path=nowhere"), migrations(), time.Minute); err == nil || !strings.Contains(err.Error(), "no schema has been selected") {
		t.Errorf("nowhere: %v", err)
	}
}

// schemaSQL returns the schema in lines: columns, checks and keys, indexes.
const schemaSQL = `
WITH ours AS (
	SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema()
), lines (place, line) AS (
	SELECT c.relname || ' 1 ' || to_char(a.attnum, '000'), concat_ws(' ', CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END,
		c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END, 'default ' || pg_get_expr(d.adbin, d.adrelid))
	FROM ours c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
	WHERE c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
	UNION ALL
	SELECT c.relname || ' 2 ' || k.conname, concat_ws(' ', 'constraint', c.relname, k.conname, pg_get_constraintdef(k.oid))
	FROM ours c JOIN pg_constraint k ON k.conrelid = c.oid WHERE k.contype <> 'n'
	UNION ALL
	SELECT tablename || ' 3 ' || indexname, replace(indexdef, current_schema() || '.', '') FROM pg_indexes WHERE schemaname = current_schema()
)
SELECT line FROM lines ORDER BY place COLLATE "C"`

// TestSchema: the schema is what the golden file has.
func TestSchema(t *testing.T) {
	rows, _ := migrated(t).Query(t.Context(), schemaSQL)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	got, golden := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", "schema.golden")
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("the schema differs from %s (-update writes it): %v\n%s", golden, err, got)
	}
}

// TestSchemaExplained: each table and view says in the database what it is for.
func TestSchemaExplained(t *testing.T) {
	const sql = `SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v')
		AND obj_description(oid) IS NULL AND relname <> 'schema_migrations'`
	rows, _ := migrated(t).Query(t.Context(), sql)
	if names, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(names) > 0 {
		t.Errorf("without a comment: %v, %v", names, err)
	}
}

// TestConcurrencyIsCounted: how many runs an account has is no number that is kept.
func TestConcurrencyIsCounted(t *testing.T) {
	conn := migrated(t)
	do(t, conn, `INSERT INTO accounts (id, group_name, tool, name, env_vars, max_concurrency) VALUES
		('codex-main', 'main', 'codex', 'Ana', '{"CODEX_HOME": "/home/ana/.codex"}', 3), ('idle', 'idle', 'gemini', NULL, '{}', 1)`)
	for _, status := range []string{"leased", "running", "succeeded"} {
		do(t, conn, "INSERT INTO tasks (prompt) VALUES ('"+status+"')")
		do(t, conn, "UPDATE tasks SET leased_by = 'codex-main', status = prompt WHERE prompt = '"+status+"'")
	}
	const sql = `SELECT string_agg(concat_ws(' ', g.*, l.*), E'\n' ORDER BY l.scope)
		FROM worker_groups g JOIN accounts a USING (group_name) JOIN concurrency_limits l ON l.scope = 'account:' || a.id`
	var got string
	must(t, conn.QueryRow(t.Context(), sql).Scan(&got))
	want := "(main,codex,Ana,3,2,\"{\"\"CODEX_HOME\"\": \"\"/home/ana/.codex\"\"}\") (account:codex-main,3,2)\n(idle,gemini,,1,0,{}) (account:idle,1,0)"
	if got != want {
		t.Errorf("%s", got)
	}
}
