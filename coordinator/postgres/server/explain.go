package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stint/coordinator/postgres/schema"
	"stint/coordinator/task"
	"stint/state"
)

// A Target is the database that a URL names; the zero one is not known. The pointer keeps
// the password out of what fmt prints of it.
type Target struct{ cfg *pgx.ConnConfig }

// String returns "cli_worker at db.example:5432" or "cli_worker at /run/postgresql": the
// URL without user, password and settings.
func (t Target) String() string {
	if t.cfg == nil {
		return "the database"
	}
	at := net.JoinHostPort(t.cfg.Host, fmt.Sprint(t.cfg.Port))
	if strings.HasPrefix(t.cfg.Host, "/") {
		at = t.cfg.Host
	}
	return oneLine(t.cfg.Database + " at " + at)
}

const (
	maxSaid   = 300 // characters of an error that are shown
	minSecret = 3   // bytes; a shorter password is part of ordinary words
)

// scrub makes one short line of a text that came from elsewhere, without the password.
func (t Target) scrub(text string) string {
	if t.cfg != nil && len(t.cfg.Password) >= minSecret {
		p := t.cfg.Password
		text = strings.NewReplacer(p, "***", url.QueryEscape(p), "***", url.PathEscape(p), "***", url.UserPassword("", p).String()[1:], "***").Replace(text)
	}
	return state.Cut(oneLine(text), maxSaid+1)
}

func oneLine(text string) string { return task.EscapeText(strings.Join(strings.Fields(text), " ")) }

// Explain returns a *task.Error for any error of pgx: the database, what failed, and what
// to do about it. nil stays nil, an error that has its sentence already is returned as it
// is, and of a call that was given up context.Canceled is left. Nothing of pgx is wrapped,
// as its errors hold configurations and URLs.
func Explain(err error, t Target) error {
	var own *task.Error
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	var op *net.OpError
	said := ""
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &server) && server.Code == "42704":
		said = "it does not know a setting of the database URL" // its name may be a piece of a password
	case errors.As(err, &server):
		said = fmt.Sprintf("%s (SQLSTATE %s)", server.Message, server.Code)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case isTimeout(err):
		said = "it did not answer in time"
	case errors.As(err, &op):
		said = op.Error()
	case errors.As(err, &connect):
		said = connect.Unwrap().Error()
	default:
		said = err.Error()
	}
	code, hint := advice(err, t)
	return &task.Error{Code: code, Message: t.String() + ": " + t.scrub(said), Hint: hint}
}

// noAnswer returns the error for a server that has been silent for that long.
func noAnswer(t Target, limit time.Duration) error {
	_, hint := advice(context.DeadlineExceeded, t)
	return &task.Error{Code: task.CodeUnavailable, Message: fmt.Sprintf("%v: it did not answer within %v", t, limit), Hint: hint}
}

// advice returns the kind of an error, and what to do about the most common ones.
func advice(err error, t Target) (code task.Code, hint string) {
	t.cfg = cmp.Or(t.cfg, &pgx.ConnConfig{})
	role := oneLine(pgx.Identifier{t.cfg.User}.Sanitize())
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		server = &pgconn.PgError{}
	}
	var dns *net.DNSError
	switch {
	case server.Code == "28P01":
		return task.CodeUnauthorized, "look at the password in url_file, STINT_POSTGRES_URL or ~/.pgpass"
	case server.Code == "28000":
		return task.CodeUnauthorized, "look at the user in the database URL and at pg_hba.conf on the server; for a new role: createuser " + state.ShellQuote(oneLine(t.cfg.User))
	case server.Code == "3D000":
		return task.CodeInvalid, "createdb " + state.ShellQuote(oneLine(t.cfg.Database))
	case server.Code == "42501" && strings.Contains(server.Message, " schema "):
		return task.CodeForbidden, "GRANT USAGE, CREATE ON SCHEMA " + t.scrub(server.Message[strings.LastIndexByte(server.Message, ' ')+1:]) + " TO " + role
	case server.Code == "42501" && strings.Contains(server.Message, "temporary"):
		return task.CodeForbidden, "GRANT TEMPORARY ON DATABASE " + oneLine(pgx.Identifier{t.cfg.Database}.Sanitize()) + " TO " + role
	case server.Code == "42501":
		return task.CodeForbidden, "GRANT SELECT, INSERT, UPDATE, DELETE ON " + strings.Join(schema.Tables, ", ") + ", schema_migrations TO " + role
	case server.Code != "":
		return task.CodeUnavailable, "look at the server's log; the mirror tries again by itself"
	case errors.As(err, &dns):
		return task.CodeUnavailable, "look at the host in the database URL, and at the network"
	case strings.Contains(err.Error(), "tls: "), strings.Contains(err.Error(), "TLS"), strings.Contains(err.Error(), "x509: "):
		return task.CodeInvalid, "give the server a certificate for its name, or add sslrootcert=FILE to the database URL; sslmode=require accepts any certificate, sslmode=disable is for a trusted network"
	case errors.Is(err, fs.ErrPermission):
		return task.CodeForbidden, "look at the permissions of the socket's directory"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return task.CodeUnavailable, "start PostgreSQL there; the mirror then continues by itself"
	default:
		return task.CodeUnavailable, "look at the server and the network; the mirror tries again by itself"
	}
}

// isTimeout reports whether something has taken too long.
func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}
