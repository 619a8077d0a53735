package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

// letIn signs in as the page's script does, and gives the code, the cookie's value and the page's key.
func (w *pageWorld) letIn() (code, cookie, key string) {
	w.t.Helper()
	address := w.address()
	w.goTo(address)
	_, code, _ = strings.Cut(address, "#code=")
	resp, err := w.request("POST /ui/session", `{"code":"`+code+`"}`)
	must(w.t, err)
	defer func() { _ = resp.Body.Close() }() // it was only read
	var told struct{ Key string }
	if err := json.NewDecoder(resp.Body).Decode(&told); err != nil || len(resp.Cookies()) != 1 {
		w.t.Fatal(resp.Status, err)
	}
	return code, resp.Cookies()[0].Value, told.Key
}

// request makes a request of the page's port, as a program of this user does. A header is
// "Name: value"; the host is the page's, unless one says otherwise.
func (w *pageWorld) request(line, body string, headers ...string) (*http.Response, error) {
	w.t.Helper()
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.plain(), strings.NewReader(body))
	must(w.t, err)
	req.URL.Opaque, req.Host = path, strings.TrimPrefix(w.base, "http://")
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	return http.DefaultTransport.RoundTrip(req)
}

// TestPromise11NoSecretIsWritten: what lets somebody in over TCP is in no file, command line or environment,
// but the token in its own file; neither while it is used nor when it is refused.
func TestPromise11NoSecretIsWritten(t *testing.T) {
	t.Parallel()
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	w := newPageWorld(t, nil)
	token := get(t, filepath.Join(w.state, "token"))
	code, cookie, key := w.letIn()
	canaries := map[string]string{"token": strings.TrimSpace(string(token)), "code": code, "cookie": cookie, "key": key, "name": strings.TrimPrefix(strings.Split(w.base, ".")[0], "http://")}
	for _, header := range []string{"Authorization: Bearer " + canaries["token"], "Cookie: stint=" + cookie} {
		for _, request := range []string{"GET /", "GET /v1/tasks", "GET /nothing", "POST /v1/tasks", "GET /v1/tasks?token=" + canaries["token"], "POST /ui/session", "BAD / x"} {
			if resp, err := w.request(request, "{}", header, "Stint-Page: "+key); err == nil { // else the server has not understood it
				_ = resp.Body.Close() // what it says does not matter
			}
		}
	}
	running := w.run("task", "-d", "demo:sleep=300")
	w.run("task", "--session", "done", "demo:say=well")
	if !poll(scriptDeadline, func() bool { return w.searchProcesses(running, canaries) > 0 }) {
		t.Error("no agent's environment was seen")
	}
	w.run("cancel", running)
	files := w.searchFiles(canaries)
	if !t.Failed() {
		t.Logf("canaries: secrets=%d files=%d hits=0", len(canaries), files)
	}
}

// searchProcesses looks for secrets on the command lines and in the environments of all
// processes, and counts those of a task's agent. A password stint may have been given in
// its environment; its agents get nothing of PostgreSQL.
func (w *world) searchProcesses(task string, secrets map[string]string) (agents int) {
	w.t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	must(w.t, err)
	for _, dir := range processes {
		environ, _ := os.ReadFile(dir + "/environ") // it may have ended, or be another user's
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		isAgent := bytes.Contains(environ, []byte("STINT_TASK_ID="+task))
		if isAgent {
			agents++
		}
		for name, secret := range secrets {
			given := name == "password" && !isAgent // in the environment of stint itself
			if bytes.Contains(cmdline, []byte(secret)) || !given && bytes.Contains(environ, []byte(secret)) {
				w.t.Errorf("the %s is in %s: %q", name, dir, cmdline)
			}
		}
		if isAgent && bytes.Contains(environ, []byte("STINT_POSTGRES")) {
			w.t.Errorf("%s knows of PostgreSQL", dir)
		}
	}
	return agents
}

// searchFiles looks for secrets in all files of the world, its masters' logs among them,
// and counts them. The token may be in its own file.
func (w *world) searchFiles(secrets map[string]string) (files int) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
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
		files++
		for name, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) != (path == filepath.Join(w.state, "token") && name == "token") {
				w.t.Errorf("the %s is in %s, or the token is not in its own file", name, path)
			}
		}
		return nil
	})
	if err != nil || files < 5 {
		w.t.Errorf("%d files were searched: %v", files, err)
	}
	return files
}

// TestPromise11NoDatabasePassword: the password of the copy's database is in no file, in
// nothing that a command prints, on no command line and in no agent's environment: of a
// URL that leads nowhere, of one that is broken, and of one in a file.
func TestPromise11NoDatabasePassword(t *testing.T) {
	t.Parallel()
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	secret := filepath.Join(t.TempDir(), "url")
	put(t, secret, "postgres://ana:"+postgresCanary+"@127.0.0.1:1/audit\n")
	for name, setting := range map[string]string{
		"nobody listens": "STINT_POSTGRES_URL=postgres://ana:" + postgresCanary + "@127.0.0.1:1/audit",
		"no URL":         "STINT_POSTGRES_URL=" + postgresCanary,
		"in a file":      "STINT_POSTGRES_URL_FILE=" + secret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lookForPassword(t, setting, "the mirror in PostgreSQL waits", func(s *task.MirrorStatus) bool { return s.Failures > 0 })
		})
	}
}

// TestPromise11NoDatabasePasswordInTheCopy: the same of a database that has a copy, whose
// tables do not hold it either.
func TestPromise11NoDatabasePasswordInTheCopy(t *testing.T) {
	t.Parallel()
	if !hasProc() {
		missing(t, "there is no /proc")
	}
	server := postgrestest.Shared(t)
	url := strings.Replace(server.Database(t), "postgres@", "postgres:"+postgresCanary+"@", 1)
	state := lookForPassword(t, "STINT_POSTGRES_URL="+url, "the mirror in PostgreSQL: following", func(s *task.MirrorStatus) bool {
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
	must(t, err)
	defer func() { _ = conn.Close(context.Background()) }() // it was only read
	for _, table := range []string{"tasks", "task_runs", "task_files", "accounts", "worker_registry", "mirrors", "pg_stat_activity"} {
		found, err := conn.Query(t.Context(), "SELECT t::text FROM "+table+" t WHERE t::text NOT LIKE '%SELECT%'") // our own
		must(t, err)
		texts, err := pgx.CollectRows(found, pgx.RowTo[string])
		must(t, err)
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
