package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"stint/coordinator/task"
)

// scriptEvents follows the events of a script's masters, one after the other, as a
// browser's EventSource does.
type scriptEvents struct {
	state *scriptState
	stop  context.CancelFunc
	ended chan struct{} // closed when its goroutine has

	mu          sync.Mutex        // guards what follows
	id          string            // of the last event
	seq         uint64            // likewise
	known       map[string]string // status by task
	connections int
	resyncs     int
	wrong       []string
}

// cmdEvents: events start follows all events from the first record on, over as many
// masters as come; events ID STATUS waits until one has said so; events resync waits
// until a new list was asked for; events end prints how often it was connected and was
// to list anew, and fails if any event came twice.
func cmdEvents(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, 2, "events start|end|resync|ID STATUS")
	s := stateOf(ts)
	switch {
	case args[0] == "start":
		s.events = startEvents(s)
		ts.Defer(s.events.end)
	case s.events == nil:
		ts.Fatalf("first: events start")
	case args[0] == "end":
		s.events.end()
		_, err := fmt.Fprintf(ts.Stdout(), "connections: %d\nresyncs: %d\n", s.events.connections, s.events.resyncs)
		ts.Check(errors.Join(err, s.events.err()))
	case args[0] == "resync":
		s.events.wait(ts, func(e *scriptEvents) bool { return e.resyncs > 0 })
	default:
		need(ts, neg, args, 2, 2, "events ID STATUS")
		s.events.wait(ts, func(e *scriptEvents) bool { return e.known[args[0]] == args[1] })
	}
}

func startEvents(s *scriptState) *scriptEvents {
	ctx, stop := context.WithCancel(context.Background())
	e := &scriptEvents{state: s, stop: stop, ended: make(chan struct{}), id: "0", known: map[string]string{}}
	go func() {
		defer close(e.ended)
		for ctx.Err() == nil {
			if e.connect(ctx) != nil {
				time.Sleep(20 * time.Millisecond) // the next master is another process, which cannot tell us
			}
		}
	}()
	return e
}

// end stops following. It may be called again.
func (e *scriptEvents) end() {
	e.stop()
	<-e.ended
}

func (e *scriptEvents) err() error {
	if len(e.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(e.wrong, "; "))
}

func (e *scriptEvents) wait(ts *testscript.TestScript, done func(*scriptEvents) bool) {
	if !poll(scriptDeadline, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return done(e)
	}) {
		e.end()
		ts.Fatalf("no event says so; after %d connections, at %d, known are %v", e.connections, e.seq, e.known)
	}
}

// connect reads events until the stream ends.
func (e *scriptEvents) connect(ctx context.Context) error {
	transport := dialSocket(e.state.master().Socket)
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://stint/v1/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", e.id)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	e.mu.Lock()
	e.connections++
	e.mu.Unlock()
	var id, data string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			id = value
		case "data":
			data = value
		case "":
			if data != "" {
				e.see(id, data)
			}
			data = ""
		}
	}
	return lines.Err()
}

// see takes note of one event.
func (e *scriptEvents) see(id, data string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var c task.Change
	switch err := json.Unmarshal([]byte(data), &c); {
	case err != nil || fmt.Sprint(c.Seq) != id:
		e.wrong = append(e.wrong, fmt.Sprintf("event %s is %s", id, data))
	case c.Resync:
		e.resyncs++
	case c.Seq <= e.seq:
		e.wrong = append(e.wrong, fmt.Sprintf("event %d comes after %d", c.Seq, e.seq))
	default:
		e.known[c.Task.ID] = string(c.Task.Status)
	}
	e.id, e.seq = id, c.Seq
}
