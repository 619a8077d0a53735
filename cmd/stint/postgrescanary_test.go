package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

// TestPromise11NoDatabasePassword: the password of the copy's database is in no file, in
// nothing that a command prints, on no command line and in no agent's environment: of a
// URL that leads nowhere, of one that is broken, and of one in a file.
func TestPromise11NoDatabasePassword(t *testing.T) {
	t.Parallel()
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	secret := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(secret, []byte("postgres://ana:"+postgresCanary+"@127.0.0.1:1/audit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, setting := range map[string]string{
		"nobody listens": "STINT_POSTGRES_URL=postgres://ana:" + postgresCanary + "@127.0.0.1:1/audit",
		"no URL":         "STINT_POSTGRES_URL=" + postgresCanary,
		"in a file":      "STINT_POSTGRES_URL_FILE=" + secret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lookForPassword(t, setting, "the copy in PostgreSQL waits", func(s *task.MirrorStatus) bool { return s.Failures > 0 })
		})
	}
}

// TestPromise11NoDatabasePasswordInTheCopy: likewise of a database that has a copy, whose
// tables do not hold it either.
func TestPromise11NoDatabasePasswordInTheCopy(t *testing.T) {
	t.Parallel()
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	server := postgrestest.Shared(t)
	url := strings.Replace(server.Database(t), "postgres@", "postgres:"+postgresCanary+"@", 1)
	state := lookForPassword(t, "STINT_POSTGRES_URL="+url, "the copy in PostgreSQL: following", func(s *task.MirrorStatus) bool {
		return s.State == task.MirrorFollowing
	})
	if !poll(scriptDeadline, func() bool { s := copyOf(state); return s.Seq > 3 && s.LagRecords == 0 }) {
		t.Errorf("the copy is %+v", copyOf(state))
	}
	if rows := searchTables(t, url); rows < 10 {
		t.Errorf("%d rows were searched", rows)
	}
}

// searchTables looks for the password in all rows of the copy, and counts them.
func searchTables(t *testing.T, url string) (rows int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }() // it was only read
	for _, table := range []string{"tasks", "task_runs", "task_files", "accounts", "worker_registry", "mirrors", "pg_stat_activity"} {
		found, err := conn.Query(t.Context(), "SELECT t::text FROM "+table+" t WHERE t::text NOT LIKE '%SELECT%'") // our own
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if rows++; strings.Contains(text, postgresCanary) {
				t.Errorf("the password is in table %s: %s", table, text)
			}
		}
	}
	return rows
}

// lookForPassword has a master work with that setting until the copy is as it is to be,
// which its log then says, and looks everywhere.
func lookForPassword(t *testing.T, setting, says string, isThere func(*task.MirrorStatus) bool) (state string) {
	t.Helper()
	w := newWorld(t, 1, setting, "PGPASSWORD="+postgresCanary, "STINT_LOG_LEVEL=debug", "STINT_HEARTBEAT_INTERVAL=50ms")
	secrets := map[string]string{"password": postgresCanary}
	l := w.serve()
	t.Cleanup(func() {
		w.end(l, syscall.SIGTERM)
		w.searchFiles(secrets) // what it wrote at its end
	})
	if !poll(scriptDeadline, func() bool { s := copyOf(w.state); return s != nil && isThere(s) }) {
		t.Fatalf("the copy is %+v", copyOf(w.state))
	}
	running := w.run("task", "-d", "demo:sleep=300")
	done := w.run("task", "--json", "--session", "done", "demo:say=well")
	if !poll(scriptDeadline, func() bool { return w.searchProcesses(running, secrets) > 0 }) {
		t.Error("no agent's environment was seen")
	}
	printed := map[string]string{"task": done}
	for _, command := range []string{"show --json " + running, "config show --origin", "config show --json", "doctor", "doctor --json", "ls --json", "__complete serve --postgres "} {
		args := strings.Split(command, " ")
		printed[command] = w.run(args[0], args[1:]...)
	}
	w.run("cancel", running)
	for command, text := range printed {
		if text == "" || strings.Contains(text, postgresCanary) {
			t.Errorf("stint %s prints %s", command, text)
		}
	}
	if !strings.Contains(l.said(), says) {
		t.Errorf("the log says nothing of the copy:\n%s", l.said())
	}
	w.searchFiles(secrets)
	return w.state
}

// copyOf returns how the copy is, as the heartbeat has it; nil if that does not say.
func copyOf(state string) *task.MirrorStatus {
	data, err := os.ReadFile(filepath.Join(state, "heartbeat.json"))
	var h task.Health
	if err != nil || json.Unmarshal(data, &h) != nil {
		return nil
	}
	return h.Postgres
}
