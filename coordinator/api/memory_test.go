package api

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// A memoryListener is a listener on ourAddr without a network. Connections that nobody
// has accepted yet wait, as they do in the kernel.
type memoryListener struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newMemoryListener() *memoryListener {
	l := &memoryListener{conns: make(chan net.Conn, 4096), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.done) })
	return l
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error { l.close(); return nil }

func (*memoryListener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(ourAddr))
}

// dial returns a connection to who accepts from l.
func (l *memoryListener) dial() net.Conn {
	own, peer := net.Pipe()
	l.conns <- peer
	return own
}

// A scripted connection is one whose client has sent everything at once, and keeps what
// comes back.
type scripted struct {
	net.Conn // none
	in       *bytes.Reader
	closed   chan struct{}
	once     sync.Once

	mu  sync.Mutex
	out bytes.Buffer
}

func newScripted(request []byte) *scripted {
	return &scripted{in: bytes.NewReader(request), closed: make(chan struct{})}
}

func (c *scripted) Read(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
		return c.in.Read(p)
	}
}

func (c *scripted) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.closed:
		return 0, io.ErrClosedPipe
	default:
		return c.out.Write(p)
	}
}

func (c *scripted) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (*scripted) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "memory"} } // nobody is looked for there
func (*scripted) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "memory"} }
func (*scripted) SetDeadline(time.Time) error      { return nil }
func (*scripted) SetReadDeadline(time.Time) error  { return nil }
func (*scripted) SetWriteDeadline(time.Time) error { return nil }

// answered returns what was written until the connection was closed.
func (c *scripted) answered(t testing.TB) []byte {
	t.Helper()
	select {
	case <-c.closed:
	case <-time.After(rawTimeout):
		t.Fatal("the server neither answers nor hangs up")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Bytes()
}
