package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
)

// A proxy stands between clients and a server, at a port of this machine, as a network
// does: connections through it break, or nothing comes through any more.
type proxy struct {
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

// newProxy returns a proxy in front of a server. It ends with the test.
func newProxy(t testing.TB, to *postgrestest.Server) *proxy {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, socket: socketOf(to), open: map[*link]bool{}}
	p.moved.L = &p.mu
	p.all.Go(p.serve)
	t.Cleanup(p.end)
	return p
}

// socketOf returns the path of a server's socket.
func socketOf(s *postgrestest.Server) string { return filepath.Join(s.Dir, ".s.PGSQL.5432") }

// URL returns the URL of a database through the proxy.
func (p *proxy) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", p.listener.Addr(), url.PathEscape(database))
}

// ResetAfter resets all connections, once, when that many more bytes have come through in both directions.
func (p *proxy) ResetAfter(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// LoseCommit resets the next connection that sends a COMMIT, which the server does not get.
func (p *proxy) LoseCommit() { p.setCommit(commitIsLost) }

// LoseAnswerOfCommit resets the next connection that sends a COMMIT when the server has carried it out.
func (p *proxy) LoseAnswerOfCommit() { p.setCommit(commitIsUnsaid) }

func (p *proxy) setCommit(fault commitFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commit = fault
}

// Faults returns how often connections were reset by ResetAfter, LoseCommit and LoseAnswerOfCommit.
func (p *proxy) Faults() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Cut resets all connections, and those that are tried from now on.
func (p *proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.resetAll()
}

// Hang lets nothing come through any more. Connections stay, and new ones are taken.
func (p *proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hung = true
}

// Lose lets nothing come through the connections that are open now, for ever, as when a
// router between has forgotten them. New ones are as they should be.
func (p *proxy) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.lost = true
	}
}

// Heal ends Cut, Hang and all that was to happen.
func (p *proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.hung, p.left, p.commit = false, false, 0, commitPasses
	p.moved.Broadcast()
}

// SwitchTo resets all connections; new ones go to another server.
func (p *proxy) SwitchTo(s *postgrestest.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.socket = socketOf(s)
	p.resetAll()
}

// end closes everything and waits until nothing is at work.
func (p *proxy) end() {
	_ = p.listener.Close() // nobody else has it
	p.Cut()
	p.all.Wait()
}

// serve takes connections until the listener is closed.
func (p *proxy) serve() {
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
func (p *proxy) join(client net.Conn) {
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

// carry passes on what comes from one side, as far as a fault lets it, until the link is closed.
func (p *proxy) carry(l *link, from, to net.Conn, faulty func(l *link, chunk []byte) (reset bool)) {
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

// admit returns as much of a chunk as is to be passed on. What is less than all of it is the last.
func (p *proxy) admit(l *link, chunk []byte, faulty func(l *link, chunk []byte) (reset bool)) []byte {
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
func (p *proxy) asked(l *link, chunk []byte) (reset bool) {
	if p.commit == commitPasses || !bytes.Contains(bytes.ToLower(chunk), []byte("commit\x00")) {
		return false
	}
	l.unsaid = p.commit == commitIsUnsaid
	p.commit = commitPasses
	return !l.unsaid
}

// answered reports whether an answer is lost.
func (p *proxy) answered(l *link, _ []byte) (reset bool) { return l.unsaid }

// reset resets a link.
func (p *proxy) reset(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(l)
}

// resetAll resets all links. p.mu is held.
func (p *proxy) resetAll() { p.resetOthers(nil) }

// resetOthers resets all links but one. p.mu is held.
func (p *proxy) resetOthers(but *link) {
	for l := range p.open {
		if l != but {
			p.close(l)
		}
	}
}

// close closes both connections of a link; its goroutines end. p.mu is held.
func (p *proxy) close(l *link) {
	if l.closed {
		return
	}
	l.closed = true
	_ = l.client.Close() // a reset
	_ = l.server.Close() // the server finds out
	delete(p.open, l)
	p.moved.Broadcast()
}

// commitOne commits a row in table kept through the proxy.
func commitOne(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // it may be broken
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO kept SELECT generate_series(1, $1)", 1); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// TestProxy: what each fault does to a client, and to what it has committed.
func TestProxy(t *testing.T) {
	s := postgrestest.Shared(t)
	name := s.NewDatabase(t)
	direct := s.URL(name)
	execAt(t, direct, "CREATE TABLE kept (n int)")
	p := newProxy(t, s)
	for _, tc := range []struct {
		name  string
		fault func()
		fails bool
		rows  int // that the commit leaves
		hangs bool
	}{
		{"nothing", func() {}, false, 1, false},
		{"bytes", func() { p.ResetAfter(700) }, true, 0, false},
		{"more bytes than come", func() { p.ResetAfter(1 << 30) }, false, 1, false},
		{"commit", p.LoseCommit, true, 0, false},
		{"answer", p.LoseAnswerOfCommit, true, 1, false},
		{"cut", p.Cut, true, 0, false},
		{"hang", p.Hang, true, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			execAt(t, direct, "TRUNCATE kept")
			tc.fault()
			begun := time.Now()
			err := commitOne(t, p.URL(name))
			if took := time.Since(begun); (err != nil) != tc.fails || (took > time.Second) != tc.hangs {
				t.Errorf("the commit: %v after %s", err, took)
			}
			p.Heal()
			wantNumberAt(t, direct, "SELECT count(*) FROM kept", tc.rows)
			wantNumberAt(t, p.URL(name), "SELECT count(*) FROM kept", tc.rows)
		})
	}
	if n := p.Faults(); n != 3 {
		t.Errorf("%d faults", n)
	}
}

// TestSwitch: who has a connection loses it, and comes to the other server.
func TestSwitch(t *testing.T) {
	s, other := postgrestest.Shared(t), postgrestest.Start(t)
	name := s.NewDatabase(t)
	other.CreateDatabase(t, name)
	execAt(t, other.URL(name), "CREATE TABLE kept AS SELECT 7 AS n")
	p := newProxy(t, s)
	conn, err := pgx.Connect(t.Context(), p.URL(name))
	must(t, err)
	p.SwitchTo(other)
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection is still there")
	}
	wantNumberAt(t, p.URL(name), "SELECT n FROM kept", 7)
}

// TestLose: what was open hears nothing any more; who comes later does.
func TestLose(t *testing.T) {
	s := postgrestest.Shared(t)
	name := s.NewDatabase(t)
	p := newProxy(t, s)
	conn, err := pgx.Connect(t.Context(), p.URL(name))
	must(t, err)
	p.Lose()
	p.Heal()
	wantNumberAt(t, p.URL(name), "SELECT 7", 7)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := conn.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connection that was lost: %v", err)
	}
}

// execAt runs a statement in a database.
func execAt(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	do(t, conn, statement)
	must(t, conn.Close(t.Context()))
}

// wantNumberAt fails if a statement does not return that number in a database.
func wantNumberAt(t *testing.T, url, statement string, want int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	var n int
	if err := conn.QueryRow(t.Context(), statement).Scan(&n); n != want || err != nil {
		t.Errorf("%s: %d, %v, want %d", statement, n, err, want)
	}
	must(t, conn.Close(t.Context()))
}
