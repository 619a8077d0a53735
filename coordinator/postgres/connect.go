package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"stint/coordinator/postgres/dsn"
	"stint/coordinator/task"
)

const oldest = 13 // PostgreSQL, that can be used

// config asks for the URL, and returns the configuration of a pool for it.
func (o *Options) config() (*pgxpool.Config, target, error) {
	text, err := o.URL()
	if err != nil {
		return nil, target{}, explain(err, target{})
	}
	cfg, err := dsn.Parse(text)
	if err != nil {
		return nil, target{}, err
	}
	if o.PoolSize > 0 {
		cfg.MaxConns = int32(min(o.PoolSize, 1000))
	}
	return cfg, target{cfg.ConnConfig}, nil
}

// connect makes a pool of connections to the database, and looks whether it can hold a
// copy: that it answers in time, is new enough and has Unicode. The caller closes it. The
// error is of [explain]; the target is there with it as soon as the URL could be read.
func (o *Options) connect(ctx context.Context) (*database, target, error) {
	cfg, t, err := o.config()
	if err != nil {
		return nil, t, err
	}
	db, err := newDatabase(ctx, cfg)
	if err != nil {
		return nil, t, explain(err, t)
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

// checkServer asks a server for what a copy needs.
func checkServer(ctx context.Context, pool *pgxpool.Pool, t target, limit time.Duration) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var encoding, version string
	err := pool.QueryRow(within, `SELECT current_setting('server_encoding'), current_setting('server_version_num')`).Scan(&encoding, &version)
	if err != nil && ctx.Err() == nil && isTimeout(err) {
		return noAnswer(t, limit)
	}
	if err != nil {
		return explain(err, t)
	}
	if encoding != "UTF8" {
		return task.Invalid("createdb -T template0 -E UTF8 "+shellName(t.cfg.Database)+", once the present one is out of the way",
			"%v has the encoding %s, and a copy needs UTF8", t, t.scrub(encoding))
	}
	if n, err := strconv.Atoi(version); err != nil || n < oldest*10000 {
		return task.Invalid("name a newer server in the URL", "%v is PostgreSQL %d, and a copy needs %d or newer", t, n/10000, oldest)
	}
	return nil
}

// clockSkew returns how much the database's clock is ahead of ours: the middle of the
// round trip is taken as the moment at which it was read. The error is pgx's.
func clockSkew(ctx context.Context, pool *pgxpool.Pool, now func() time.Time) (time.Duration, error) {
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

// skewWarning returns the sentence for clocks that differ, and "" if they do not by much.
func skewWarning(d time.Duration, t target) string {
	direction := "ahead of"
	switch {
	case d.Abs() < 5*time.Second:
		return ""
	case d < 0:
		direction = "behind"
	}
	return fmt.Sprintf("the clock of %v is %v %s this machine's: the times in the copy are those of this machine",
		t, d.Abs().Round(time.Second), direction)
}
