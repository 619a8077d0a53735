package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer does what the markers of the last prompt say.
func (m *modelServer) answer(w http.ResponseWriter, r *http.Request, req *modelRequest, number int) {
	marks := req.markers()
	for name, arg := range marks {
		if status, err := strconv.Atoi(name); err == nil && m.due(req, name, arg) {
			rejectAs(w, number, status, options(arg))
			return
		}
	}
	s := newEventStream(w, number)
	s.send("response.created", map[string]any{"response": map[string]any{"id": s.id}})
	if arg, ok := marks["hang"]; ok && !m.pause(r, seconds(arg)) {
		return
	}
	if arg, ok := marks["trunc"]; ok && m.due(req, "trunc", arg) {
		s.message("a beginning that is cu", "")
		panic(http.ErrAbortHandler) // closes the connection in mid-chunk
	}
	if code, ok := marks["streamerr"]; ok {
		s.failed(code)
		return
	}
	m.finish(r, s, req, marks)
}

// finish streams a tool call or an answer.
func (m *modelServer) finish(r *http.Request, s *eventStream, req *modelRequest, marks map[string]string) {
	if text, ok := marks["reason"]; ok {
		s.reasoning(text)
	}
	if cmd, ok := marks["tool"]; ok && !req.Called {
		s.item(shellCall(req, s.id, cmd))
		s.completed()
		return
	}
	if arg, ok := marks["write"]; ok && !req.Called {
		s.item(writeCall(s.id, arg))
		s.completed()
		return
	}
	text := answerText(req, marks)
	if arg, ok := marks["slow"]; ok && !m.drip(r, s, seconds(arg)) {
		return
	}
	s.message(text, "done")
	s.completed()
}

// drip streams a piece of text about five times a second for d.
func (m *modelServer) drip(r *http.Request, s *eventStream, d time.Duration) bool {
	const step = 200 * time.Millisecond
	s.send("response.output_item.added", map[string]any{"item": messageItem(s.id, "")})
	for ; d > 0; d -= step {
		s.send("response.output_text.delta", map[string]any{"delta": ". "})
		if !m.pause(r, step) {
			return false
		}
	}
	return true
}

func answerText(req *modelRequest, marks map[string]string) string {
	if text, ok := marks["final"]; ok {
		return text
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

// shellCall asks for a command with whichever shell tool the request offers.
func shellCall(req *modelRequest, id, cmd string) map[string]any {
	name, args := "shell_command", map[string]any{"command": cmd}
	for _, t := range req.Tools {
		if t.Name == "exec_command" {
			name, args = t.Name, map[string]any{"cmd": cmd, "yield_time_ms": 30000}
		}
	}
	text, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return map[string]any{
		"type": "function_call", "id": "fc_" + id, "call_id": "call_" + id,
		"name": name, "arguments": string(text),
	}
}

// writeCall asks for a patch that adds PATH with TEXT.
func writeCall(id, arg string) map[string]any {
	path, text, _ := strings.Cut(arg, "|")
	patch := "*** Begin Patch\n*** Add File: " + path + "\n+" +
		strings.ReplaceAll(text, "\n", "\n+") + "\n*** End Patch\n"
	return map[string]any{
		"type": "custom_tool_call", "id": "ctc_" + id, "call_id": "call_" + id,
		"name": "apply_patch", "input": patch, "status": "completed",
	}
}

// rejectAs answers an HTTP error, as a provider words it.
func rejectAs(w http.ResponseWriter, number, status int, opts map[string]string) {
	if ra := opts["ra"]; ra != "" {
		w.Header().Set("Retry-After", ra)
	}
	kind, text := "server_error", fmt.Sprintf("fake %d", status)
	switch {
	case opts["kind"] == "usage":
		kind, text = "usage_limit_reached", "The usage limit has been reached"
	case opts["kind"] == "quota":
		kind, text = "insufficient_quota", "You exceeded your current quota"
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_exceeded"
	case status == http.StatusUnauthorized:
		kind = "invalid_request_error"
	}
	reject(w, number, status, text, kind)
}

func reject(w http.ResponseWriter, number, status int, text, kind string) {
	fields := map[string]any{"message": text, "type": kind, "code": kind}
	if kind == "usage_limit_reached" {
		fields["plan_type"] = "plus"
		fields["resets_at"] = time.Now().Add(time.Hour).Unix()
		fields["resets_in_seconds"] = 3600
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("x-request-id", "req_"+strconv.Itoa(number))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": fields}) // a client that has gone is no fault
}

// An eventStream writes the server-sent events of one response.
type eventStream struct {
	w  http.ResponseWriter
	id string
}

func newEventStream(w http.ResponseWriter, number int) *eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("x-request-id", "req_"+strconv.Itoa(number))
	w.WriteHeader(http.StatusOK)
	return &eventStream{w: w, id: "resp_" + strconv.Itoa(number)}
}

func (s *eventStream) send(kind string, fields map[string]any) {
	fields["type"] = kind
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", kind, data) // as in reject
	s.w.(http.Flusher).Flush()
}

func messageItem(id, text string) map[string]any {
	return map[string]any{
		"type": "message", "id": "msg_" + id, "role": "assistant",
		"content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}},
	}
}

// message streams text; only with the status done is the item complete.
func (s *eventStream) message(text, status string) {
	s.send("response.output_item.added", map[string]any{"item": messageItem(s.id, "")})
	s.send("response.output_text.delta", map[string]any{"delta": text})
	if status == "done" {
		s.item(messageItem(s.id, text))
	}
}

func (s *eventStream) reasoning(text string) {
	s.item(map[string]any{
		"type": "reasoning", "id": "rs_" + s.id, "encrypted_content": "x",
		"summary": []any{map[string]any{"type": "summary_text", "text": text}},
	})
}

func (s *eventStream) item(item map[string]any) {
	s.send("response.output_item.done", map[string]any{"item": item})
}

// failed ends the stream as a provider does that has lost its way.
func (s *eventStream) failed(code string) {
	s.send("response.failed", map[string]any{"response": map[string]any{
		"id": s.id, "status": "failed",
		"error": map[string]any{"code": code, "message": "fake " + code},
	}})
}

// completed ends the stream with the usage of one request.
func (s *eventStream) completed() {
	s.send("response.completed", map[string]any{"response": map[string]any{
		"id": s.id,
		"usage": map[string]any{
			"input_tokens": 110, "input_tokens_details": map[string]any{"cached_tokens": 40},
			"output_tokens": 21, "output_tokens_details": map[string]any{"reasoning_tokens": 5},
			"total_tokens": 131,
		},
	}})
}

func seconds(arg string) time.Duration {
	n, err := strconv.ParseFloat(arg, 64)
	if err != nil {
		panic("bad number of seconds in a marker: " + arg)
	}
	return time.Duration(n * float64(time.Second))
}
