package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/request"
	"stint/coordinator/task"
	"stint/state"
)

// A slowClient is one who holds on to a connection.
type slowClient struct {
	name  string
	first string        // is sent at once, see tcpServer.fill
	then  string        // is sent again and again, a byte each second; "": nothing more comes
	reads bool          // what is answered
	limit time.Duration // after which the server has hung up, from when it took the connection
}

const submitHead = "POST /v1/tasks HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"

// A little more than a limit is what net/http waits before it closes a connection on
// which the client still sends.
const littleMore = time.Second

var slowClients = []slowClient{
	{name: "says nothing", reads: true, limit: headerTimeout},
	{name: "sends a header byte by byte", first: "GET /v1/health HTTP/1.1\r\nHost: HOST\r\n", then: "X-Header: y\r\n", reads: true, limit: headerTimeout},
	{name: "sends half a line", first: "GET /v1/hea", reads: true, limit: headerTimeout},
	{name: "sends blank lines", then: "\r\n", reads: true, limit: headerTimeout},
	{name: "sends a body byte by byte", first: submitHead + "Authorization: Bearer TOKEN\r\nContent-Length: 100000\r\n\r\n", then: " ", reads: true, limit: request.BodyTimeout + littleMore},
	{name: "sends chunks byte by byte", first: submitHead + "Authorization: Bearer TOKEN\r\nTransfer-Encoding: chunked\r\n\r\n", then: "1\r\nx\r\n", reads: true, limit: request.BodyTimeout + littleMore},
	{name: "sends a body without a token", first: submitHead + "Content-Length: 100000\r\n\r\n", then: " ", reads: true, limit: readTimeout + littleMore},
	{name: "sends a body to sign in", first: strings.Replace(submitHead, "/v1/tasks", pathSignIn, 1) + "Content-Length: 1000\r\n\r\n", then: " ", reads: true, limit: request.BodyTimeout + littleMore},
	{name: "sends a body that is too large", first: submitHead + "Authorization: Bearer TOKEN\r\nContent-Length: 5000000\r\n\r\n", then: " ", reads: true, limit: readTimeout + littleMore},
	{name: "asks once and stays", first: "GET /v1/health HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n\r\n", reads: true, limit: idleTimeout},
	{name: "reads no answer", first: "GET /v1/health HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n\r\n", limit: writeTimeout},
	{name: "reads no refusal", first: "GET /v1/health HTTP/1.1\r\nHost: HOST\r\n\r\n", limit: writeTimeout},
	{name: "reads no page", first: "GET / HTTP/1.1\r\nHost: HOST\r\n\r\n", limit: writeTimeout},
	{name: "reads nothing of what is no HTTP", first: "x\r\n\r\n", limit: writeTimeout},
	{name: "reads no events", first: "GET /v1/events HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n\r\n", limit: 10*time.Second + littleMore},
	{name: "reads no wait", first: "GET /v1/tasks/aa-1/wait HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n\r\n", limit: writeTimeout},
}

// hold keeps c for as long as the server lets it.
func (s *slowClient) hold(c net.Conn, first string) {
	var reader sync.WaitGroup
	if s.reads {
		reader.Go(func() { _, _ = io.Copy(io.Discard, c) })
	}
	_, err := io.WriteString(c, first)
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

// A census counts the connections that a server reads from.
type census struct {
	mu         sync.Mutex
	open, most int
	times      map[string]time.Duration // the longest, by the client's name
}

// counted is the server's end of a connection, in the census from when it is first read from
// until it is closed.
type counted struct {
	net.Conn
	name  string // of the client
	seen  *census
	begun time.Time // guarded by seen.mu; zero: it was not read from
	over  bool      // guarded by seen.mu: it is closed
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	c.seen.mu.Lock()
	if c.begun.IsZero() && !c.over {
		c.begun = time.Now()
		c.seen.open++
		c.seen.most = max(c.seen.most, c.seen.open)
	}
	c.seen.mu.Unlock()
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	if !c.begun.IsZero() && !c.over {
		c.seen.open--
		c.seen.times[c.name] = max(c.seen.times[c.name], time.Since(c.begun))
	}
	c.over = true
	return err
}

// TestSlowClients: of 1,000 clients that send byte by byte or not at all, or read no
// answer, at most 256 are served at a time, and each is cut off in its time. Meanwhile
// the socket answers without delay; afterwards so does the listener on TCP. In fake time.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, socket := serveTCP(t, twoTasks(t), Options{}), newMemoryListener()
		start(t, func(ctx context.Context) error { return s.api.Serve(ctx, socket) })
		seen := &census{times: map[string]time.Duration{}}
		const clients = 1000
		var held sync.WaitGroup
		for i := range clients {
			own, peer := net.Pipe()
			who := &slowClients[i%len(slowClients)]
			s.ln.conns <- &counted{Conn: peer, name: who.name, seen: seen}
			held.Go(func() { who.hold(own, s.fill(who.first)) })
		}
		over := make(chan struct{})
		go func() { defer close(over); held.Wait() }()
		client := client.New("/run/s", func(context.Context, string, string) (net.Conn, error) { return socket.dial(), nil })
		defer client.Close()
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
				t.Fatalf("%d are held for ever", seen.open)
			}
		}
		synctest.Wait()
		for _, who := range slowClients {
			// Who waits for a request makes room for a new one, perhaps in the same instant.
			if took, came := seen.times[who.name]; !came || took > who.limit {
				t.Errorf("who %s stays for %s", who.name, took)
			}
		}
		if seen.most != maxConns || seen.open != 0 {
			t.Errorf("%d connections at a time, %d at the end", seen.most, seen.open)
		}
		if code, body, _ := s.do(t, "GET", "/v1/health", "", s.bearer()); code != http.StatusOK {
			t.Errorf("afterwards: %d %s", code, body)
		}
		t.Logf("slow: clients=%d kinds=%d at once=%d submits=%d delayed=0", clients, len(slowClients), seen.most, submits)
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

// Waits implements Tasks.
func (m slowMaster) Waits(id string) (short, why string) {
	why, _ = m.Why(id)
	return "", why
}

// TestAnswersOverTCPAreWhole: one that the master takes long to find, one that its reader
// takes long to read, and what lasts for hours without a word. In fake time.
func TestAnswersOverTCPAreWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := twoTasks(t)
		m.set("aa-2", func(t *state.Task) { t.RunID, t.Status = "r", state.Running })
		s := serveTCP(t, slowMaster{m, 2 * writeTimeout}, Options{Poll: time.Second})
		var clients sync.WaitGroup
		for path, want := range map[string]string{
			"/v1/tasks/aa-1/why": strings.Repeat("because ", 10_000), "/v1/tasks/aa-2/logs?follow=1": "said\n",
			"/v1/tasks/aa-2/wait": `"status":"done"`, "/v1/events": `"status":"done"`,
		} {
			c := s.ln.dial()
			clients.Go(func() {
				_, _ = io.WriteString(c, s.fill("GET "+path+" HTTP/1.0\r\n"+goodHeaders+"\r\n"))
				resp, err := http.ReadResponse(bufio.NewReader(slowReader{c}), nil)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || !strings.Contains(string(got), want) {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
				_ = c.Close()
			})
		}
		time.Sleep(3 * time.Hour)
		m.write(t, "r", "stdout", "said\n")
		m.set("aa-2", func(t *state.Task) { t.Status = state.Done })
		time.Sleep(time.Hour)
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		clients.Wait()
	})
}

// A slowReader takes a little at a time.
type slowReader struct{ io.Reader }

// Read implements io.Reader.
func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(writeTimeout / 10)
	return r.Reader.Read(p)
}
