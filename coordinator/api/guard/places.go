package guard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

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

// leave frees the place of c.
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

// admit returns a request that may be answered. One whose connection has just lost its
// place may not: it gets no answer, not even an empty one, and its client will ask again.
// While all places are taken, a connection is for one request, so that none is cut off
// between two of them.
func (p *places) admit(w http.ResponseWriter, r *http.Request) *http.Request {
	c, ok := r.Context().Value(connKey{}).(*tcpConn)
	if !ok {
		return r // a test's
	}
	since := time.Time{}
	if r.ContentLength != 0 {
		since = time.Now()
		r = r.WithContext(r.Context()) // a copy: net/http looks at the body of its own request
		r.Body = &awaitedBody{r.Body, c}
	}
	switch ok, full := p.set(c, since); {
	case !ok:
		panic(http.ErrAbortHandler)
	case full:
		w.Header().Set("Connection", "close")
	}
	return r
}

// An awaitedBody is the body of a request: until all of it was read, its connection waits,
// as for a header, and may lose its place. It belongs to one request.
type awaitedBody struct {
	io.ReadCloser
	conn *tcpConn
}

// Read implements io.Reader.
func (b *awaitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		if ok, _ := b.conn.places.set(b.conn, time.Time{}); !ok {
			return 0, net.ErrClosed
		}
	}
	return n, err
}
