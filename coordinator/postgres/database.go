package postgres

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A database is a pool of connections that can be closed at once.
type database struct {
	*pgxpool.Pool
	sockets *sockets
}

// newDatabase makes the pool. It has no connection yet.
func newDatabase(ctx context.Context, cfg *pgxpool.Config) (*database, error) {
	s := &sockets{open: map[*socket]bool{}}
	s.alive, s.end = context.WithCancel(context.Background())
	cfg.ConnConfig.DialFunc = s.dialer(cfg.ConnConfig.DialFunc)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		s.close()
		return nil, err
	}
	return &database{pool, s}, nil
}

// Close closes all connections, whether the server answers or not. A pool alone takes
// leave of the server first, makes a new connection to have a statement canceled, and
// waits 15 s for a server that does not answer.
func (d *database) Close() {
	d.sockets.close()
	d.Pool.Close()
}

// sockets are the open connections of a pool, and those that it makes to have a
// statement canceled.
type sockets struct {
	alive context.Context // ends with close; no new ones then
	end   context.CancelFunc

	mu   sync.Mutex
	open map[*socket]bool
}

// A socket is a connection that is forgotten when it is closed.
type socket struct {
	net.Conn
	of *sockets
}

// Close implements net.Conn.
func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// dialer gives a dial that remembers the connections.
func (s *sockets) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.alive, cancel)()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return s.add(c)
	}
}

func (s *sockets) add(c net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive.Err() != nil {
		_ = c.Close() // nothing was sent
		return nil, net.ErrClosed
	}
	one := &socket{c, s}
	s.open[one] = true
	return one, nil
}

// close closes them all, and those to come at once.
func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	for c := range s.open {
		_ = c.Conn.Close() // the pool closes it again
	}
}
