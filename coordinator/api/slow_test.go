package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/task"
	"stint/state"
)

// A slowClient is one who holds on to a connection. TOKEN stands for the token.
type slowClient struct {
	name  string
	first string        // is sent at once
	then  string        // is sent again and again, a byte each second; "": nothing more comes
	reads bool          // what is answered
	limit time.Duration // after which the server has hung up, from when it took the connection
}

const submitHead = "POST /v1/tasks HTTP/1.1\r\nHost: " + ourAddr + "\r\nContent-Type: application/json\r\n"

// A little more than a limit is what net/http waits before it closes a connection on
// which the client still sends.
const littleMore = time.Second

var slowClients = []slowClient{
	{name: "says nothing", reads: true, limit: headerTimeout},
	{name: "sends a header byte by byte", first: "GET /v1/health HTTP/1.1\r\nHost: " + ourAddr + "\r\n", then: "X-Header: y\r\n", reads: true, limit: headerTimeout},
	{name: "sends half a line", first: "GET /v1/hea", reads: true, limit: headerTimeout},
	{name: "sends blank lines", then: "\r\n", reads: true, limit: headerTimeout},
	{name: "sends a body byte by byte", first: submitHead + "Authorization: Bearer TOKEN\r\nContent-Length: 100000\r\n\r\n", then: " ", reads: true, limit: bodyTimeout + littleMore},
	{name: "sends chunks byte by byte", first: submitHead + "Authorization: Bearer TOKEN\r\nTransfer-Encoding: chunked\r\n\r\n", then: "1\r\nx\r\n", reads: true, limit: bodyTimeout + littleMore},
	{name: "sends a body without a token", first: submitHead + "Content-Length: 100000\r\n\r\n", then: " ", reads: true, limit: readTimeout + littleMore},
	{name: "sends a body to sign in", first: strings.Replace(submitHead, "/v1/tasks", pathSignIn, 1) + "Content-Length: 1000\r\n\r\n", then: " ", reads: true, limit: bodyTimeout + littleMore},
	{name: "sends a body that is too large", first: submitHead + "Authorization: Bearer TOKEN\r\nContent-Length: 5000000\r\n\r\n", then: " ", reads: true, limit: readTimeout + littleMore},
	{name: "asks once and stays", first: "GET /v1/health HTTP/1.1\r\nHost: " + ourAddr + "\r\nAuthorization: Bearer TOKEN\r\n\r\n", reads: true, limit: idleTimeout},
	{name: "reads no answer", first: "GET /v1/health HTTP/1.1\r\nHost: " + ourAddr + "\r\nAuthorization: Bearer TOKEN\r\n\r\n", limit: writeTimeout},
	{name: "reads no refusal", first: "GET /v1/health HTTP/1.1\r\nHost: " + ourAddr + "\r\n\r\n", limit: writeTimeout},
	{name: "reads no page", first: "GET / HTTP/1.1\r\nHost: " + ourAddr + "\r\n\r\n", limit: writeTimeout},
	{name: "reads nothing of what is no HTTP", first: "x\r\n\r\n", limit: writeTimeout},
	{name: "reads no events", first: "GET /v1/events HTTP/1.1\r\nHost: " + ourAddr + "\r\nAuthorization: Bearer TOKEN\r\n\r\n", limit: 10*time.Second + littleMore},
	{name: "reads no wait", first: "GET /v1/tasks/aa-1/wait HTTP/1.1\r\nHost: " + ourAddr + "\r\nAuthorization: Bearer TOKEN\r\n\r\n", limit: writeTimeout},
}

// hold keeps c for as long as the server lets it.
func (s *slowClient) hold(c net.Conn, token string) {
	var reader sync.WaitGroup
	if s.reads {
		reader.Go(func() { _, _ = io.Copy(io.Discard, c) })
	}
	_, err := io.WriteString(c, strings.ReplaceAll(s.first, "TOKEN", token))
	for i := 0; err == nil && s.then != ""; i++ {
		time.Sleep(time.Second)
		_, err = c.Write([]byte{s.then[i%len(s.then)]})
	}
	reader.Wait()
	if !s.reads && err == nil { // a write is the only way to hear that the server has gone
		for err == nil {
			time.Sleep(time.Second)
			_, err = c.Write([]byte("\r\n"))
		}
	}
	_ = c.Close()
}

// A census knows the connections that a server reads from.
type census struct {
	net.Listener
	mu         sync.Mutex
	open, most int
	times      map[string]time.Duration // the longest, by the client's name
}

// Accept implements net.Listener.
func (l *census) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &counted{Conn: c, seen: l}, nil
}

// enter counts a connection, and returns what is to be called when it is closed.
func (l *census) enter(c net.Conn) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.most = max(l.most, l.open)
	name, begun := "", time.Now()
	if n, ok := c.(*named); ok {
		name = n.name
	}
	return func() { l.leave(name, time.Since(begun)) }
}

func (l *census) leave(name string, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.times[name] = max(l.times[name], after)
}

func (l *census) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// peak returns how many there were at most.
func (l *census) peak() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// named is the server's end of a connection whose client has a name.
type named struct {
	net.Conn
	name string
}

// counted is a connection that tells when it is first read from, and when it is closed.
type counted struct {
	net.Conn
	seen *census

	mu    sync.Mutex
	leave func() // guarded by mu; nil: it was not read from, or is closed
	over  bool
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.leave == nil && !c.over {
		c.leave = c.seen.enter(c.Conn)
	}
	c.mu.Unlock()
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leave != nil {
		c.leave()
	}
	c.leave, c.over = nil, true
	return c.Conn.Close()
}

// TestSlowClients: of 1,000 clients that send byte by byte or not at all, or read no
// answer, at most 256 are served at a time, and each is cut off in its time. Meanwhile
// the socket answers without delay; afterwards so does the listener on TCP. In fake time.
func TestSlowClients(t *testing.T) {
	token := newToken(t)
	synctest.Test(t, func(t *testing.T) {
		m := twoTasks(t)
		s := newServer(m, Options{Token: token})
		tcp, socket := newMemoryListener(), newMemoryListener()
		seen := &census{Listener: tcp, times: map[string]time.Duration{}}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 2)
		go func() { served <- s.ServeLoopback(ctx, []net.Listener{seen}) }()
		go func() { served <- s.Serve(ctx, socket) }()

		const clients = 1000
		var held sync.WaitGroup
		for i := range clients {
			own, peer := net.Pipe()
			who := &slowClients[i%len(slowClients)]
			tcp.conns <- &named{peer, who.name}
			held.Go(func() { who.hold(own, textOf(t, token)) })
		}
		over := make(chan struct{})
		go func() { defer close(over); held.Wait() }()
		client := client.New("/run/s", func(context.Context, string, string) (net.Conn, error) { return socket.dial(), nil })
		submits := 0
		for waiting := true; waiting; submits++ {
			select {
			case <-over:
				waiting = false
			case <-time.After(time.Second):
			}
			begun := time.Now()
			if _, err := client.Submit(t.Context(), task.TaskSpec{Prompt: "x"}); err != nil || time.Since(begun) != 0 {
				t.Fatalf("submit %d: %v after %s", submits, err, time.Since(begun))
			}
			if submits > clients {
				t.Fatalf("%d are held for ever", seen.now())
			}
		}
		client.Close()

		for _, who := range slowClients {
			// Who waits for a request makes room for a new one, perhaps in the same instant.
			if took, came := seen.times[who.name]; !came || took > who.limit {
				t.Errorf("who %s stays for %s", who.name, took)
			}
		}
		if seen.most != maxConns || seen.now() != 0 {
			t.Errorf("%d connections at a time, %d at the end", seen.most, seen.now())
		}
		c := tcp.dial()
		go func() {
			_, _ = io.WriteString(c, strings.ReplaceAll(slowClients[9].first, "TOKEN", textOf(t, token)))
		}()
		answer := make([]byte, len("HTTP/1.1 200 OK"))
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 200 OK" {
			t.Errorf("afterwards: %q %v", answer, err)
		}
		_ = c.Close()
		cancel()
		for range cap(served) {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		t.Logf("slow: clients=%d kinds=%d at once=%d submits=%d delayed=0", clients, len(slowClients), seen.most, submits)
	})
}

// TestManyConnections: 1,000 connections of the kernel's that say nothing whole hold up no
// submit over the socket, and nobody on TCP once they have gone.
func TestManyConnections(t *testing.T) {
	lns, err := guard.ListenLoopback("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range lns[1:] {
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
	}
	addr, token, m := lns[0].Addr().String(), newToken(t), twoTasks(t)
	s := newServer(m, Options{Token: token})
	socket, err := guard.Listen(socketDir(t) + "/s.sock")
	if err != nil {
		t.Fatal(err)
	}
	seen := &census{Listener: lns[0], times: map[string]time.Duration{}}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 2)
	go func() { served <- s.ServeLoopback(ctx, []net.Listener{seen}) }()
	go func() { served <- s.Serve(ctx, socket) }()
	defer func() {
		cancel()
		for range cap(served) {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	}()

	var senders []net.Conn
	for i := range 1000 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		who := &slowClients[i%len(slowClients)]
		if _, err := io.WriteString(c, strings.NewReplacer(ourAddr, addr, "TOKEN", textOf(t, token)).Replace(who.first)); err != nil {
			t.Fatal(err)
		}
		senders = append(senders, c)
	}
	// A place may change hands while it is looked up whose a connection is.
	eventually(t, "many are served", func() bool { return seen.peak() > maxConns/2 })
	client := client.Dial(socket.Addr().String())
	defer client.Close()
	took := make([]time.Duration, 500)
	for i := range took {
		begun := time.Now()
		if _, err := client.Submit(t.Context(), task.TaskSpec{Prompt: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	if got := len(m.List(state.Filter{})); got != 2+len(took) || took[len(took)*99/100] > time.Second {
		t.Errorf("%d tasks, %s", got, took[len(took)*99/100])
	}
	for _, c := range senders {
		_ = c.Close()
	}
	eventually(t, "nobody is served any more", func() bool { return seen.now() == 0 })
	if seen.most > maxConns {
		t.Errorf("%d were served at once, and %d may be", seen.most, maxConns)
	}
	tcp := &tcpServer{addr: addr, token: textOf(t, token)}
	if code, body, _ := tcp.do(t, http.MethodGet, "/v1/health", "", tcp.bearer()); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	t.Logf("senders: connections=%d at once=%d submits=%d p50=%s p99=%s", len(senders), seen.most, len(took), took[len(took)/2], took[len(took)*99/100])
}

// TestLongRequestsOverTCP: what lasts for hours is answered all the same. In fake time.
func TestLongRequestsOverTCP(t *testing.T) {
	token := newToken(t)
	synctest.Test(t, func(t *testing.T) {
		m := twoTasks(t)
		s, ln := newServer(m, Options{Token: token}), newMemoryListener()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.ServeLoopback(ctx, []net.Listener{ln}) }()
		var clients sync.WaitGroup
		for path, want := range map[string]string{"/v1/tasks/aa-2/wait": `"status":"done"`, "/v1/events": `"status":"done"`, "/v1/tasks/aa-2/logs?follow=1": "said\n"} {
			c := ln.dial()
			clients.Go(func() {
				_, _ = io.WriteString(c, "GET "+path+" HTTP/1.0\r\nHost: "+ourAddr+"\r\nAuthorization: Bearer "+textOf(t, token)+"\r\n\r\n")
				if got, _ := io.ReadAll(c); !strings.Contains(string(got), want) {
					t.Errorf("%s: %q", path, got)
				}
				_ = c.Close()
			})
		}
		time.Sleep(3 * time.Hour)
		m.write(t, "r", "stdout", "said\n")
		m.set("aa-2", func(t *state.Task) { t.RunID, t.Status = "r", state.Done })
		time.Sleep(time.Hour)
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		clients.Wait()
	})
}

// slowMaster takes its time to say why.
type slowMaster struct {
	master
	takes time.Duration
}

// Why implements Tasks.
func (m slowMaster) Why(string) (string, error) {
	time.Sleep(m.takes)
	return strings.Repeat("because ", 10_000), nil
}

// TestAnswersOverTCPAreWhole: one that the master takes long to find, one that its reader
// takes long to read, and a log at whose end nothing has been written for long. In fake time.
func TestAnswersOverTCPAreWhole(t *testing.T) {
	token := newToken(t)
	synctest.Test(t, func(t *testing.T) {
		m := twoTasks(t)
		m.write(t, "r", "stdout", "said\n")
		m.set("aa-2", func(t *state.Task) { t.RunID, t.Status = "r", state.Running })
		s, ln := newServer(slowMaster{m, 2 * writeTimeout}, Options{Token: token, Poll: time.Second}), newMemoryListener()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.ServeLoopback(ctx, []net.Listener{ln}) }()
		var clients sync.WaitGroup
		for path, want := range map[string]int{"/v1/tasks/aa-1/why": 80_000, "/v1/tasks/aa-2/logs?follow=1": len("said\n")} {
			c := ln.dial()
			clients.Go(func() {
				_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+ourAddr+"\r\nAuthorization: Bearer "+textOf(t, token)+"\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(slowReader{c}), nil)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || len(got) < want {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
				_ = c.Close()
			})
		}
		time.Sleep(2 * writeTimeout)
		m.set("aa-2", func(t *state.Task) { t.Status = state.Done })
		clients.Wait()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// A slowReader takes a little at a time.
type slowReader struct{ io.Reader }

// Read implements io.Reader.
func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(writeTimeout / 10)
	return r.Reader.Read(p)
}
