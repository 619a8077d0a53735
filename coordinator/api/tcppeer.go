package api

import (
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
)

// A tcpListener gives connections from which nothing is read unless our own user or root
// has their other end.
type tcpListener struct {
	net.Listener
	log *slog.Logger
}

// Accept gives the next connection, whoever it is from.
func (l *tcpListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tcpConn{Conn: c, log: l.log}, nil
}

// A tcpEnd is the other end of a connection over TCP.
type tcpEnd struct {
	uid   int
	inode uint64 // of its socket; 0: it cannot be looked for
}

// A tcpConn is a connection over TCP. Whose it is takes a moment to find out, for which
// no other connection should wait: so it is asked by who reads, and not by Accept.
type tcpConn struct {
	net.Conn
	log *slog.Logger

	once sync.Once
	end  tcpEnd // set by once
	let  bool   // likewise: it may call
}

// Read implements io.Reader. A stranger seems to have said nothing.
func (c *tcpConn) Read(p []byte) (int, error) {
	c.once.Do(c.look)
	if !c.let {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// look finds out who has the other end. Only what is no connection of the kernel's, as
// in a test, has nobody there.
func (c *tcpConn) look() {
	client, ok := c.RemoteAddr().(*net.TCPAddr)
	server, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		c.let = true
		return
	}
	end, found, err := findEnd(client.AddrPort(), server.AddrPort())
	if err != nil {
		c.log.Warn("nobody is let in over TCP, since nobody can tell who asks: " + err.Error())
	}
	c.end, c.let = end, found && mayCall(end.uid, os.Getuid())
}
