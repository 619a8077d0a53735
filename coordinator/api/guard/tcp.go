package guard

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

// A tcpListener accepts connections from which nothing is read unless our own user or root
// has their other end, and not too many at a time.
type tcpListener struct {
	net.Listener
	log    *slog.Logger
	places *places

	once   sync.Once
	closed chan struct{}
}

// Accept returns the next connection, whoever it is from, once there is a place for it.
func (l *tcpListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &tcpConn{Conn: conn, log: l.log, places: l.places}
	for !l.places.take(c) {
		select {
		case <-l.places.freed:
		case <-time.After(yieldAfter):
		case <-l.closed:
			return nil, errors.Join(net.ErrClosed, conn.Close())
		}
	}
	return c, nil
}

// Close ends Accept.
func (l *tcpListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A tcpConn is a connection over TCP. Whose it is takes a moment to find out, for which
// no other connection should wait: so it is asked by who reads, and not by Accept.
type tcpConn struct {
	net.Conn
	log    *slog.Logger
	places *places

	once    sync.Once
	allowed bool // set by once: it may call
}

// Read implements io.Reader. A stranger seems to have said nothing.
func (c *tcpConn) Read(p []byte) (int, error) {
	c.once.Do(c.look)
	if !c.allowed {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *tcpConn) Close() error {
	defer c.places.leave(c)
	return c.Conn.Close()
}

// look finds out who has the other end. Only Linux has a table of that; elsewhere the token
// alone keeps others out. What is no connection of the kernel's, as in a test,
// has nobody at its other end.
func (c *tcpConn) look() {
	client, ok := c.RemoteAddr().(*net.TCPAddr)
	server, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 || runtime.GOOS != "linux" {
		c.allowed = true
		return
	}
	uid, found, err := tcpUID(client.AddrPort(), server.AddrPort())
	if err != nil {
		c.log.Warn("connections over TCP are refused, since their user is unknown: " + err.Error())
	}
	c.allowed = found && mayCall(uid, os.Getuid())
}
