package postgrestest

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
)

// A Proxy stands between clients and a server, at a port of this machine, as a network
// does: connections through it break, or nothing comes through any more.
type Proxy struct {
	listener *net.TCPListener
	all      sync.WaitGroup // its goroutines

	mu     sync.Mutex
	moved  sync.Cond // hung, or closed of a link
	socket string    // of the server
	cut    bool
	hung   bool
	open   map[*link]bool
	left   int64 // bytes until all connections are reset; 0: no number
	commit commitFault
	faults int // that have happened
}

// A commitFault says what happens to the next connection that sends a COMMIT.
type commitFault int

const (
	commitPasses   commitFault = iota
	commitIsLost               // it does not reach the server, and the connection is reset
	commitIsUnsaid             // it is carried out; the connection is reset in place of the answer
)

// A link is a connection of a client, with ours to the server.
type link struct {
	client, server net.Conn
	unsaid         bool // the next answer of the server is not passed on
	lost           bool // nothing comes through, for ever
	closed         bool
}

// NewProxy returns a proxy in front of a server. It ends with the test.
func NewProxy(t testing.TB, to *Server) *Proxy {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, socket: to.socket(), open: map[*link]bool{}}
	p.moved.L = &p.mu
	p.all.Go(p.serve)
	t.Cleanup(p.end)
	return p
}

// socket returns the path of the server's socket.
func (s *Server) socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// URL returns the URL of a database through the proxy.
func (p *Proxy) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", p.listener.Addr(), url.PathEscape(database))
}

// ResetAfter resets all connections, once, when that many more bytes have come through
// in both directions.
func (p *Proxy) ResetAfter(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// LoseCommit resets the next connection that sends a COMMIT, which the server does not get.
func (p *Proxy) LoseCommit() { p.setCommit(commitIsLost) }

// LoseAnswerOfCommit resets the next connection that sends a COMMIT when the server has
// carried it out.
func (p *Proxy) LoseAnswerOfCommit() { p.setCommit(commitIsUnsaid) }

func (p *Proxy) setCommit(fault commitFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commit = fault
}

// Faults returns how often connections were reset by ResetAfter, LoseCommit and
// LoseAnswerOfCommit.
func (p *Proxy) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Cut resets all connections, and those that are tried from now on.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.resetAll()
}

// Hang lets nothing come through any more. Connections stay, and new ones are taken.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hung = true
}

// Lose lets nothing come through the connections that are open now, for ever, as when a
// router between has forgotten them. New ones are as they should be.
func (p *Proxy) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.lost = true
	}
}

// Heal ends Cut, Hang and all that was to happen.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.hung, p.left, p.commit = false, false, 0, commitPasses
	p.moved.Broadcast()
}

// SwitchTo resets all connections; new ones go to another server.
func (p *Proxy) SwitchTo(s *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.socket = s.socket()
	p.resetAll()
}

// end closes everything and waits until nothing is at work.
func (p *Proxy) end() {
	_ = p.listener.Close() // nobody else has it
	p.Cut()
	p.all.Wait()
}

// serve takes connections until the listener is closed.
func (p *Proxy) serve() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return
		}
		_ = client.SetLinger(0) // so a close is a reset
		p.join(client)
	}
}

// join makes a link of a client's connection.
func (p *Proxy) join(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server, err := net.Dial("unix", p.socket)
	if p.cut || err != nil {
		_ = client.Close() // that is what the client is to see
		if err == nil {
			_ = server.Close() // it was not used
		}
		return
	}
	l := &link{client: client, server: server}
	p.open[l] = true
	p.all.Go(func() { p.carry(l, l.client, l.server, p.asked) })
	p.all.Go(func() { p.carry(l, l.server, l.client, p.answered) })
}

// carry passes on what comes from one side, as far as a fault lets it, until the link
// is closed.
func (p *Proxy) carry(l *link, from, to net.Conn, faulty func(l *link, chunk []byte) (reset bool)) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		chunk := p.admit(l, buffer[:n], faulty)
		if len(chunk) > 0 {
			_, writing := to.Write(chunk)
			if err == nil {
				err = writing
			}
		}
		if len(chunk) < n || err != nil {
			p.reset(l)
			return
		}
	}
}

// admit returns as much of a chunk as is to be passed on. What is less than all of it is
// the last.
func (p *Proxy) admit(l *link, chunk []byte, faulty func(l *link, chunk []byte) (reset bool)) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for (p.hung || l.lost) && !l.closed {
		p.moved.Wait()
	}
	n := int64(len(chunk))
	switch {
	case l.closed:
		return nil
	case n > 0 && faulty(l, chunk):
		p.faults++
		return nil
	case p.left == 0 || n < p.left:
		p.left = max(0, p.left-n)
		return chunk
	}
	chunk, p.left = chunk[:p.left-1], 0 // so all of it is never passed on
	p.faults++
	p.resetOthers(l)
	return chunk
}

// asked looks for a COMMIT in what a client sends.
func (p *Proxy) asked(l *link, chunk []byte) (reset bool) {
	if p.commit == commitPasses || !bytes.Contains(bytes.ToLower(chunk), []byte("commit\x00")) {
		return false
	}
	l.unsaid = p.commit == commitIsUnsaid
	p.commit = commitPasses
	return !l.unsaid
}

// answered reports whether an answer is lost.
func (p *Proxy) answered(l *link, _ []byte) (reset bool) { return l.unsaid }

// reset resets a link.
func (p *Proxy) reset(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(l)
}

// resetAll resets all links. p.mu is held.
func (p *Proxy) resetAll() { p.resetOthers(nil) }

// resetOthers resets all links but one. p.mu is held.
func (p *Proxy) resetOthers(but *link) {
	for l := range p.open {
		if l != but {
			p.close(l)
		}
	}
}

// close closes both connections of a link; its goroutines end. p.mu is held.
func (p *Proxy) close(l *link) {
	if l.closed {
		return
	}
	l.closed = true
	_ = l.client.Close() // a reset
	_ = l.server.Close() // the server finds out
	delete(p.open, l)
	p.moved.Broadcast()
}
