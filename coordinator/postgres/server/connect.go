// Package server connects to a PostgreSQL server, checks that it can hold a mirror, and
// turns its errors into sentences.
package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator/postgres/dsn"
	"stint/coordinator/task"
	"stint/state"
)

const oldest = 13 // PostgreSQL, that can be used

// Connect makes a pool of at most so many connections (0: pgx's default) to the database
// that url names, and checks that it can hold a mirror: that it answers in time, is new
// enough and has Unicode. The caller closes it. The error is of [Explain]; the target is
// there with it as soon as the URL could be read.
func Connect(ctx context.Context, url func() (string, error), poolSize int) (*Database, Target, error) {
	text, err := url()
	if err != nil {
		return nil, Target{}, Explain(err, Target{})
	}
	cfg, err := dsn.Parse(text)
	if err != nil {
		return nil, Target{}, err
	}
	if poolSize > 0 {
		cfg.MaxConns = int32(min(poolSize, 1000))
	}
	t := Target{cfg.ConnConfig}
	db, err := newDatabase(ctx, cfg)
	if err != nil {
		return nil, t, Explain(err, t)
	}
	c := cfg.ConnConfig
	servers := map[string]bool{} // they are tried one after the other
	for _, f := range append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port}}, c.Fallbacks...) {
		servers[fmt.Sprint(f.Host, f.Port)] = true
	}
	limit := c.ConnectTimeout * time.Duration(len(servers))
	if err := checkServer(ctx, db.Pool, t, limit); err != nil {
		db.Close()
		return nil, t, err
	}
	return db, t, nil
}

// checkServer asks a server for what a mirror needs.
func checkServer(ctx context.Context, pool *pgxpool.Pool, t Target, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var encoding, version string
	err := pool.QueryRow(within, `SELECT current_setting('server_encoding'), current_setting('server_version_num')`).Scan(&encoding, &version)
	if err != nil && ctx.Err() == nil && isTimeout(err) {
		return noAnswer(t, limit)
	}
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
	conn, err := pool.Acquire(ctx) // first, as connecting takes time
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	var there time.Time
	before := now()
	// The simple protocol asks in one round trip.
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`, pgx.QueryExecModeSimpleProtocol).Scan(&there); err != nil {
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
	alive context.Context // ends with Close
	end   context.CancelFunc
	open  sync.Map // of *socket
}

// newDatabase makes the pool. It has no connection yet.
func newDatabase(ctx context.Context, cfg *pgxpool.Config) (_ *Database, err error) {
	d := &Database{}
	d.alive, d.end = context.WithCancel(context.Background())
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.alive, cancel)()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s := &socket{c, d}
		d.open.Store(s, nil)
		if d.alive.Err() != nil { // Close may have looked before
			_ = s.Close()
			return nil, net.ErrClosed
		}
		return s, nil
	}
	if d.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		d.end()
		return nil, err
	}
	return d, nil
}

// Close closes all connections, whether the server answers or not, also those that the
// pool makes to have a statement canceled. A pool alone takes leave of the server first
// and waits 15 s for one that does not answer.
func (d *Database) Close() {
	d.end()
	d.open.Range(func(s, _ any) bool {
		_ = s.(*socket).Close() // the pool closes it again
		return true
	})
	d.Pool.Close()
}

// A socket is a connection that is forgotten when it is closed.
type socket struct {
	net.Conn
	of *Database
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.of.open.Delete(s)
	return s.Conn.Close()
}
