package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

func TestDescribeCopy(t *testing.T) {
	for _, c := range []struct {
		position postgres.Position
		want     string
	}{
		{postgres.Position{}, ", without tables yet; a master makes them"},
		{postgres.Position{Schema: 2}, ", schema 2, nothing of this ledger is copied yet; a master does that"},
		{postgres.Position{Schema: 2, StateDir: "/s", Seq: 7}, ", schema 2, complete"},
		{postgres.Position{Schema: 2, StateDir: "/s", Seq: 4}, ", schema 2, 3 records behind; a master copies them, or: stint sync once"},
		{postgres.Position{Schema: 2, StateDir: "/s", Seq: 0}, ", schema 2, 7 records behind; a master copies them, or: stint sync once"},
		{postgres.Position{Schema: 2, StateDir: "/s", Seq: 9}, ", schema 2, it has record 9, and the journal ends with 7; the next master writes the copy anew"},
	} {
		c.position.Target = "audit at db:5432"
		if got := describeCopy(&c.position, 7); got != "audit at db:5432"+c.want {
			t.Errorf("%+v: %s", c.position, got)
		}
	}
}

// What a master says of its copy is a warning where somebody should do something.
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
		{"it has no copy", nil, "", []string{"warning the master (pid 7) makes no copy"}},
		{"it has failed", &task.MirrorStatus{State: task.MirrorFollowing, LastError: "gone", ErrorAt: time.Now().Add(-time.Hour)}, "", []string{"ok the master's last failure, 1h00m ago: gone"}},
		{"some are not in it", &task.MirrorStatus{State: task.MirrorFollowing, Skipped: []string{"a: x", "b: y"}}, "", []string{"warning the database did not take a: x; b: y"}},
	} {
		got := examineMirror(&task.Health{PID: 7, Postgres: c.status}, c.ours)
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

// A password in a configuration that others can read is told, and no other.
func TestExamineURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	for _, c := range []struct {
		text string
		mode os.FileMode
		env  map[string]string
		warn bool
	}{
		{"[postgres]\nurl = \"postgres://ana:" + postgresCanary + "@db/x\"\n", 0o644, nil, true},
		{"[postgres]\nurl = \"postgres://ana:" + postgresCanary + "@db/x\"\n", 0o640, nil, true},
		{"[postgres]\nurl = \"postgres://ana:" + postgresCanary + "@db/x\"\n", 0o600, nil, false},
		{"[postgres]\nurl = \"postgres://ana@db/x\"\n", 0o644, nil, false},
		{"", 0o644, map[string]string{"STINT_POSTGRES_URL": "postgres://ana:" + postgresCanary + "@db/x"}, false},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil {
			t.Fatal(err)
		}
		cfg, err := loadConfig(configSource{file: file, lookup: func(k string) (string, bool) { v, ok := c.env[k]; return v, ok }})
		if err != nil {
			t.Fatal(err)
		}
		got := examineURL(cfg)
		if (len(got) == 1) != c.warn || c.warn && (got[0].Status != healthWarn || got[0].Try != "chmod 600 "+file || strings.Contains(got[0].Text, postgresCanary)) {
			t.Errorf("%q, mode %04o: %+v", c.text, c.mode, got)
		}
	}
}

// TestLookAtCopy: a database that has no tables, what is copied there, a ledger of another
// directory under the same name, and a database that is not there.
func TestLookAtCopy(t *testing.T) {
	server := postgrestest.Shared(t)
	url := server.Database(t)
	o, _ := postgresOptions(mustLoad(t, "", map[string]string{"STINT_POSTGRES_URL": url, "STINT_POSTGRES_HOST": "here"}, nil), "/state", nil)
	look := func(want string, reached bool) {
		t.Helper()
		list, failure := lookAtCopy(t.Context(), o, 7)
		if len(list) != 1 || (failure == "") != reached || !strings.Contains(list[0].Status+" "+list[0].Text, want) {
			t.Errorf("%q %+v, want %s", failure, list, want)
		}
	}
	look(" at "+server.Dir()+", without tables yet; a master makes them", true)
	if _, _, err := postgres.Migrate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	look("nothing of this ledger is copied yet", true)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }() // the database is dropped now
	if _, err := conn.Exec(t.Context(), "INSERT INTO mirrors (host, state_dir, seq, settings, version) VALUES ('here', '/state', 4, '', '')"); err != nil {
		t.Fatal(err)
	}
	look("3 records behind", true)
	o.StateDir = "/elsewhere"
	look("/state", false)
	o.URL = func() (string, error) { return server.URL("nowhere"), nil }
	look("warning ", false)
}
