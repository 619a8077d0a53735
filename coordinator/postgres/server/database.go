package server

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

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
