package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stint/coordinator/task"
)

// BenchmarkSlowSenders is submits over the socket, by 1 and by 8 clients, with and
// without 1,000 connections to the HTTP interface that send a byte now and then: half of
// them a header, half of them a body after a header with the token. Who is cut off
// comes again.
func BenchmarkSlowSenders(b *testing.B) {
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			w := newBenchWorld(b)
			address := freeAddress(b)
			w.env = append(w.env, "STINT_HTTP="+address, "STINT_MAX_QUEUED=0")
			w.serve()
			token, err := os.ReadFile(tokenFile(w.state()))
			w.must(err)
			var alone, beside []time.Duration
			cut := 0
			for b.Loop() {
				alone = append(alone, w.heldSubmits(clients)...)
				s := w.slowSenders(1000, address, strings.TrimSpace(string(token)))
				beside = append(beside, w.heldSubmits(clients)...)
				cut += s.stop()
			}
			report := func(name string, took []time.Duration) {
				slices.Sort(took)
				b.ReportMetric(millis(took[len(took)/2]), name+"-p50-ms")
				b.ReportMetric(millis(took[len(took)*99/100]), name+"-p99-ms")
			}
			report("alone", alone)
			report("beside", beside)
			b.ReportMetric(float64(cut), "cut-off")
			b.ReportMetric(0, "ns/op") // both together say nothing
		})
	}
}

// freeAddress returns an address of this machine where nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// heldSubmits has clients submit tasks that do not run, until some seconds are over, and
// gives how long each submit took.
func (w *benchWorld) heldSubmits(clients int) (took []time.Duration) {
	const during = 7 * time.Second // a header has 5 seconds
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(during)
	for range clients {
		all.Go(func() {
			var own []time.Duration
			for begun := time.Now(); begun.Before(end); begun = time.Now() {
				_, err := w.client.Submit(context.Background(), task.TaskSpec{Prompt: "Fix the flaky login test.", Workspace: w.work, SessionKey: "web", Hold: true})
				if err != nil {
					w.Error(err)
					return
				}
				own = append(own, time.Since(begun))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
	}
	all.Wait()
	return took
}

// slowSenders are connections that hardly send anything.
type slowSenders struct {
	end context.CancelFunc
	all sync.WaitGroup
	cut atomic.Int64 // connections that the master has ended
}

// slowSenders opens n connections, and returns when all of them have begun to send.
func (w *benchWorld) slowSenders(n int, address, token string) *slowSenders {
	ctx, end := context.WithCancel(context.Background())
	s := &slowSenders{end: end}
	head := "POST /v1/tasks HTTP/1.1\r\nHost: " + address + "\r\n"
	whole := head + "Authorization: Bearer " + token + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
	var begun sync.WaitGroup
	for i := range n {
		at, rest := head[:1], head[1:]+strings.Repeat("X-Slow: yes\r\n", 100)
		if i%2 == 1 {
			at, rest = whole, `{"prompt": "`+strings.Repeat("x", 900)
		}
		begun.Add(1)
		s.all.Go(func() {
			once := sync.OnceFunc(begun.Done)
			defer once()
			for ctx.Err() == nil {
				if err := sendSlowly(ctx, address, at, rest, once); err == nil {
					s.cut.Add(1)
				}
			}
		})
	}
	begun.Wait()
	return s
}

// sendSlowly sends the first part at once and then a byte of the rest now and then, until
// the other side has ended the connection. The error says that there was no connection,
// or that ctx has ended.
func sendSlowly(ctx context.Context, address, first, rest string, begun func()) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nobody answers us anyway
	_, err = conn.Write([]byte(first))
	begun()
	for i := 0; i < len(rest) && err == nil; i++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		_, err = conn.Write([]byte{rest[i]})
	}
	return nil
}

// stop closes the connections and gives how many the master has ended.
func (s *slowSenders) stop() int {
	s.end()
	s.all.Wait()
	return int(s.cut.Load())
}
