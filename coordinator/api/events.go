package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

const (
	eventStreamType = "text/event-stream"

	// maxEvents is how many bytes of events wait until they are sent. Fewer are sent at once when no more is to come.
	maxEvents = 16 << 10

	eventLag     = 1024             // changes that a reader may lag behind
	eventTimeout = 10 * time.Second // that a reader may take for maxEvents
	eventSilence = 15 * time.Second // until readers are shown that they are connected
)

type eventsInput struct {
	Accept string `header:"Accept" hidden:"true"` // application/jsonl: one JSON object a line instead of Server-Sent Events
	LastID string `header:"Last-Event-ID" doc:"Number of the last record that the reader knows of, as an EventSource sends it by itself: what has changed since comes first" example:"1042"`
	sharedInput
	After string `query:"after" doc:"The same, where that header is not there: the Stint-Seq of an answer" example:"1042"`
}

// events streams changes. A reader that lags is cut off, by the master when too
// many changes wait and by the deadline when it takes none at all.
func (s *Server) events(ctx context.Context, in *eventsInput) (*streamOutput, error) {
	// An EventSource that connects again sends the header beside the query of its first time, which is old by then.
	name, text := "Last-Event-ID", in.LastID
	if text == "" {
		name, text = "after", in.After
	}
	seq, err := strconv.ParseUint(text, 10, 64)
	switch {
	case text == "":
		seq = s.rooms.Seq()
	case err != nil:
		return nil, task.Wrong(name, "use the id of the last event, or the Stint-Seq that answers have in their header", "%s must be the number of a record, not %q", name, wire.Clip(text))
	}
	shared, err := s.shared(ctx, in.Shared, false)
	if err != nil {
		return nil, err
	}
	return &streamOutput{Body: func(w http.ResponseWriter, r *http.Request) {
		ctx, release := long(r.Context())
		defer release()
		contentType := eventStreamType
		if acceptsLines(in.Accept) {
			contentType = wire.JSONLines
		}
		w.Header().Set(wire.SeqHeader, strconv.FormatUint(seq, 10)) // that of the request itself may be older
		e := &eventStream{server: s, lines: contentType == wire.JSONLines, out: newStream(w, contentType), seq: seq}
		if r.Method != http.MethodHead {
			if shared != nil {
				_ = shared.Watch(ctx, e.addAll) // it breaks off
			} else {
				e.run(ctx)
			}
			panic(http.ErrAbortHandler) // it has no end of its own
		}
	}}, nil
}

// acceptsLines reports whether an Accept header names JSON lines.
func acceptsLines(accept string) bool {
	return strings.Contains(strings.ToLower(accept), wire.JSONLines)
}

// An eventStream tells one reader what changes. It belongs to one goroutine.
type eventStream struct {
	server *Server
	lines  bool // JSON lines, not Server-Sent Events
	out    *streamWriter

	seq uint64 // up to which the reader was told
	buf []byte // what is to be sent
}

// run goes on until the reader or ctx has ended, or the reader lags.
func (e *eventStream) run(ctx context.Context) {
	if !e.lines {
		// An EventSource waits a second before it connects again. The id is what one begins with that is cut off before the first event.
		e.buf = append(strconv.AppendUint(append(e.buf, "retry: 1000\nid: "...), e.seq, 10), "\n\n"...)
	}
	for e.flush() && ctx.Err() == nil {
		missed, changes, cancel := e.server.rooms.SubscribeAfter(e.seq, eventLag)
		defer cancel() // while more was missed, it does nothing
		for _, c := range missed {
			if !e.add(c) {
				return
			}
		}
		if changes != nil { // nothing more was missed
			e.follow(ctx, changes)
			return
		}
	}
}

// follow sends what comes, as much as there is at a time.
func (e *eventStream) follow(ctx context.Context, changes <-chan *task.Change) {
	silence := eventSilence
	if e.lines {
		silence = math.MaxInt64 // what reads lines need not know comments
	}
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for len(changes) > 0 || e.flush() {
		quiet.Reset(silence)
		select {
		case c, ok := <-changes:
			if !ok {
				e.flush()
				return
			}
			if !e.add(c) {
				return
			}
		case <-quiet.C:
			e.buf = append(e.buf, ": heartbeat\n\n"...) // a comment, which readers pass over
		case <-ctx.Done():
			return
		}
	}
}

// addAll sends how shared tasks are now.
func (e *eventStream) addAll(tasks []state.Task) error {
	for i := range tasks {
		_ = e.add(&task.Change{Task: tasks[i]}) // what cannot be sent, cannot be sent below
	}
	if !e.flush() {
		return http.ErrAbortHandler
	}
	return nil
}

// add puts a change to what is to be sent, and sends that when it is enough.
func (e *eventStream) add(c *task.Change) bool {
	line, err := c.Line()
	if err != nil {
		return false
	}
	e.seq = c.Seq
	switch {
	case e.lines:
		e.buf = append(e.buf, line...) // which ends with a line end
	case c.Resync:
		e.buf = fmt.Appendf(e.buf, "id: %d\nevent: resync\ndata: %s\n", c.Seq, line)
	default:
		e.buf = fmt.Appendf(e.buf, "id: %d\nevent: task\ndata: %s\n", c.Seq, line)
	}
	return len(e.buf) < maxEvents || e.flush()
}

// flush sends what waits, if anything. It returns false if the reader does not take it in time, or has gone.
func (e *eventStream) flush() bool {
	_ = e.out.rc.SetWriteDeadline(time.Now().Add(eventTimeout)) // not every writer has deadlines
	_, err := e.out.Write(e.buf)
	e.buf = e.buf[:0]
	return err == nil
}
