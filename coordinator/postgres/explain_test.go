package postgres

import (
	"context"
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

	"stint/coordinator"
)

var there = target{database: "cli_worker", host: "db.example", port: 5432, user: "ana", secrets: secretsOf(canary)}

func dial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// TestSentences: each kind of failure has a sentence, a hint and a code of its own.
func TestSentences(t *testing.T) {
	for _, c := range []struct {
		err  error
		code coordinator.Code
		says string
	}{
		{&pgconn.PgError{Code: "3D000", Message: `database "x" does not exist`}, coordinator.CodeInvalid, "there is no database cli_worker at db.example:5432; createdb cli_worker"},
		{&pgconn.PgError{Code: "28000", Message: `no pg_hba.conf entry for host "1.2.3.4"`}, coordinator.CodeUnauthorized, `does not let role ana in: no pg_hba.conf entry`},
		{&pgconn.PgError{Code: "28000", Message: `role "ana" does not exist`}, coordinator.CodeUnauthorized, "there is no role ana at db.example:5432; createuser ana"},
		{&pgconn.PgError{Code: "28000", Message: `role "ana" is not permitted to log in`}, coordinator.CodeUnauthorized, `may not log in; ALTER ROLE "ana" LOGIN`},
		{&pgconn.PgError{Code: "28P01", Message: `password authentication failed`}, coordinator.CodeUnauthorized, "does not accept the password of role ana"},
		{&pgconn.PgError{Code: "42501", Message: `permission denied for table tasks`}, coordinator.CodeForbidden, `may not use the table tasks of cli_worker at db.example:5432; GRANT SELECT, INSERT, UPDATE, DELETE ON tasks, task_runs, task_files, accounts, worker_registry, mirrors, schema_migrations TO "ana"`},
		{&pgconn.PgError{Code: "42501", Message: `permission denied to create temporary tables in database "cli_worker"`}, coordinator.CodeForbidden, `GRANT TEMPORARY ON DATABASE "cli_worker" TO "ana"`},
		{&pgconn.PgError{Code: "42501", Message: `permission denied for schema public`}, coordinator.CodeForbidden, `may not use the schema public of cli_worker at db.example:5432; GRANT USAGE, CREATE ON SCHEMA public TO "ana"`},
		{&pgconn.PgError{Code: "42501", Message: `keine Berechtigung für Tabelle tasks`}, coordinator.CodeForbidden, "may not do that in cli_worker at db.example:5432: keine Berechtigung"},
		{&pgconn.PgError{Code: "25006"}, coordinator.CodeUnavailable, "is read-only"},
		{&pgconn.PgError{Code: "53100"}, coordinator.CodeFull, "the disk of the server"},
		{&pgconn.PgError{Code: "53300"}, coordinator.CodeTooMany, "takes no more connections"},
		{&pgconn.PgError{Code: "57P01"}, coordinator.CodeUnavailable, "is shutting down"},
		{&pgconn.PgError{Code: "57P02"}, coordinator.CodeUnavailable, "has crashed"},
		{&pgconn.PgError{Code: "57P03", Message: "the database system is starting up"}, coordinator.CodeUnavailable, "at the moment: the database system is starting up"},
		{&pgconn.PgError{Code: "55P03"}, coordinator.CodeBusy, "holds a lock"},
		{&pgconn.PgError{Code: "42P01", Message: `relation "tasks" does not exist`}, coordinator.CodeConflict, `a table of the copy is missing from cli_worker at db.example:5432: relation "tasks" does not exist; drop the tables of stint that are left`},
		{&pgconn.PgError{Code: "42703", Message: "column"}, coordinator.CodeConflict, "then: stint sync once"},
		{&pgconn.PgError{Code: "XX001", Message: "invalid\npage\x1b[31m", Detail: "row"}, coordinator.CodeUnavailable, "has refused: invalid page [31m (SQLSTATE XX001)"},
		{dial(syscall.ECONNREFUSED), coordinator.CodeUnavailable, "no PostgreSQL listens at db.example:5432"},
		{dial(fs.ErrNotExist), coordinator.CodeUnavailable, "there is no socket"},
		{dial(syscall.EACCES), coordinator.CodeForbidden, "is closed to this user"},
		{dial(syscall.EHOSTUNREACH), coordinator.CodeUnavailable, "there is no way to"},
		{&net.DNSError{IsNotFound: true}, coordinator.CodeUnavailable, "the name of the host db.example is not known"},
		{&net.DNSError{IsTimeout: true}, coordinator.CodeUnavailable, "could not be looked up"},
		{x509.UnknownAuthorityError{}, coordinator.CodeInvalid, "nobody known here has signed"},
		{x509.HostnameError{Certificate: &x509.Certificate{}}, coordinator.CodeInvalid, "is for another name"},
		{x509.CertificateInvalidError{Reason: x509.Expired}, coordinator.CodeInvalid, "x509: certificate has expired"},
		{context.DeadlineExceeded, coordinator.CodeUnavailable, "did not answer in time"},
		{io.ErrUnexpectedEOF, coordinator.CodeUnavailable, "was cut"},
		{syscall.ECONNRESET, coordinator.CodeUnavailable, "was cut"},
		{pgconn.ErrConnClosed, coordinator.CodeUnavailable, "was cut"},
		{pgconn.ErrReadOnlyConnection, coordinator.CodeUnavailable, "target_session_attrs"},
		{&url.Error{Op: "parse", URL: "x", Err: errors.New("no")}, coordinator.CodeInvalid, "cannot be read"},
		{errors.New("something else"), coordinator.CodeUnavailable, "cannot be used: outer: something else"},
		{errors.Join(context.DeadlineExceeded, &pgconn.PgError{Code: "53300"}), coordinator.CodeTooMany, "no more connections"},
	} {
		err := explain(fmt.Errorf("outer: %w", c.err), there)
		var told *coordinator.Error
		if !errors.As(err, &told) || told.Code != c.code || told.Hint == "" || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %#v, want %s and %q", c.err, err, c.code, c.says)
		} else if strings.ContainsAny(told.Message+told.Hint, "{}\n\x1b") {
			t.Errorf("%v: %q", c.err, err)
		}
	}
}

func TestExplainKeepsWhatNeedsNoSentence(t *testing.T) {
	own := &coordinator.Error{Code: coordinator.CodeBusy, Message: "busy"}
	if got := explain(fmt.Errorf("x: %w", own), there); got != error(own) {
		t.Errorf("our own error: %v", got)
	}
	if got := explain(nil, there); got != nil {
		t.Errorf("nil: %v", got)
	}
	if got := explain(fmt.Errorf("%s: %w", canary, context.Canceled), there); got != context.Canceled {
		t.Errorf("given up: %v", got)
	}
}

// TestNoPasswordIsSaid: whatever has a password in it, in whatever spelling, is said
// without it.
func TestNoPasswordIsSaid(t *testing.T) {
	for _, spelling := range []string{
		canary, canaryEncoded, url.QueryEscape(canary), url.UserPassword("u", canary).String(), fmt.Sprintf("%q", canary),
		"postgres://ana:c4n4ry@db.example/x", "password=c4n4ry", `password='c4n4ry \' word c4n4ry'`, "sslpassword = c4n4ry",
	} {
		for _, err := range []error{
			&pgconn.PgError{Code: "XX000", Message: "saw " + spelling, Detail: spelling, Hint: spelling, Where: spelling},
			&pgconn.PgError{Code: "42501", Message: "permission denied for table " + spelling},
			&pgconn.PgError{Code: "28000", Message: spelling},
			dial(errors.New(spelling)),
			fmt.Errorf("%s: %w", spelling, syscall.EHOSTUNREACH),
			fmt.Errorf("tls: %s", spelling),
			pgconn.NewParseConfigError("host=h "+spelling, spelling, errors.New(spelling)),
			&url.Error{Op: "parse", URL: spelling, Err: errors.New(spelling)},
		} {
			if said := everything(explain(err, there)); strings.Contains(said, canaryMark) {
				t.Errorf("%q in %T: %s", spelling, err, said)
			}
		}
	}
	if said := fmt.Sprintf("%v %+v %#v", there, there, there); strings.Contains(said, canaryMark) {
		t.Errorf("a target shows %s", said)
	}
}

func TestWhatOthersSayIsShort(t *testing.T) {
	err := explain(&pgconn.PgError{Code: "XX000", Message: strings.Repeat("ä", 1000)}, there)
	if n := strings.Count(err.Error(), "ä"); n != maxSaid {
		t.Errorf("%d characters of a message", n)
	}
}

func TestTargetsAreNamed(t *testing.T) {
	for want, it := range map[string]target{
		"cli_worker at db.example:5432":               {database: "cli_worker", host: "db.example", port: 5432, user: "u"},
		"cli_worker at [::1]:6543":                    {database: "cli_worker", host: "::1", port: 6543},
		"cli_worker at /run/postgresql":               {database: "cli_worker", host: "/run/postgresql", port: 5432},
		"cli_worker at /run/postgresql/.s.PGSQL.5433": {database: "cli_worker", host: "/run/postgresql", port: 5433},
		"a b at h:1":   {database: "a\nb", host: "h", port: 1},
		"the database": {},
	} {
		if got := it.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := shellName("it's"); got != `'it'\''s'` {
		t.Error(got)
	}
}

func TestSkewWarning(t *testing.T) {
	for d, want := range map[time.Duration]string{
		4 * time.Second:          "",
		-4 * time.Second:         "",
		12300 * time.Millisecond: "the clock of cli_worker at db.example:5432 is 12s ahead of this machine's: the times in the copy are those of this machine",
		-time.Hour:               "the clock of cli_worker at db.example:5432 is 1h0m0s behind this machine's: the times in the copy are those of this machine",
	} {
		if got := skewWarning(d, there); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}
