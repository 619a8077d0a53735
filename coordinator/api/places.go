package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// yieldAfter is how long a connection may wait for a request before another one may take
// its place: long enough for a client that connects to send its header.
const yieldAfter = 100 * time.Millisecond

// places bounds the connections over TCP. When all are taken, a new connection gets the
// place of the one that has waited longest for a request: one that is kept alive, or that
// has sent no whole header yet. A request that was read is never cut off.
type places struct {
	most  int
	freed chan struct{} // capacity 1: there may be room again

	mu    sync.Mutex
	conns map[*tcpConn]time.Time // guarded by mu; since when each waits for a request; zero: it has one
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

// note notes what http.Server tells about a connection.
func (p *places) note(c *tcpConn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.conns[c]; !ok {
		return
	}
	switch state {
	case http.StateActive:
		p.conns[c] = time.Time{}
	case http.StateIdle:
		p.conns[c] = time.Now()
	}
}

// has reports whether c still has a place, and whether all of them are taken.
func (p *places) has(c *tcpConn) (ok, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok = p.conns[c]
	return ok, len(p.conns) >= p.most
}

// leave gives the place of c back.
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
		p.note(c.(*tcpConn), cs)
		state(c, cs)
	}
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(withConn(ctx, c), connKey{}, c)
	}
}

// admits reports whether a request may be answered. One whose connection has just lost its
// place may not: its client will ask again. While all places are taken, a connection is
// for one request, so that none is cut off between two of them.
func (p *places) admits(w http.ResponseWriter, r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(*tcpConn)
	if !ok {
		return true // a test's
	}
	ok, full := p.has(c)
	if full {
		w.Header().Set("Connection", "close")
	}
	return ok
}
