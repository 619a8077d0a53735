package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"stint/coordinator/task"
)

const postgresCanary = "c4n4ryOfAPassword"

func TestPostgresSection(t *testing.T) {
	c := mustLoad(t, `max_workers = 2
[postgres]
url = "postgres://stint@db.example/audit"
pool_size = 3
inline_threshold = "64KiB"
stdout_limit = 0
host = "build-1"
`, map[string]string{"STINT_POSTGRES_POOL_SIZE": "4"}, map[string]string{"postgres_host": "build-2"})
	o, on := postgresOptions(c, "/state", slog.New(slog.DiscardHandler))
	if !on || o.PoolSize != 4 || o.InlineThreshold != 64<<10 || o.OutputLimit != 0 || o.Host != "build-2" || o.StateDir != "/state" ||
		o.MaxAttempts != c.MaxAttempts || o.MaxConcurrency != 2 || o.PID != os.Getpid() || o.Version == "" || o.Log == nil {
		t.Errorf("%v: %+v", on, o)
	}
	if url, err := o.URL(); err != nil || url != "postgres://stint@db.example/audit" {
		t.Errorf("%q, %v", url, err)
	}
	for key, want := range map[string]string{"postgres_url": "config.toml:3", "postgres_pool_size": "STINT_POSTGRES_POOL_SIZE", "postgres_host": "--postgres-host", "postgres_url_file": "default"} {
		if got := c.origins[key].where; got != want {
			t.Errorf("%s comes from %s, want %s", key, got, want)
		}
	}
	if o, on := postgresOptions(mustLoad(t, "", nil, nil), "/state", nil); on {
		t.Errorf("by default: %+v", o)
	}
	c = mustLoad(t, "", map[string]string{"STINT_POSTGRES_URL": "postgres:///x\n"}, nil)
	o, _ = postgresOptions(c, "/state", nil)
	name, err := os.Hostname()
	if url, _ := o.URL(); url != "postgres:///x" || err == nil && o.Host != name {
		t.Errorf("%q, of host %q, %v", url, o.Host, err)
	}
}

func TestPostgresSectionErrors(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"unknown key", "[postgres]\n\nulr = \"x\"\n", `config.toml:3: unknown key "postgres.ulr"; did you mean postgres.url?`},
		{"a key of the top level", "[postgres]\nmax_workers = 3\n", `config.toml:2: unknown key "postgres.max_workers"`},
		{"outside the section", "postgres_url = \"x\"\n", `config.toml:1: unknown key "postgres_url"; did you mean postgres.url?`},
		{"of another section", "[postgre]\nurl = \"x\"\n", `config.toml:1: unknown key "postgre"; did you mean postgres.url?`},
		{"no section", "\npostgres = \"x\"\n", `config.toml:2: postgres is not a section; write [postgres], and its settings below that`},
		{"a list of sections", "[[postgres]]\nurl = \"x\"\n", `config.toml:1: postgres is not a section`},
		{"for one workspace", "[workspace.\"/w\".postgres]\nurl = \"x\"\n", `config.toml:1: unknown key "postgres"`},
		{"no text", "[postgres]\nurl = 5\n", `config.toml:2: postgres.url must be a string`},
		{"too many", "[postgres]\npool_size = 1001\n", `config.toml:2: postgres.pool_size: "1001" is not a whole number from 1 to 1000`},
		{"too large", "[postgres]\ninline_threshold = \"1GiB\"\n", `config.toml:2: postgres.inline_threshold: "1GiB" is not a size such as 64MiB, from 0 to 256MiB`},
		{"relative", "[postgres]\nurl_file = \"x\"\n", `config.toml:2: postgres.url_file: it is not the absolute path of a file`},
		{"a host that cannot be shown", "[postgres]\nhost = \"a\\nb\"\n", `config.toml:2: postgres.host: it is no name of a machine`},
		{"both", "[postgres]\nurl = \"x\"\nurl_file = \"/x\"\n", `config.toml:2: postgres.url and postgres.url_file (config.toml:3) exclude each other`},
	} {
		_, err := load(t, c.file, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "/"+c.want) || exitCode(err) != exitUsage {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	both := map[string]string{"STINT_POSTGRES_URL": "x", "STINT_POSTGRES_URL_FILE": "/x"}
	if _, err := load(t, "", both, nil); err == nil || !strings.HasPrefix(err.Error(), "STINT_POSTGRES_URL: ") {
		t.Errorf("both in the environment: %v", err)
	}
}

// TestPostgresURLOverrulesItsFile: of the URL and its file, the one of the higher layer
// counts; an empty one turns it off.
func TestPostgresURLOverrulesItsFile(t *testing.T) {
	const inFile = "[postgres]\nurl_file = \"/secret\"\n"
	for _, c := range []struct {
		file      string
		env, flag map[string]string
		url, path string
	}{
		{inFile, map[string]string{"STINT_POSTGRES_URL": "postgres:///x"}, nil, "postgres:///x", ""},
		{"[postgres]\nurl = \"postgres:///x\"\n", nil, map[string]string{"postgres_url_file": "/other"}, "", "/other"},
		{inFile, map[string]string{"STINT_POSTGRES_URL_FILE": ""}, nil, "", ""},
		{inFile, map[string]string{"STINT_POSTGRES_URL": ""}, nil, "", "/secret"},
	} {
		got := mustLoad(t, c.file, c.env, c.flag)
		if got.PostgresURL != c.url || got.PostgresURLFile != c.path {
			t.Errorf("%q, %q, %q: %q, %q", c.file, c.env, c.flag, got.PostgresURL, got.PostgresURLFile)
		}
	}
}

// No error about the file shows what it has.
func TestConfigErrorsHoldNoPassword(t *testing.T) {
	url := "postgres://ana:" + postgresCanary + "@db.example/x"
	for _, file := range []string{
		"postgres = \"" + url + "\"\n",
		"postgres_url = \"" + url + "\"\n",
		"[postgres]\nurl = " + url + "\n",
		"[postgres]\nurl = \"" + url + "\n",
		"[postgres]\nurl = '" + url + "\"\n",
		"[postgres]\nurl = \"" + url + "\" " + url + "\n",
		"[postgres]\nurl = [\"" + url + "\"]\n",
		"[postgres]\nurl = {\"a\" = \"" + url + "\"}\n",
		"[postgres]\nurl = \"\\q" + url + "\"\n",
		"[postgres]\n" + url + "\n",
		"[postgres]\nulr = \"" + url + "\"\n",
		"[postgres]\npassword = \"" + postgresCanary + "\"\n",
		"[postgres]\nurl = \"" + url + "\"\nurl = \"" + url + "\"\n",
		"[postgres]\nurl_file = \"" + url + "\"\n",
		"[postgres]\nhost = \"\\u0000" + url + "\"\n",
		"[postgres]\npool_size = \"" + url + "\"\n",
	} {
		_, err := load(t, file, nil, nil)
		if err == nil || strings.Contains(err.Error(), postgresCanary) || exitCode(err) != exitUsage {
			t.Errorf("%s%v", file, err)
		}
	}
	c := mustLoad(t, "[postgres]\nurl = \""+url+"\"\n", nil, nil)
	for _, k := range c.shown() {
		if text, _ := k.Value.(string); strings.Contains(text, postgresCanary) || k.Key == "postgres.url" && !strings.Contains(text, "db.example") {
			t.Errorf("%s is shown as %q", k.Key, text)
		}
	}
}

func TestURLFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		put(t, path, text)
		must(t, os.Chmod(path, mode))
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	const url = "postgres://ana:" + postgresCanary + "@db.example/x"
	for _, c := range []struct{ path, want, try string }{
		{filepath.Join(dir, "none"), "no such file", "chmod 600"},
		{write("open", url, 0o644), "can be read by others (mode 0644)", "chmod 600 "},
		{write("group", url, 0o640), "can be read by others (mode 0640)", "chmod 600 "},
		{write("empty", "\n \n", 0o600), "does not have one line", "write the URL"},
		{write("two", url+"\n"+url, 0o600), "does not have one line", "write the URL of the database alone"},
		{write("big", strings.Repeat("x", maxSecret+1), 0o600), "it has more than 1048576 bytes", ""},
		{dir, "is not a file", ""},
		{pipe, "is not a file", ""},
	} {
		text, err := readURLFile(c.path)
		var e *task.Error
		if !errors.As(err, &e) || text != "" || !strings.Contains(e.Message, c.path) || !strings.Contains(e.Message, c.want) || !strings.Contains(e.Hint, c.try) || strings.Contains(err.Error(), postgresCanary) {
			t.Errorf("%s: %q, %v", c.path, text, err)
		}
	}
	path := write("good", url+"\r\n", 0o600)
	o, _ := postgresOptions(mustLoad(t, "[postgres]\nurl_file = \""+path+"\"\n", nil, nil), "/s", nil)
	ask := o.URL
	if got, err := ask(); err != nil || got != url {
		t.Errorf("%q, %v", got, err)
	}
	write("good", "postgres://new", 0o400)
	if got, err := ask(); err != nil || got != "postgres://new" {
		t.Errorf("once it has changed: %q, %v", got, err)
	}
}

// What the master needs for its copy is nothing for agents.
func TestAgentsGetNoPostgres(t *testing.T) {
	environ := []string{
		"PGHOST=h", "PGHOSTADDR=1", "PGPORT=1", "PGUSER=u", "PGPASSWORD=p", "PGPASSFILE=f", "PGDATABASE=d", "PGSERVICE=s", "PGSERVICEFILE=f", "PGSSLKEY=k",
		"PGSSLPASSWORD=p", "PGSSLROOTCERT=c", "PGOPTIONS=o", "PGAPPNAME=a", "DATABASE_URL=u", "POSTGRES_PASSWORD=p",
	}
	for _, k := range keys {
		if k.section == "postgres" {
			environ = append(environ, k.env()+"=x")
		}
	}
	if !slices.Contains(environ, "STINT_POSTGRES_URL=x") {
		t.Fatal(environ)
	}
	for _, name := range append(slices.Clone(agentNames), "") {
		if got := agentEnv(environ, name, nil); len(got) > 0 {
			t.Errorf("%s gets %q", name, got)
		}
	}
}

// What a master says of its mirror is a warning where somebody should do something.
func TestExamineMirror(t *testing.T) {
	failing := &task.MirrorStatus{State: task.MirrorFailing, LastError: "no\nsuch role"}
	for _, c := range []struct {
		name   string
		status *task.MirrorStatus
		ours   string
		want   []string // status and the beginning of the text
	}{
		{"all is well", &task.MirrorStatus{State: task.MirrorFollowing}, "", nil},
		{"it is as we see it", failing, failing.LastError, nil},
		{"it is not", failing, "", []string{"warning the master (pid 7) cannot use the database: no; such role"}},
		{"it meets something else", failing, "no such host", []string{"warning the master (pid 7) cannot use the database: no; such role"}},
		{"it keeps none", nil, "", []string{"warning the master (pid 7) keeps no mirror"}},
		{"some are not in it", &task.MirrorStatus{State: task.MirrorFollowing, Skipped: []string{"a: x", "b: y"}}, "", []string{"warning the database did not take a: x; b: y"}},
	} {
		got := examineMirror(&task.Health{PID: 7, Postgres: c.status}, c.ours, "")
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", c.name, got)
			continue
		}
		for i, f := range got {
			if !strings.HasPrefix(f.Status+" "+f.Text, c.want[i]) || f.Check != "postgres" {
				t.Errorf("%s: %+v, want %s", c.name, f, c.want[i])
			}
		}
	}
}
