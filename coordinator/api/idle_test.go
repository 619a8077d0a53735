package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/state"
)

// quietClients are what connections have sent that wait for nothing: TOKEN stands for the token.
var quietClients = map[string][]string{
	"idle":      {"GET /v1/health HTTP/1.1\r\nHost: " + ourAddr + "\r\nAuthorization: Bearer TOKEN\r\n\r\n"},
	"half-open": {"", "GET /v1/hea", "GET /v1/health HTTP/1.1\r\nHost: " + ourAddr + "\r\n"},
	"half a body": {
		"POST /ui/session HTTP/1.1\r\nHost: " + ourAddr + "\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{", // needs no token
		"GET / HTTP/1.1\r\nHost: " + ourAddr + "\r\nContent-Length: 14\r\n\r\n",
		"POST /v1/tasks HTTP/1.1\r\nHost: " + ourAddr + "\r\nContent-Length: 14\r\n\r\n", // refused: it shows no token
		submitHead + "Authorization: Bearer TOKEN\r\nContent-Length: 5000000\r\n\r\n{",
		submitHead + "Authorization: Bearer TOKEN\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	},
}

// quiet opens n connections that send one of the beginnings and then nothing, and keep
// what comes until end is called.
func quiet(t testing.TB, n int, begin []string, dial func() net.Conn) (end func()) {
	t.Helper()
	var conns []net.Conn
	var all sync.WaitGroup
	for i := range n {
		c := dial()
		conns = append(conns, c)
		all.Go(func() {
			_, _ = io.WriteString(c, begin[i%len(begin)]) // it may be cut off
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

// TestIdleConnectionsYield: beside 1,000 connections that are kept alive, or have sent no
// whole request yet, and some that wait for an answer, a new client is answered in less than
// a second. In fake time.
func TestIdleConnectionsYield(t *testing.T) {
	token := newToken(t)
	quietClients := maps.Clone(quietClients)
	quietClients["mixed"] = slices.Concat(slices.Collect(maps.Values(quietClients))...)
	for name, begin := range quietClients {
		t.Run(name, func(t *testing.T) {
			begin = slices.Clone(begin)
			for i := range begin {
				begin[i] = strings.ReplaceAll(begin[i], "TOKEN", textOf(t, token))
			}
			synctest.Test(t, func(t *testing.T) {
				m := twoTasks(t)
				s, ln := newServer(m, Options{Token: token}), newMemoryListener()
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() { served <- s.ServeLoopback(ctx, []net.Listener{ln}) }()
				endFirst := quiet(t, maxConns-1, begin, ln.dial) // where all places are taken, none stays idle
				synctest.Wait()
				end := quiet(t, 1000-maxConns+1, begin, ln.dial)
				synctest.Wait()
				endWaits := quiet(t, 5, []string{"GET /v1/tasks/aa-2/wait HTTP/1.1\r\nHost: " + ourAddr + "\r\nAuthorization: Bearer " + textOf(t, token) + "\r\n\r\n"}, ln.dial)
				synctest.Wait()

				begun := time.Now()
				c := ln.dial()
				go func() {
					_, _ = io.WriteString(c, submitHead+"Authorization: Bearer "+textOf(t, token)+"\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}")
				}()
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if took := time.Since(begun); err != nil || resp.StatusCode != http.StatusCreated || took > time.Second {
					t.Errorf("%v %v after %s", resp, err, took)
				} else {
					t.Logf("idle: connections=1000 kind=%s waited=%s", name, took)
				}
				_ = c.Close()
				endFirst()
				end()
				endWaits()
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestActiveRequestsAreNotCut: who waits for an answer gets it whole, whoever else wants
// the place; and where all places are taken by such, a new client gets the first that is
// free. In fake time.
func TestActiveRequestsAreNotCut(t *testing.T) {
	token := newToken(t)
	synctest.Test(t, func(t *testing.T) {
		const takes = 10 * time.Second
		s, ln := newServer(slowMaster{twoTasks(t), takes}, Options{Token: token}), newMemoryListener()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.ServeLoopback(ctx, []net.Listener{ln}) }()
		var clients sync.WaitGroup
		begun := time.Now()
		for i := range maxConns + 10 {
			c, ask, body := ln.dial(), "GET /v1/tasks/aa-1/why", ""
			if i%2 == 1 {
				ask, body = "POST /v1/tasks/aa-2/hold", "{}" // its answer says why, too
			}
			clients.Go(func() {
				_, _ = fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", ask, ourAddr, textOf(t, token), len(body), body)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if text, err := io.ReadAll(resp.Body); err != nil || len(text) < 80_000 {
					t.Errorf("%d bytes, %v", len(text), err)
				}
				_ = c.Close()
			})
		}
		end := quiet(t, 1000, []string{"", "GET /v1/hea"}, ln.dial)
		clients.Wait()
		if took := time.Since(begun); took > 2*takes+time.Second {
			t.Errorf("the last answer came after %s", took)
		}
		end()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestIdleConnectionsYieldOverTCP: likewise with connections of the kernel's. What counts
// is that nobody waits for one of them to time out.
func TestIdleConnectionsYieldOverTCP(t *testing.T) {
	m := twoTasks(t)
	s := serveTCP(t, m, Options{})
	begin := slices.Concat(slices.Collect(maps.Values(quietClients))...)
	for i := range begin {
		begin[i] = strings.NewReplacer(ourAddr, s.addr, "TOKEN", s.token).Replace(begin[i])
	}
	end := quiet(t, 1000, begin, func() net.Conn {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
	defer end()
	const submits = 20
	begun := time.Now()
	for i := range submits {
		if code, body, _ := s.do(t, "POST", "/v1/tasks", fmt.Sprintf(`{"prompt":"%d"}`, i), s.bearer()); code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
		if took := time.Since(begun); took > headerTimeout-time.Second {
			t.Fatalf("%d submits took %s", i+1, took)
		}
	}
	if n := len(m.List(state.Filter{})); n != 2+submits {
		t.Errorf("there are %d tasks", n)
	}
}

// BenchmarkNewClients is a request over a new connection, alone and beside 1,000 that are
// kept alive or half-open, by turns of a server that has no bounds and only answers.
func BenchmarkNewClients(b *testing.B) {
	ours := serveTCP(b, twoTasks(b), Options{})
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	defer bare.Close()
	for _, kind := range []string{"alone", "idle", "half-open"} {
		b.Run(kind, func(b *testing.B) {
			for name, addr := range map[string]string{"bare": bare.Listener.Addr().String(), "ours": ours.addr} {
				if begin := slices.Clone(quietClients[kind]); kind != "alone" {
					for i := range begin {
						begin[i] = strings.NewReplacer(ourAddr, addr, "TOKEN", ours.token).Replace(begin[i])
					}
					defer quiet(b, 1000, begin, func() net.Conn {
						c, err := net.Dial("tcp", addr)
						if err != nil {
							b.Fatal(err)
						}
						return c
					})()
				}
				s := &tcpServer{addr: addr}
				var took []time.Duration
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						begun := time.Now()
						if code, body, _ := s.do(b, "GET", "/v1/health", "", ours.bearer()); code != http.StatusOK {
							b.Fatal(code, body)
						}
						took = append(took, time.Since(begun))
					}
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
				})
			}
		})
	}
}
