package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer does what the markers of the last prompt say.
func (m *modelServer) answer(w http.ResponseWriter, r *http.Request, d dialect, req *modelRequest, number int) {
	marks := req.markers()
	for name, arg := range marks {
		if status, err := strconv.Atoi(name); err == nil && m.due(req, name, arg) {
			d.reject(w, number, status, options(arg))
			return
		}
	}
	out := d.begin(w, number, req)
	out.start()
	if arg, ok := marks["hang"]; ok && !m.pause(r, seconds(arg)) {
		return
	}
	if arg, ok := marks["trunc"]; ok && m.due(req, "trunc", arg) {
		out.delta("a beginning that is cu")
		panic(http.ErrAbortHandler) // closes the connection in mid-chunk
	}
	if arg, ok := marks["streamerr"]; ok && m.due(req, "streamerr", arg) {
		code, _, _ := strings.Cut(arg, ",")
		out.failed(code)
		return
	}
	if arg, ok := marks["empty"]; ok && m.due(req, "empty", arg) {
		out.completed()
		return
	}
	if m.finish(r, out, req, marks) {
		out.completed()
	}
}

// rejection returns the text of a refused request.
func rejection(status int, opts map[string]string) string {
	return cmp.Or(opts["msg"], "fake "+strconv.Itoa(status))
}

// structuredTool is what claude offers the model for an answer that follows a schema.
const structuredTool = "StructuredOutput"

// finish writes a tool call or an answer; false: the client has gone.
func (m *modelServer) finish(r *http.Request, out answerWriter, req *modelRequest, marks map[string]string) bool {
	if text, ok := marks["reason"]; ok {
		out.reasoning(text)
	}
	if cmd, ok := marks["tool"]; ok && !req.Called {
		out.shell(cmd)
		return true
	}
	if text, ok := marks["schema"]; ok && (!req.Called || marks["tool"] != "") && slices.Contains(req.Tools, structuredTool) {
		var input map[string]any
		if err := json.Unmarshal([]byte(text), &input); err != nil {
			panic(err)
		}
		out.(*anthropicAnswer).call(structuredTool, input)
		return true
	}
	if arg, ok := marks["write"]; ok && !req.Called {
		path, text, _ := strings.Cut(arg, "|")
		out.write(path, text)
		return true
	}
	if arg, ok := marks["edit"]; ok && !req.Called {
		path, change, _ := strings.Cut(arg, "|")
		from, to, _ := strings.Cut(change, "|")
		out.edit(path, from, to)
		return true
	}
	if path, ok := marks["loop"]; ok {
		out.write(path, "x")
		return true
	}
	if arg, ok := marks["slow"]; ok && !m.drip(r, out, seconds(arg)) {
		return false
	}
	out.message(answerText(req, marks))
	return true
}

// drip streams a piece of text about five times a second for d.
func (m *modelServer) drip(r *http.Request, out answerWriter, d time.Duration) bool {
	const step = 200 * time.Millisecond
	for ; d > 0; d -= step {
		out.delta(". ")
		if !m.pause(r, step) {
			return false
		}
	}
	return true
}

func answerText(req *modelRequest, marks map[string]string) string {
	for _, name := range []string{"schema", "final"} {
		if text, ok := marks[name]; ok {
			return text
		}
	}
	if kib, ok := marks["bigout"]; ok {
		n, err := strconv.Atoi(kib)
		if err != nil {
			panic("bad bigout marker: " + kib)
		}
		return strings.Repeat("0123456789abcde\n", n*64)
	}
	if req.Called {
		return fmt.Sprintf("TOOL DONE result=%q %s", strings.Join(strings.Fields(req.Output), " "), req.echo())
	}
	return req.echo()
}

// An eventStream writes server-sent events.
type eventStream struct{ w http.ResponseWriter }

func newEventStream(w http.ResponseWriter, number int) eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Request-Id", "req_"+strconv.Itoa(number))
	w.WriteHeader(http.StatusOK)
	return eventStream{w}
}

// send writes one event; kind may be empty.
func (s eventStream) send(kind string, fields map[string]any) {
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	if kind != "" {
		_, _ = fmt.Fprintf(s.w, "event: %s\n", kind) // a client that has gone is no fault
	}
	_, _ = fmt.Fprintf(s.w, "data: %s\n\n", data)
	s.w.(http.Flusher).Flush()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // as in send
}

func seconds(arg string) time.Duration {
	n, err := strconv.ParseFloat(arg, 64)
	if err != nil {
		panic("bad number of seconds in a marker: " + arg)
	}
	return time.Duration(n * float64(time.Second))
}
