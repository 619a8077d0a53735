package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/dsn"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/task"
)

// The canary is a password that no output may have; canaryMark is in all its spellings.
const (
	canary        = "c4n4ry:/?#[]@!p%w d"
	canaryEncoded = "c4n4ry%3A%2F%3F%23%5B%5D%40%21p%25w%20d"
	canaryMark    = "c4n4ry"
)

// everything returns all that a careless caller could print of an error.
func everything(err error) string {
	var b strings.Builder
	for ; err != nil; err = errors.Unwrap(err) {
		fmt.Fprintf(&b, "%v\n%+v\n%#v\n%s\n%q\n", err, err, err, err.Error(), err.Error())
	}
	return b.String()
}

const canaryQuoted = "'" + canary + "'"

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// connectTo tries to connect to a URL, and returns what is said where it cannot be.
func connectTo(t *testing.T, text string) string {
	t.Helper()
	pool, err := Connect(t.Context(), says(text), 2)
	if err == nil {
		pool.Close()
		return ""
	}
	if pool != nil {
		t.Error("an error, and a pool")
	}
	if strings.Contains(everything(err), canaryMark) {
		t.Errorf("the password is in %s", everything(err))
	}
	var told *task.Error
	if !errors.As(err, &told) || told.Hint == "" {
		t.Errorf("no sentence with a hint: %#v", err)
	}
	return err.Error()
}

// connected returns a pool that is closed when the test ends.
func connected(t *testing.T, url string) (*Database, Target) {
	t.Helper()
	pool, err := Connect(t.Context(), says(url), 3)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool, pool.Target
}

func says(url string) func() (string, error) {
	return func() (string, error) { return url, nil }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantSaid fails the test unless a connection fails for the reason that is named.
func wantSaid(t *testing.T, text, want string) {
	t.Helper()
	if said := connectTo(t, text); !strings.Contains(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}

// run runs statements in a database.
func run(t *testing.T, text string, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // cleaning up is behind its end
	conn, err := pgx.Connect(ctx, text)
	must(t, err)
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// TestConnect: a pool of the wanted size, and the clock of the server.
func TestConnect(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	pool, target := connected(t, postgrestest.Shared(t).Database(t)+"\n")
	if n := pool.Config().MaxConns; n != 3 {
		t.Errorf("%d connections at most", n)
	}
	if want := " at " + postgrestest.Shared(t).Dir; !strings.HasSuffix(target.String(), want) {
		t.Errorf("%v, want …%s", target, want)
	}
	var name, encoding string
	if err := pool.QueryRow(t.Context(), `SELECT current_setting('application_name'), current_setting('client_encoding')`).Scan(&name, &encoding); err != nil || name != "stint" || encoding != "UTF8" {
		t.Errorf("%s %s %v", name, encoding, err)
	}
}

// TestUnusableDatabases: what cannot hold a mirror says why, in a sentence.
func TestUnusableDatabases(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	s := postgrestest.Shared(t)
	admin := s.URL("postgres")
	at := "@/cli_worker?host=" + s.Dir
	wantSaid(t, "postgres://postgres"+at, "cli_worker at "+s.Dir+`: database "cli_worker" does not exist (SQLSTATE 3D000); createdb cli_worker`)
	wantSaid(t, "postgres://nobody_here:"+canaryEncoded+at, `role "nobody_here" does not exist`)
	run(t, admin, "CREATE ROLE no_login", `CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0`, "CREATE ROLE full_up LOGIN CONNECTION LIMIT 0")
	t.Cleanup(func() { run(t, admin, "DROP DATABASE latin", "DROP ROLE no_login", "DROP ROLE full_up") })
	wantSaid(t, "postgres://no_login:"+canaryEncoded+"@/postgres?host="+s.Dir, `role "no_login" is not permitted to log in`)
	wantSaid(t, "postgres://full_up@/postgres?host="+s.Dir, `too many connections for role "full_up"`)
	wantSaid(t, s.URL("latin"), "latin at "+s.Dir+" has the encoding LATIN1, and a mirror needs UTF8; createdb -T template0 -E UTF8 latin")
}

// TestPasswords: one that is wrong, and none where one is wanted.
func TestPasswords(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	s := postgrestest.Start(t)
	run(t, s.URL("postgres"), "CREATE ROLE locked LOGIN PASSWORD 'right'")
	rules := filepath.Join(s.Dir, "data", "pg_hba.conf")
	write(t, rules, "local all locked scram-sha-256\nlocal all postgres trust\n")
	s.Restart(t)
	at := "@/postgres?host=" + s.Dir
	wantSaid(t, "postgres://locked:"+canaryEncoded+at, "look at the password in url_file")
	wantSaid(t, "postgres://locked"+at, "look at the password in url_file")
	wantSaid(t, "postgres://other:"+canaryEncoded+at, "no pg_hba.conf entry")
	if said := connectTo(t, "postgres://locked:right"+at); said != "" {
		t.Errorf("the right password: %s", said)
	}
}

// TestPasswordsOfAllForms: wherever pgx finds a password, it uses it, and no error, no
// target and no redacted text has it.
func TestPasswordsOfAllForms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	write(t, filepath.Join(dir, ".pgpass"), "127.0.0.1:1:cli_worker:passfile:c4n4ry\n")
	write(t, filepath.Join(dir, ".pg_service.conf"), "[prod]\nhost=127.0.0.1\nport=1\nuser=s\npassword=c4n4ry\n[bad]\nsslmode=c4n4ry\n")
	for text, redacted := range map[string]string{
		"postgres://u:" + canaryEncoded + "@127.0.0.1:1/db?sslmode=disable":   "postgres://u:xxxxx@127.0.0.1:1/db?sslmode=disable",
		" postgres://127.0.0.1:1/db?password=" + canaryEncoded + "&user=v \n": "postgres://127.0.0.1:1/db?password=xxxxx&user=v",
		"postgres://u:c4n4ry@127.0.0.1:1?pass%77ord=c4n4ry":                   "postgres://u:xxxxx@127.0.0.1:1?pass%77ord=xxxxx",
		"postgres://u:c4n4ry:q?r@127.0.0.1:1/db":                              "postgres://u:xxxxx@127.0.0.1:1/db",
		"host=127.0.0.1 port=1 password=" + canaryQuoted + " user=u":          "***",
		"host = 127.0.0.1\tport=1 password = c4n4ry\\ word\\'s user=u":        "***",
		"postgres://passfile@127.0.0.1:1":                                     "postgres://passfile@127.0.0.1:1",
		"host=127.0.0.1 port=1 user=passfile":                                 "host=127.0.0.1 port=1 user=passfile",
		"service=prod":                                                        "service=prod",
		"postgres:///?service=prod":                                           "postgres:///?service=prod",
		"PGPASSWORD":                                                          "postgres://env@127.0.0.1:1",
	} {
		if text == "PGPASSWORD" {
			t.Setenv(text, canary)
			text = redacted
		}
		if got := dsn.Redact(text); got != redacted {
			t.Errorf("%q: %q, want %q", text, got, redacted)
		}
		if want := strings.Contains(text, canaryMark); dsn.HasPassword(text) != want {
			t.Errorf("HasPassword(%q): %v", text, !want)
		}
		cfg, err := dsn.Parse(text)
		if err != nil || !strings.Contains(cfg.ConnConfig.Password, canaryMark) {
			t.Errorf("%q: the password was not found: %v", text, err)
			continue
		}
		it := Target{cfg.ConnConfig}
		said := fmt.Sprintf("%v %+v %#v", it, it, it)
		_, err = Connect(t.Context(), says(text), 0)
		if said += everything(err); err == nil || !strings.Contains(said, "connection refused") || strings.Contains(said, canaryMark) {
			t.Errorf("%q: %s", text, said)
		}
	}
	for text, says := range map[string]string{"service=none": "failed to read service", "service=bad host=h": "failed to configure TLS"} {
		if _, err := dsn.Parse(text); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(everything(err), canaryMark) {
			t.Errorf("%s: %v", text, err)
		}
	}
	t.Setenv("PGPORT", canaryMark)
	if _, err := dsn.Parse("postgres://u@h"); err == nil || strings.Contains(everything(err), canaryMark) {
		t.Errorf("a wrong PGPORT: %v", err)
	}
}

// TestOutages: a server that has stopped, was killed, does not answer, or was never there.
func TestOutages(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	s := postgrestest.Start(t)
	text := s.URL("postgres") + "&connect_timeout=1"
	pool, target := connected(t, text)
	s.Signal(t, "STOP")
	wantSaid(t, text, "postgres at "+s.Dir+": it did not answer in time")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := pool.Exec(ctx, "SELECT 1"); err == nil || !strings.Contains(Explain(err, target).Error(), "did not answer in time") {
		t.Errorf("a paused server: %v", Explain(err, target))
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, says(text), 3); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	s.Signal(t, "CONT")
	conn, err := pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	s.Kill(t)
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil || !strings.Contains(Explain(err, target).Error(), "and at the network") {
		t.Errorf("a killed server: %v", Explain(err, target))
	}
	wantSaid(t, text, "connection refused; look whether the server runs")
	wantSaid(t, "postgres:///db?host="+t.TempDir(), "look whether the server runs")
	wantSaid(t, "postgres://u:"+canaryEncoded+"@127.0.0.1:1/db", "db at 127.0.0.1:1: ")
	wantSaid(t, "postgres://u:"+canaryEncoded+"@no-such-host.invalid/db", "no-such-host.invalid")
}

// TestURLIsAskedFor: its error is shown, and a text that is no URL is one.
func TestURLIsAskedFor(t *testing.T) {
	url := func() (string, error) {
		return "", &task.Error{Code: task.CodeInvalid, Message: "url_file is readable by others", Hint: "chmod 600"}
	}
	if _, err := Connect(t.Context(), url, 0); err == nil || !strings.Contains(err.Error(), "readable by others") {
		t.Error(err)
	}
	wantSaid(t, "mysql://u:"+canaryEncoded+"@h", "does not begin with postgres://")
}

// TestTLSFailures: each says what to do.
func TestTLSFailures(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	text := func(address, mode string) string {
		return "postgres://u:" + canaryEncoded + "@" + address + "/db?sslmode=" + mode
	}
	plain := fakeServer(t, func(conn net.Conn) { _, _ = conn.Write([]byte("N")) })
	wantSaid(t, text(plain, "verify-full"), "server refused TLS connection; give the server a certificate")
	gone := fakeServer(t, func(net.Conn) {})
	wantSaid(t, text(gone, "verify-full"), "and at the network")
	garbled := fakeServer(t, func(conn net.Conn) { _, _ = conn.Write([]byte("Sorry, no PostgreSQL here")) })
	wantSaid(t, text(garbled, "verify-full"), "db at "+garbled+": ")
}

// fakeServer listens, reads what asks for TLS, answers as it is told and hangs up. It ends with the test.
func fakeServer(t *testing.T, answer func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 8)) // a client that has gone is as good
			answer(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}
