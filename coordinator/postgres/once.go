package postgres

import (
	"context"
	"errors"
	"time"

	"stint/coordinator/postgres/schema"
	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/ledger/follow"

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

// readPosition reads the row of our mirror in the database t; the zero one if there is none. A mirror of another state directory
// under our name is an error, unless it may be written over.
func (o *Options) readPosition(ctx context.Context, q schema.Querier, t server.Target) (p Position, err error) {
	err = q.QueryRow(ctx, `SELECT host, state_dir, seq, digest, generation, settings, version, updated_at, rebuilt_at, worker_id,
		clock_timestamp() - updated_at FROM mirrors WHERE host = $1`, o.Host).
		Scan(&p.Host, &p.StateDir, &p.Seq, &p.digest, &p.Generation, &p.settings, &p.Version, &p.UpdatedAt, (*zeronull.Timestamptz)(&p.RebuiltAt), &p.worker, &p.age)
	if errors.Is(err, pgx.ErrNoRows) {
		return Position{Host: o.Host}, nil
	}
	p.UpdatedAt, p.RebuiltAt = p.UpdatedAt.UTC(), p.RebuiltAt.UTC()
	if err == nil && p.StateDir != tables.Storable(o.StateDir) && !o.Anew {
		err = task.Conflict("give this one a name of its own (host in [postgres]), or if it was moved: stint sync rebuild",
			"%s has the mirror of another state directory under the name %s: %s", t, o.Host, p.StateDir)
	}
	return p, err
}

// Look connects, checks the schema and reads how far the mirror goes. It changes nothing. For a database without our tables it
// returns Schema 0; a mirror of another state directory under the name of this host is an error. Errors are *task.Error.
func Look(ctx context.Context, o Options) (p Position, err error) {
	err = o.connected(ctx, func(db *server.Database) error {
		p = Position{Host: o.Host, Target: db.Target.String()}
		err := schema.Check(ctx, db)
		if errors.Is(err, schema.ErrNone) {
			return nil
		}
		if err == nil {
			p, err = o.readPosition(ctx, db, db.Target)
		}
		if p.Target, p.Schema = db.Target.String(), schema.Newest(); err != nil {
			return err
		}
		p.Skew, err = server.ClockSkew(ctx, db.Pool, New(o).o.Now)
		p.Warning = server.SkewWarning(p.Skew, db.Target)
		return err
	})
	return p, err
}

// connected calls do with a connection to the database of o. Its errors are *task.Error, but for those that a caller decides on.
func (o *Options) connected(ctx context.Context, do func(*server.Database) error) error {
	db, err := server.Connect(ctx, o.URL, o.PoolSize)
	if err != nil {
		return err
	}
	defer db.Close()
	if err = do(db); isAgain(err) || errors.Is(err, follow.ErrClosed) {
		return err
	}
	return server.Explain(err, db.Target)
}

// Migrate connects to the database of o and brings its schema to the newest version. It
// returns the versions before and after. Errors are *task.Error.
func Migrate(ctx context.Context, o Options) (from, to int, err error) {
	err = o.connected(ctx, func(db *server.Database) (err error) {
		from, to, err = schema.Migrate(ctx, db)
		return err
	})
	return from, to, err
}

// Once brings the mirror up to date with what the ledger has when it is first read, and
// returns. A mirror of the same ledger may be at work meanwhile. read returns the ledger as
// it is then; it is called again when that has become too old to go on with. Errors are
// *task.Error, or read's.
func Once(ctx context.Context, o Options, read func() (Source, error)) (p Position, err error) {
	m := New(o)
	// Until a session has done all: the mirror may be moved on by another writer meanwhile, or the ledger be compacted.
	for end := forever; ; _ = task.Sleep(ctx, firstWait) { // it becomes the end of what was read first
		err = m.session(ctx, read, func(s *session) error {
			end = min(end, s.src.Seq())
			err := s.run(ctx, end)
			if err == nil {
				p, err = m.o.readPosition(ctx, s.db, s.db.Target)
			}
			p.Target, p.Schema = s.db.Target.String(), schema.Newest()
			return err
		})
		if !isAgain(err) {
			st := m.Status()
			p.Rows, p.Warning, p.Skipped = st.Rows, st.Warning, st.Skipped
			return p, err
		}
	}
}
