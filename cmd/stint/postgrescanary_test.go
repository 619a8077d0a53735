package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"stint/coordinator"
	"stint/coordinator/postgres/postgrestest"
)

// TestPromise11NoDatabasePassword: the password of the copy's database is in no file, in
// nothing that a command prints, on no command line and in no agent's environment: of a
// URL that leads nowhere, of one that is broken, and of one in a file.
func TestPromise11NoDatabasePassword(t *testing.T) {
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	secret := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(secret, []byte("postgres://ana:"+postgresCanary+"@127.0.0.1:1/audit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, setting := range map[string]string{
		"nobody listens": "STINT_POSTGRES_URL=postgres://ana:" + postgresCanary + "@127.0.0.1:1/audit",
		"no port":        "STINT_POSTGRES_URL=postgres://ana:" + postgresCanary + "@127.0.0.1:port/audit",
		"no URL":         "STINT_POSTGRES_URL=" + postgresCanary,
		"keywords":       "STINT_POSTGRES_URL=host=127.0.0.1 port=1 password=" + postgresCanary,
		"in a file":      "STINT_POSTGRES_URL_FILE=" + secret,
	} {
		t.Run(name, func(t *testing.T) {
			lookForPassword(t, setting, "the copy in PostgreSQL waits", func(s *coordinator.MirrorStatus) bool { return s.Failures > 0 })
		})
	}
}

// TestPromise11NoDatabasePasswordInTheCopy: likewise of a database that has a copy, whose
// tables do not hold it either.
func TestPromise11NoDatabasePasswordInTheCopy(t *testing.T) {
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	server := postgrestest.Shared(t)
	url := strings.Replace(server.Database(t), "postgres@", "postgres:"+postgresCanary+"@", 1)
	state := lookForPassword(t, "STINT_POSTGRES_URL="+url, "the copy in PostgreSQL: following", func(s *coordinator.MirrorStatus) bool {
		return s.State == coordinator.MirrorFollowing
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
func lookForPassword(t *testing.T, setting, says string, isThere func(*coordinator.MirrorStatus) bool) (state string) {
	t.Helper()
	w := newCrashWorld(t, 1)
	w.env = append(w.env, setting, "PGPASSWORD="+postgresCanary, "STINT_LOG_LEVEL=debug", "STINT_HEARTBEAT_INTERVAL=50ms")
	logged := serveInWorld(t, w)
	if !poll(scriptDeadline, func() bool { s := copyOf(w.state); return s != nil && isThere(s) }) {
		t.Fatalf("the copy is %+v", copyOf(w.state))
	}
	running := w.run("task", "-d", "demo:sleep=300")
	done := w.run("task", "--json", "--session", "done", "demo:say=well")
	if !poll(scriptDeadline, func() bool { return searchAgents(t, running) > 0 }) {
		t.Error("no agent's environment was seen")
	}
	printed := map[string]string{"task": done}
	for _, command := range []string{"show --json " + running, "config show --origin", "config show --json", "doctor", "doctor --json", "ls --json", "__complete serve --postgres "} {
		name, args, _ := strings.Cut(command, " ")
		printed[command] = w.run(name, strings.Fields(args)...)
	}
	w.run("cancel", running)
	for command, text := range printed {
		if text == "" || strings.Contains(text, postgresCanary) {
			t.Errorf("stint %s prints %s", command, text)
		}
	}
	if log, err := os.ReadFile(logged); err != nil || !bytes.Contains(log, []byte(says)) {
		t.Errorf("the log says nothing of the copy: %v", err)
	}
	searchForPassword(t, filepath.Dir(w.state))
	return w.state
}

// serveInWorld runs a master until the test ends, and gives the file with its log.
func serveInWorld(t *testing.T, w *crashWorld) string {
	t.Helper()
	name := filepath.Join(filepath.Dir(w.state), "log")
	log, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the master has it
	serve := &exec.Cmd{Path: w.self, Args: []string{"stint", "serve"}, Env: w.env, Dir: w.work, Stderr: log}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGTERM) // or it has ended, which Wait tells
		if err := serve.Wait(); err != nil {
			t.Errorf("the master: %v", err)
		}
		searchForPassword(t, filepath.Dir(w.state)) // what it wrote at its end
	})
	return name
}

// copyOf gives how the copy is, as the heartbeat has it; nil if that does not say.
func copyOf(state string) *coordinator.MirrorStatus {
	data, err := os.ReadFile(filepath.Join(state, "heartbeat.json"))
	var h coordinator.Health
	if err != nil || json.Unmarshal(data, &h) != nil {
		return nil
	}
	return h.Postgres
}

// searchAgents looks for the password on all command lines and in the environments of a
// task's processes, and counts these.
func searchAgents(t *testing.T, task string) (agents int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range processes {
		environ, _ := os.ReadFile(dir + "/environ") // it may have ended, or be another user's
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		isAgent := bytes.Contains(environ, []byte("STINT_TASK_ID="+task))
		if isAgent {
			agents++
		}
		if bytes.Contains(cmdline, []byte(postgresCanary)) || isAgent && (bytes.Contains(environ, []byte(postgresCanary)) || bytes.Contains(environ, []byte("STINT_POSTGRES"))) {
			t.Errorf("the password is in %s: %q", dir, cmdline)
		}
	}
	return agents
}

// searchForPassword looks for the password in all files below a directory.
func searchForPassword(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var text []byte
		if err == nil && d.Type().IsRegular() {
			text, err = os.ReadFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // a file that a master has just renamed
			return nil
		}
		if err != nil || text == nil {
			return err
		}
		if files++; bytes.Contains(text, []byte(postgresCanary)) {
			t.Errorf("the password is in %s", path)
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("%d files were searched: %v", files, err)
	}
}
