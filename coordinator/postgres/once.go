package postgres

import (
	"context"
	"errors"
	"time"

	"stint/coordinator/postgres/schema"
	"stint/coordinator/postgres/server"
	"stint/coordinator/task"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

// A Position says how far a mirror goes.
type Position struct {
	Target     string        `json:"target"`
	Schema     int           `json:"schema,omitempty"`
	Host       string        `json:"host"`
	StateDir   string        `json:"stateDir,omitempty"` // whose ledger it is a mirror of; "": nothing was copied yet
	Seq        uint64        `json:"seq"`                // all records up to this one are in it; 0: it is being built, or empty
	Generation int64         `json:"generation,omitempty"`
	UpdatedAt  time.Time     `json:"updatedAt,omitzero"` // by the database's clock
	RebuiltAt  time.Time     `json:"rebuiltAt,omitzero"` // by the database's clock
	Version    string        `json:"version,omitempty"`  // of the stint that wrote last
	Skew       time.Duration `json:"-"`                  // the database's clock minus ours
	Warning    string        `json:"warning,omitempty"`
	Rows       uint64        `json:"rows,omitempty"`    // written by this call
	Skipped    []string      `json:"skipped,omitempty"` // tasks that the database did not take, and why: a few of them

	digest   []byte
	settings string
	worker   *[16]byte     // who rebuilds it, or was the last to
	age      time.Duration // since UpdatedAt
}

// readPosition reads the mirror's row of a host; the zero one if there is none.
func readPosition(ctx context.Context, q schema.Querier, host string) (p Position, err error) {
	err = q.QueryRow(ctx, `SELECT host, state_dir, seq, digest, generation, settings, version, updated_at, rebuilt_at, worker_id,
		clock_timestamp() - updated_at FROM mirrors WHERE host = $1`, host).
		Scan(&p.Host, &p.StateDir, &p.Seq, &p.digest, &p.Generation, &p.settings, &p.Version, &p.UpdatedAt, (*zeronull.Timestamptz)(&p.RebuiltAt), &p.worker, &p.age)
	if errors.Is(err, pgx.ErrNoRows) {
		return Position{Host: host}, nil
	}
	p.UpdatedAt, p.RebuiltAt = p.UpdatedAt.UTC(), p.RebuiltAt.UTC()
	return p, err
}

// Look connects, checks the schema and reads how far the mirror goes. It changes nothing. For a database without our tables it
// returns Schema 0; a mirror of another state directory under the name of this host is an error. Errors are *task.Error.
func Look(ctx context.Context, o Options) (p Position, err error) {
	m := New(o)
	pool, t, err := server.Connect(ctx, o.URL, o.PoolSize)
	if err != nil {
		return p, err
	}
	defer pool.Close()
	defer func() { err = server.Explain(err, t) }()
	p = Position{Host: o.Host, Target: t.String()}
	version, err := schema.Check(ctx, pool)
	if errors.Is(err, schema.ErrNone) {
		return p, nil
	} else if err != nil {
		return p, err
	}
	if p, err = readPosition(ctx, pool, o.Host); err != nil {
		return p, err
	}
	p.Target, p.Schema = t.String(), version
	if p.StateDir != "" && p.StateDir != storable(o.StateDir) {
		return p, o.notOurs(&p, t)
	}
	if p.Skew, err = server.ClockSkew(ctx, pool.Pool, m.o.Now); err == nil {
		p.Warning = server.SkewWarning(p.Skew, t)
	}
	return p, err
}

// Migrate connects to the database of o and brings its schema to the newest version. It
// returns the versions before and after. Errors are *task.Error.
func Migrate(ctx context.Context, o Options) (from, to int, err error) {
	pool, t, err := server.Connect(ctx, o.URL, o.PoolSize)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	from, to, err = schema.Migrate(ctx, pool)
	return from, to, server.Explain(err, t)
}

// Once brings the mirror up to date with what the ledger has when it is first read, and
// returns. A mirror of the same ledger may be at work meanwhile. read returns the ledger as
// it is then; it is called again when that has become too old to go on with. Errors are
// *task.Error, or read's.
func Once(ctx context.Context, o Options, read func() (Source, error)) (Position, error) {
	return New(o).sync(ctx, read)
}

// Rebuild writes the whole mirror anew, also where the name of this host has the mirror of
// another state directory. read and the errors are those of [Once].
func Rebuild(ctx context.Context, o Options, read func() (Source, error)) (Position, error) {
	m := New(o)
	m.overwrite = true
	return m.sync(ctx, read)
}

// sync makes sessions until one of them has done all: the mirror may be moved on by another writer meanwhile, or the ledger be
// compacted.
func (m *Mirror) sync(ctx context.Context, read func() (Source, error)) (p Position, err error) {
	for end := forever; ; _ = task.Sleep(ctx, firstWait) { // it becomes the end of what was read first
		err = m.session(ctx, read, func(s *session) error {
			end = min(end, s.src.Seq())
			err := s.run(ctx, end)
			if err == nil {
				p, err = readPosition(ctx, s.pool, m.o.Host)
			}
			p.Target, p.Schema = s.target.String(), schema.Newest()
			return err
		})
		if !errors.Is(err, errMoved) && !errors.Is(err, errBusy) && !errors.Is(err, errCompacted) {
			st := m.Status()
			p.Rows, p.Warning, p.Skipped = st.Rows, st.Warning, st.Skipped
			return p, err
		}
	}
}
