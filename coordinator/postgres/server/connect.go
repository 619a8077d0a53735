// Package server connects to a PostgreSQL server, checks that it can hold a mirror, and turns its errors into sentences.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator/postgres/dsn"
	"stint/coordinator/task"
	"stint/state"
)

const oldest = 13 // PostgreSQL, that can be used

// Connect makes a pool of at most so many connections (0: pgx's default) to the database that url names, and
// checks that it can hold a mirror: that it answers in time, is new enough and has Unicode. The caller closes
// it. The error is of [Explain].
func Connect(ctx context.Context, url func() (string, error), poolSize int) (*Database, error) {
	text, err := url()
	if err != nil {
		return nil, Explain(err, Target{})
	}
	cfg, err := dsn.Parse(text)
	if err != nil {
		return nil, err
	}
	if poolSize > 0 {
		cfg.MaxConns = int32(min(poolSize, 1000))
	}
	t, c := Target{cfg.ConnConfig}, cfg.ConnConfig
	alive, end := context.WithCancel(context.Background())
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(alive, cancel)()
		socket, err := dial(ctx, network, addr)
		if err == nil {
			context.AfterFunc(alive, func() { _ = socket.Close() }) // at once if it has ended already; the pool closes it again
		}
		return socket, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg) // it has no connection yet
	if err != nil {
		end()
		return nil, Explain(err, t)
	}
	db := &Database{pool, t, end}
	limit := c.ConnectTimeout * time.Duration(1+len(c.Fallbacks)) // they are tried one after the other
	if err := checkServer(ctx, db.Pool, t, limit); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// checkServer asks a server for what a mirror needs.
func checkServer(ctx context.Context, pool *pgxpool.Pool, t Target, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var encoding, version string
	err := pool.QueryRow(within, `SELECT current_setting('server_encoding'), current_setting('server_version_num')`).Scan(&encoding, &version)
	if err != nil {
		return Explain(err, t)
	}
	if encoding != "UTF8" {
		return task.Invalid("createdb -T template0 -E UTF8 "+state.ShellQuote(oneLine(t.cfg.Database))+", once the present one is out of the way",
			"%v has the encoding %s, and a mirror needs UTF8", t, t.scrub(encoding))
	}
	if n, err := strconv.Atoi(version); err != nil || n < oldest*10000 {
		return task.Invalid("name a newer server in the URL", "%v is PostgreSQL %d, and a mirror needs %d or newer", t, n/10000, oldest)
	}
	return nil
}

// ClockSkew returns how much the database's clock is ahead of ours: the middle of the
// round trip is taken as the moment at which it was read. The error is pgx's.
func ClockSkew(ctx context.Context, pool *pgxpool.Pool, now func() time.Time) (time.Duration, error) {
	var there time.Time
	before := now()
	// The simple protocol asks in one round trip, and the pool has the connection that has answered just now.
	if err := pool.QueryRow(ctx, `SELECT clock_timestamp()`, pgx.QueryExecModeSimpleProtocol).Scan(&there); err != nil {
		return 0, err
	}
	return there.Sub(before.Add(now().Sub(before) / 2)), nil
}

// SkewWarning returns the sentence for clocks that differ, and "" if they do not by much.
func SkewWarning(d time.Duration, t Target) string {
	direction := "ahead of"
	switch {
	case d.Abs() < 5*time.Second:
		return ""
	case d < 0:
		direction = "behind"
	}
	return fmt.Sprintf("the clock of %v is %v %s this machine's: the times in the mirror are those of this machine",
		t, d.Abs().Round(time.Second), direction)
}

// A Database is a pool of connections that can be closed at once.
type Database struct {
	*pgxpool.Pool
	Target Target
	end    context.CancelFunc // closes each connection that was made
}

// Close closes all connections, whether the server answers or not, also those that the pool makes to have a statement canceled.
// A pool alone takes leave of the server first and waits 15 s for one that does not answer.
func (d *Database) Close() {
	d.end()
	d.Pool.Close()
}

// A Target is the database that a URL names; the zero one is not known. The pointer keeps
// the password out of what fmt prints of it.
type Target struct{ cfg *pgx.ConnConfig }

// String returns "cli_worker at db.example:5432" or "cli_worker at /run/postgresql": the URL without user, password and settings.
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

// IsRefusal reports whether the database does not take some value of what was written, however
// often it is sent: a text is too long for an index, a number too large.
func IsRefusal(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && len(pg.Code) == 5 && slices.Contains([]string{"21", "22", "23", "54"}, pg.Code[:2])
}

// Explain returns a *task.Error for any error of pgx: the database, what failed, and what to do about it. nil
// stays nil, an error that has its sentence already is returned as it is, and of a call that was given up
// context.Canceled is left. Nothing of pgx is wrapped, as its errors hold configurations and URLs.
func Explain(err error, t Target) error {
	var own *task.Error
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	var op *net.OpError
	var network net.Error
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
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
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

// advice returns the kind of an error, and what to do about the most common ones.
func advice(err error, t Target) (code task.Code, hint string) {
	t.cfg = cmp.Or(t.cfg, &pgx.ConnConfig{})
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		server = &pgconn.PgError{}
	}
	switch {
	case server.Code == "28P01":
		return task.CodeUnauthorized, "look at the password in url_file, STINT_POSTGRES_URL or ~/.pgpass"
	case server.Code == "28000":
		return task.CodeUnauthorized, "look at the user in the database URL and at pg_hba.conf on the server; for a new role: createuser " + state.ShellQuote(oneLine(t.cfg.User))
	case server.Code == "3D000":
		return task.CodeInvalid, "createdb " + state.ShellQuote(oneLine(t.cfg.Database))
	case server.Code == "42501":
		return task.CodeForbidden, "GRANT it to " + oneLine(pgx.Identifier{t.cfg.User}.Sanitize()) + "; what a role needs, and who makes the tables: stint help postgres"
	case server.Code == "55P03":
		return task.CodeBusy, `try again; "SELECT * FROM pg_stat_activity" in the database shows who has locked it`
	case server.Code != "":
		return task.CodeUnavailable, "look at the server's log; the mirror tries again by itself"
	case strings.Contains(err.Error(), "tls: "), strings.Contains(err.Error(), "TLS"), strings.Contains(err.Error(), "x509: "):
		return task.CodeInvalid, "give the server a certificate for its name, or add sslrootcert=FILE to the database URL; sslmode=require accepts any certificate, sslmode=disable is for a trusted network"
	default:
		return task.CodeUnavailable, "look whether the server runs, at the host in the database URL and at the network; the mirror tries again by itself"
	}
}
