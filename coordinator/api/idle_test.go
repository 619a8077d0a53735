package api

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// quietClients are what connections have sent that wait for nothing, see tcpServer.fill.
var quietClients = map[string][]string{
	"idle":      {"GET /v1/health HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n\r\n"},
	"half-open": {"", "GET /v1/hea", "GET /v1/health HTTP/1.1\r\nHost: HOST\r\n"},
	"half a body": {
		"POST /ui/session HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{", // needs no token
		"GET / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 14\r\n\r\n",
		"POST /v1/tasks HTTP/1.1\r\nHost: HOST\r\nContent-Length: 14\r\n\r\n", // refused: it shows no token
		submitHead + "Authorization: Bearer TOKEN\r\nContent-Length: 5000000\r\n\r\n{",
		submitHead + "Authorization: Bearer TOKEN\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	},
}

// quiet opens n connections that send one of the beginnings and then nothing, and keep
// what comes until end is called.
func (s *tcpServer) quiet(t testing.TB, n int, begin ...string) (end func()) {
	t.Helper()
	var conns []net.Conn
	var all sync.WaitGroup
	for i := range n {
		c := s.dial(t)
		conns = append(conns, c)
		all.Go(func() {
			_, _ = io.WriteString(c, s.fill(begin[i%len(begin)])) // it may be cut off
			_, _ = io.Copy(io.Discard, c)
		})
	}
	return func() {
		for _, c := range conns {
			_ = c.Close()
		}
		all.Wait()
	}
}

// TestIdleConnectionsYield: beside 1,000 connections that are kept alive, or have sent no whole request yet,
// and some that wait for an answer, a new client is answered in less than a second. In fake time.
func TestIdleConnectionsYield(t *testing.T) {
	t.Parallel()
	quietClients := maps.Clone(quietClients)
	quietClients["mixed"] = slices.Concat(slices.Collect(maps.Values(quietClients))...)
	for name, begin := range quietClients {
		synctest.Test(t, func(t *testing.T) {
			s := serveTCP(t, twoTasks(t), Options{})
			defer s.quiet(t, maxConns-1, begin...)() // where all places are taken, none stays idle
			synctest.Wait()
			defer s.quiet(t, 1000-maxConns+1, begin...)()
			synctest.Wait()
			defer s.quiet(t, 5, "GET /v1/tasks/aa-2/wait HTTP/1.1\r\n"+goodHeaders+"\r\n")()
			synctest.Wait()
			begun := time.Now()
			code, body, _ := s.do(t, "POST", "/v1/tasks", `{"prompt":"x"}`, s.bearer())
			if took := time.Since(begun); code != http.StatusCreated || took > time.Second {
				t.Errorf("%s: %d %s after %s", name, code, body, took)
			} else {
				t.Logf("idle: connections=1000 kind=%s waited=%s", name, took)
			}
		})
	}
}

// TestActiveRequestsAreNotCut: who waits for an answer gets it whole, whoever else wants the place; and where
// all places are taken by such, a new client gets the first that is free. In fake time.
func TestActiveRequestsAreNotCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes = 9 * time.Second
		s := serveTCP(t, slowMaster{twoTasks(t), takes}, Options{})
		var clients sync.WaitGroup
		begun := time.Now()
		for i := range maxConns + 10 {
			clients.Go(func() {
				method, path := "GET", "/v1/tasks/aa-1/why"
				if i%2 == 1 {
					method, path = "POST", "/v1/tasks/aa-2/hold" // its answer says why, too
				}
				if _, text, _ := s.do(t, method, path, "", s.bearer()); len(text) < 80_000 {
					t.Errorf("%d bytes", len(text))
				}
			})
		}
		end := s.quiet(t, 1000, "", "GET /v1/hea")
		clients.Wait()
		if took := time.Since(begun); took > 2*takes+time.Second {
			t.Errorf("the last answer came after %s", took)
		}
		end()
	})
}

// TestConnectionsOfTheKernel: 1,000 connections that wait for nothing, or read and send
// slowly, hold up nobody; and it is not the time that one of them has which ends a wait.
func TestConnectionsOfTheKernel(t *testing.T) {
	m := twoTasks(t)
	s := serveKernel(t, m, Options{})
	begin := slices.Concat(slices.Collect(maps.Values(quietClients))...)
	for _, c := range slowClients {
		begin = append(begin, c.first)
	}
	defer s.quiet(t, 1000, begin...)()
	for i := range 20 {
		begun := time.Now()
		if code, body, _ := s.do(t, "POST", "/v1/tasks", fmt.Sprintf(`{"prompt":"%d"}`, i), s.bearer()); code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
		if took := time.Since(begun); took > headerTimeout-time.Second {
			t.Errorf("a submit took %s", took)
		}
	}
}
