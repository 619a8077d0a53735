package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"stint/coordinator/postgres/dsn"
	"stint/coordinator/task"
)

// there is a database that tests say something about.
func there(t *testing.T) Target {
	t.Helper()
	cfg, err := dsn.Parse("postgres://ana:" + canaryEncoded + "@db.example/")
	must(t, err)
	return Target{cfg.ConnConfig}
}

func dial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// TestSentences: an error names the database and says what failed. The common ones have a
// hint of their own, the others one too.
func TestSentences(t *testing.T) {
	for _, c := range []struct {
		err  error
		code task.Code
		says string
	}{
		{&pgconn.PgError{Code: "3D000", Message: `database "x" does not exist`}, task.CodeInvalid, `cli_worker at db.example:5432: database "x" does not exist (SQLSTATE 3D000); createdb cli_worker`},
		{&pgconn.PgError{Code: "28000", Message: `role "ana" does not exist`}, task.CodeUnauthorized, "createuser ana"},
		{&pgconn.PgError{Code: "28P01", Message: `password authentication failed`}, task.CodeUnauthorized, "look at the password in url_file"},
		{&pgconn.PgError{Code: "42501", Message: `permission denied for table tasks`}, task.CodeForbidden, `GRANT it to "ana"; what a role needs, and who makes the tables: stint help postgres`},
		{&pgconn.PgError{Code: "42501", Message: `permission denied to create temporary tables in database "cli_worker"`}, task.CodeForbidden, `GRANT it to "ana"`},
		{&pgconn.PgError{Code: "42501", Message: `permission denied for schema public`}, task.CodeForbidden, `GRANT it to "ana"`},
		{&pgconn.PgError{Code: "42704", Message: `unrecognized configuration parameter "c4n4ry"`}, task.CodeUnavailable, "does not know a setting of the database URL"},
		{&pgconn.PgError{Code: "XX001", Message: "invalid\npage\x1b[31m", Detail: "row"}, task.CodeUnavailable, "invalid page\\x1b[31m (SQLSTATE XX001); look at the server's log"},
		{&pgconn.PgError{Code: "55P03", Message: "canceling statement due to lock timeout"}, task.CodeBusy, "try again"},
		{dial(syscall.ECONNREFUSED), task.CodeUnavailable, "connection refused; look whether the server runs"},
		{dial(fs.ErrNotExist), task.CodeUnavailable, "look whether the server runs"},
		{dial(syscall.EACCES), task.CodeUnavailable, "permission denied; look whether the server runs, at the host in the database URL"},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, task.CodeUnavailable, "no such host; look whether the server runs"},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, task.CodeInvalid, "add sslrootcert=FILE"},
		{errors.New("server refused TLS connection"), task.CodeInvalid, "sslmode=disable is for a trusted network"},
		{context.DeadlineExceeded, task.CodeUnavailable, "it did not answer in time; look whether the server runs"},
		{io.ErrUnexpectedEOF, task.CodeUnavailable, "unexpected EOF; look whether the server runs"},
		{errors.Join(context.DeadlineExceeded, &pgconn.PgError{Code: "53300", Message: "too many clients"}), task.CodeUnavailable, "too many clients"},
	} {
		err := Explain(fmt.Errorf("outer: %w", c.err), there(t))
		var told *task.Error
		if !errors.As(err, &told) || told.Code != c.code || told.Hint == "" || !strings.Contains(err.Error(), c.says) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%v: %#v, want %s and %q", c.err, err, c.code, c.says)
		}
	}
}

func TestExplainKeepsWhatNeedsNoSentence(t *testing.T) {
	own := &task.Error{Code: task.CodeBusy, Message: "busy"}
	if got := Explain(fmt.Errorf("x: %w", own), there(t)); got != error(own) {
		t.Errorf("our own error: %v", got)
	}
	if got := Explain(nil, there(t)); got != nil {
		t.Errorf("nil: %v", got)
	}
	if got := Explain(fmt.Errorf("%s: %w", canary, context.Canceled), there(t)); got != context.Canceled {
		t.Errorf("given up: %v", got)
	}
}

// TestNoPasswordIsSaid: a server or a proxy that repeats the password is quoted without it.
func TestNoPasswordIsSaid(t *testing.T) {
	for _, spelling := range []string{canary, canaryEncoded, url.QueryEscape(canary), url.UserPassword("u", canary).String()} {
		for _, err := range []error{
			&pgconn.PgError{Code: "XX000", Message: "saw " + spelling, Detail: spelling, Hint: spelling, Where: spelling},
			&pgconn.PgError{Code: "42501", Message: "permission denied for schema " + spelling},
			dial(errors.New(spelling)),
		} {
			if said := everything(Explain(err, there(t))); strings.Contains(said, canaryMark) && !strings.Contains(spelling, " ") {
				t.Errorf("%q in %T: %s", spelling, err, said)
			}
		}
	}
}

func TestWhatOthersSayIsShort(t *testing.T) {
	err := Explain(&pgconn.PgError{Code: "XX000", Message: strings.Repeat("ä", 1000)}, there(t))
	if n := strings.Count(err.Error(), "ä"); n != maxSaid {
		t.Errorf("%d characters of a message", n)
	}
}

func TestTargetsAreNamed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for text, want := range map[string]string{
		"postgres://u@db.example":            "cli_worker at db.example:5432",
		"postgres://[::1]:6543":              "cli_worker at [::1]:6543",
		"postgres:///x?host=/run/postgresql": "x at /run/postgresql",
		"postgres://h:1/a%20b":               "a b at h:1",
	} {
		if cfg, err := dsn.Parse(text); err != nil || (Target{cfg.ConnConfig}).String() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if got := (Target{}).String(); got != "the database" {
		t.Error(got)
	}
}

func TestSkewWarning(t *testing.T) {
	for d, want := range map[time.Duration]string{
		4 * time.Second:          "",
		-4 * time.Second:         "",
		12300 * time.Millisecond: "the clock of cli_worker at db.example:5432 is 12s ahead of this machine's: the times in the mirror are those of this machine",
		-time.Hour:               "the clock of cli_worker at db.example:5432 is 1h0m0s behind this machine's: the times in the mirror are those of this machine",
	} {
		if got := SkewWarning(d, there(t)); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}
