package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// How tests serve: in memory, unless it is the kernel that matters.

const (
	ourAddr = "127.0.0.1:7433"

	// The guard's bounds.
	maxConns     = 256
	maxStreams   = 64
	maxTCPBody   = 4 << 20
	readTimeout  = 30 * time.Second
	writeTimeout = time.Minute
)

// start calls serve, and ends it with the test, or when stop is called, which returns what serve returned.
func start(t testing.TB, serve func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return stop
}

// served is a server at work on a socket.
type served struct {
	socket string
	client *client.Client
	stop   func() error
}

// serve starts a server for m on a socket of the kernel's.
func serve(t testing.TB, m master, opts Options) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "stint") // a short path
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return serveAt(t, m, opts, filepath.Join(dir, "s.sock"))
}

func serveAt(t testing.TB, m master, opts Options, socket string) *served {
	t.Helper()
	ln, err := guard.Listen(socket)
	must(t, err)
	stop := start(t, func(ctx context.Context) error { return newServer(m, opts).Serve(ctx, ln) })
	s := &served{socket: socket, client: client.Dial(socket), stop: stop}
	t.Cleanup(s.client.Close)
	return s
}

// events calls f with every change that the server reports, until f returns an error.
func (s *served) events(f func(task.Change) error) error {
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", s.socket) }
	req, err := http.NewRequest(http.MethodGet, "http://stint/v1/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", wire.JSONLines)
	resp, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	for dec := json.NewDecoder(resp.Body); ; {
		var change task.Change
		if err := dec.Decode(&change); err != nil {
			return err
		}
		if err := f(change); err != nil {
			return err
		}
	}
}

// A tcpServer is a server that answers as on a port of this machine.
type tcpServer struct {
	addr  string
	token string
	file  string          // that the token is in
	name  string          // of a browser that has a code
	ln    *memoryListener // nil: it is the kernel's
	api   *Server
	stop  func() error
}

// serveTCP serves in memory.
func serveTCP(t testing.TB, m master, opts Options) *tcpServer {
	t.Helper()
	ln := newMemoryListener()
	s := serveListeners(t, m, opts, ln)
	s.ln = ln
	return s
}

// serveKernel serves on a port.
func serveKernel(t testing.TB, m master, opts Options) *tcpServer {
	t.Helper()
	lns, err := guard.ListenLoopback("127.0.0.1:0")
	must(t, err)
	return serveListeners(t, m, opts, lns...)
}

func serveListeners(t testing.TB, m master, opts Options, lns ...net.Listener) *tcpServer {
	t.Helper()
	s := &tcpServer{addr: lns[0].Addr().String(), file: filepath.Join(t.TempDir(), "token")}
	token, err := guard.OpenToken(s.file)
	must(t, err)
	s.token, err = token.Text()
	must(t, err)
	s.api = newServer(m, opts)
	s.stop = start(t, s.api.Loopback(lns, token, 0))
	url, _, err := s.api.port.Load().guard.NewBrowser()
	must(t, err)
	s.name, _, _ = strings.Cut(strings.TrimPrefix(url, "http://"), ".")
	return s
}

// dial returns a connection to the server.
func (s *tcpServer) dial(t testing.TB) net.Conn {
	t.Helper()
	if s.ln != nil {
		return s.ln.dial()
	}
	c, err := net.Dial("tcp", s.addr)
	must(t, err)
	return c
}

func (s *tcpServer) bearer() string { return "Authorization: Bearer " + s.token }

// fill puts the server's address and token into a request that leaves them open.
func (s *tcpServer) fill(request string) string {
	return strings.NewReplacer("HOST", s.addr, "TOKEN", s.token).Replace(request)
}

// open makes a request with headers given as "Name: value", over a connection of its own.
func (s *tcpServer) open(ctx context.Context, t testing.TB, method, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, body)
	must(t, err)
	if body != nil {
		req.Header.Set("Content-Type", jsonType)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	req.Host = req.Header.Get("Host")
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return s.dial(t), nil }}
	resp, err := tr.RoundTrip(req)
	must(t, err)
	return resp
}

// do is open, and reads the answer.
func (s *tcpServer) do(t testing.TB, method, path, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), rawTimeout)
	defer cancel()
	resp := s.open(ctx, t, method, path, sent, headers...)
	text, err := io.ReadAll(resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(text), resp.Header
}

// rawTimeout is after which a server has not answered. No test waits for it.
const rawTimeout = time.Minute

// raw sends bytes, see fill, says that there will be no more of them, and returns the answers.
func (s *tcpServer) raw(t testing.TB, request string) []rawAnswer {
	t.Helper()
	return s.ln.raw(t, s.fill(request))
}

func (l *memoryListener) raw(t testing.TB, request string) []rawAnswer {
	t.Helper()
	c := newScripted([]byte(request))
	l.conns <- c
	method, _, _ := strings.Cut(request, " ")
	return parseAnswers(t, method, c.answered(t))
}

// untouchable is a master that panics at whatever it is asked: a request that must not
// get as far as the master shows by the log, whatever was answered.
type untouchable struct{ master }

// logged returns options with a log, and that log.
func logged() (Options, *safeBuffer) {
	log := &safeBuffer{}
	return Options{Log: slog.New(slog.NewTextHandler(log, nil))}, log
}

// A rawAnswer is an answer that came over a connection, with its body.
type rawAnswer struct {
	*http.Response
	body string
}

// ours reports whether the answer is the server's own. The others are of net/http, to
// what it does not take for a request.
func (a *rawAnswer) ours() bool { return a.Header.Get("Content-Security-Policy") != "" }

// parseAnswers takes apart what was answered to a request, or to several with one method. What breaks off is
// no answer. No answer of any route, good or bad, may let the page of another site read it.
func parseAnswers(t testing.TB, method string, data []byte) (all []rawAnswer) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(data))
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return all
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			body = append(body, " [broken off]"...)
		}
		_ = resp.Body.Close() // it is read from memory
		for name := range resp.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("an answer has the header %s", name)
			}
		}
		all = append(all, rawAnswer{resp, string(body)})
	}
}

// short quotes the beginning of what a client made up.
func short(s string) string { return wire.Clip(strings.ToValidUTF8(s, "?")) }

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

// A scripted connection is one whose client has sent everything at once, and keeps what comes back.
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

// eventually waits until cond holds, for what other processes or the kernel do.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never: " + what)
		}
	}
}
