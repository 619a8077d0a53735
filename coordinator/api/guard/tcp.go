package guard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
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
	isTimed bool // a handler has set a deadline of its own for what is written
}

// Read implements io.Reader. A stranger seems to have said nothing.
func (c *tcpConn) Read(p []byte) (int, error) {
	c.once.Do(c.look)
	if !c.allowed {
		return 0, io.EOF
	}
	return c.Conn.Read(p)
}

// Write implements io.Writer. Each piece of an answer has a deadline from when it is written.
func (c *tcpConn) Write(p []byte) (int, error) {
	if !c.isTimed {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // a connection has one
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline is what http.ResponseController calls.
func (c *tcpConn) SetWriteDeadline(t time.Time) error {
	c.isTimed = true
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *tcpConn) Close() error {
	defer c.places.leave(c)
	return c.Conn.Close()
}

// look finds out who has the other end. Only Linux has a table of that; elsewhere the token alone keeps
// others out. What is no connection of the kernel's, as in a test, has nobody at its other end.
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

// tcpUID returns the user who has the client's end of the connection between client and server, if somebody has it.
func tcpUID(client, server netip.AddrPort) (uid int, found bool, err error) {
	for range 3 { // the kernel writes a table piece by piece, and may pass over a row if others come or go meanwhile
		text, err := readTables(time.Now())
		for _, mapped := range []bool{false, true} { // a client may use a socket of IPv6 for an address of IPv4
			if uid, found = findRow(text, rowAddr(client, mapped)+" "+rowAddr(server, mapped)); found || err != nil {
				return uid, found && err == nil, err
			}
		}
	}
	return 0, false, nil
}

// tables are the kernel's tables of connections as they were last read, which takes
// milliseconds: all who wait for them share one reading.
var tables struct {
	sync.Mutex           // guards what follows
	begun      time.Time // the last reading
	text       []byte
}

// readTables returns the tables as they were after since.
func readTables(since time.Time) (text []byte, err error) {
	tables.Lock()
	defer tables.Unlock()
	if !tables.begun.After(since) {
		tables.begun, tables.text = time.Now(), nil
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // without IPv6 the latter is missing
			if text, err = os.ReadFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("the table of connections: %w", err)
			}
			tables.text = append(tables.text, text...)
		}
	}
	return tables.text, nil
}

// rowAddr writes an address as a table does: in words of the machine's byte order.
func rowAddr(a netip.AddrPort, mapped bool) (text string) {
	raw := a.Addr().As16()
	words := raw[12:] // the address of IPv4
	if mapped || !a.Addr().Unmap().Is4() {
		words = raw[:]
	}
	for word := range slices.Chunk(words, 4) {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", text, a.Port())
}

// findRow returns the user of the row whose two addresses are addrs. A socket that was
// closed has no inode, and seems to be root's: nobody has it.
func findRow(table []byte, addrs string) (uid int, found bool) {
	_, rest, _ := bytes.Cut(table, []byte(": "+addrs+" "))
	row, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(row) // st, queues, timer, retransmissions, uid, timeout, inode
	if len(fields) < 7 || string(fields[6]) == "0" {
		return 0, false
	}
	uid, err := strconv.Atoi(string(fields[4]))
	return uid, err == nil && uid >= 0
}

// yieldAfter is how long a connection may wait for a request before another one may take
// its place: long enough for a client that connects to send its request.
const yieldAfter = 100 * time.Millisecond

// places bounds the connections over TCP. When all are taken, a new connection gets the
// place of the one that has waited longest for a request: one that is kept alive, or that
// has sent a part of its request. One that was read, with its body, is never cut off.
type places struct {
	most  int
	freed chan struct{} // capacity 1: there may be room again

	mu    sync.Mutex
	conns map[*tcpConn]time.Time // guarded by mu; since when each has waited for its client; zero: it does not
}

func newPlaces(most int) *places {
	return &places{most: most, freed: make(chan struct{}, 1), conns: map[*tcpConn]time.Time{}}
}

// take reports whether c got a place. If there is none, the connection that has waited
// longest loses its own, unless that is not for long yet.
func (p *places) take(c *tcpConn) bool {
	p.mu.Lock()
	var longest *tcpConn
	if len(p.conns) >= p.most {
		for other, since := range p.conns {
			if !since.IsZero() && (longest == nil || since.Before(p.conns[longest])) {
				longest = other
			}
		}
		if longest == nil || time.Since(p.conns[longest]) < yieldAfter {
			p.mu.Unlock()
			return false
		}
		delete(p.conns, longest)
	}
	p.conns[c] = time.Now()
	p.mu.Unlock()
	if longest != nil {
		_ = longest.Conn.Close() // nobody can do more about it
	}
	return true
}

// set notes since when c has waited for its client; zero: it does not. It reports whether c
// still has a place, and whether all of them are taken.
func (p *places) set(c *tcpConn, since time.Time) (ok, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok = p.conns[c]; ok {
		p.conns[c] = since
	}
	return ok, len(p.conns) >= p.most
}

func (p *places) leave(c *tcpConn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// connKey is the key under which a request's context has its connection over TCP.
type connKey struct{}

// bound lets srv keep to the places.
func (p *places) bound(srv *http.Server) {
	state, withConn := srv.ConnState, srv.ConnContext
	srv.ConnState = func(c net.Conn, cs http.ConnState) {
		switch cs {
		case http.StateActive:
			p.set(c.(*tcpConn), time.Time{})
		case http.StateIdle:
			p.set(c.(*tcpConn), time.Now())
		}
		state(c, cs)
	}
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(withConn(ctx, c), connKey{}, c)
	}
}

// admit returns a request that may be answered. One whose connection has just lost its place may not: it gets
// no answer, not even an empty one, and its client will ask again. While all places are taken, a connection
// is for one request, so that none is cut off between two of them.
func (p *places) admit(w http.ResponseWriter, r *http.Request) *http.Request {
	c, ok := r.Context().Value(connKey{}).(*tcpConn)
	if !ok {
		return r // a test's
	}
	since := time.Time{}
	if r.ContentLength != 0 {
		since = time.Now()
		r = r.WithContext(r.Context()) // a copy: net/http looks at the body of its own request
		// Until then its connection waits, as for a header, and may lose its place.
		r.Body = &endingBody{r.Body, func() error {
			if ok, _ := p.set(c, time.Time{}); !ok {
				return net.ErrClosed
			}
			return nil
		}}
	}
	switch ok, full := p.set(c, since); {
	case !ok:
		panic(http.ErrAbortHandler)
	case full:
		w.Header().Set("Connection", "close")
	}
	return r
}

// An endingBody is the body of a request that calls ended when all of it was read; an error
// of ended takes the place of its end. It belongs to one request.
type endingBody struct {
	io.ReadCloser
	ended func() error
}

// Read implements io.Reader.
func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		if err := b.ended(); err != nil {
			return 0, err
		}
	}
	return n, err
}
