package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// responses is OpenAI's Responses API over SSE, as codex speaks it.
type responses struct{}

func (responses) read(_ string, body []byte) (*modelRequest, error) {
	var in struct {
		Model string
		Input []struct {
			Type, Role string
			Content    json.RawMessage
			Output     json.RawMessage
		}
		Tools []struct{ Name string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	req := &modelRequest{Model: in.Model}
	for _, t := range in.Tools {
		req.Tools = append(req.Tools, t.Name)
	}
	for _, item := range in.Input {
		switch {
		case item.Type == "message" && item.Role == "user":
			req.userText(itemText(item.Content))
		case item.Type == "message" && item.Role == "assistant":
			req.Answers = append(req.Answers, itemText(item.Content))
		case strings.HasSuffix(item.Type, "_call_output"):
			req.toolOutput(itemText(item.Output))
		}
	}
	return req, nil
}

// itemText joins the texts of a content that is a string or a list of parts.
func itemText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	for _, p := range parts {
		s += p.Text
	}
	return s
}

func (responses) reject(w http.ResponseWriter, number, status int, opts map[string]string) {
	if ra := opts["ra"]; ra != "" {
		w.Header().Set("Retry-After", ra)
	}
	fields := map[string]any{"message": rejection(status, opts)}
	kind := "server_error"
	switch {
	case opts["kind"] == "usage":
		kind = "usage_limit_reached"
		fields["message"] = "The usage limit has been reached"
		fields["plan_type"] = "plus"
		fields["resets_at"] = time.Now().Add(time.Hour).Unix()
		fields["resets_in_seconds"] = 3600
	case opts["kind"] == "quota":
		kind = "insufficient_quota"
		fields["message"] = "You exceeded your current quota"
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_exceeded"
	case status == http.StatusUnauthorized:
		kind = "invalid_request_error"
	}
	fields["type"], fields["code"] = kind, kind
	w.Header().Set("X-Request-Id", "req_"+strconv.Itoa(number))
	writeJSON(w, status, map[string]any{"error": fields})
}

func (responses) begin(w http.ResponseWriter, number int, req *modelRequest) answerWriter {
	return &responsesAnswer{eventStream: newEventStream(w, number), req: req, id: "resp_" + strconv.Itoa(number)}
}

// A responsesAnswer is an answer in the Responses API.
type responsesAnswer struct {
	eventStream
	req *modelRequest
	id  string
}

func (s *responsesAnswer) event(kind string, fields map[string]any) {
	fields["type"] = kind
	s.send(kind, fields)
}

func (s *responsesAnswer) start() {
	s.event("response.created", map[string]any{"response": map[string]any{"id": s.id}})
}

func (s *responsesAnswer) messageItem(text string) map[string]any {
	return map[string]any{
		"type": "message", "id": "msg_" + s.id, "role": "assistant",
		"content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}},
	}
}

func (s *responsesAnswer) delta(text string) {
	s.event("response.output_item.added", map[string]any{"item": s.messageItem("")})
	s.event("response.output_text.delta", map[string]any{"delta": text})
}

func (s *responsesAnswer) message(text string) {
	s.delta(text)
	s.item(s.messageItem(text))
}

func (s *responsesAnswer) reasoning(text string) {
	s.item(map[string]any{
		"type": "reasoning", "id": "rs_" + s.id, "encrypted_content": "x",
		"summary": []any{map[string]any{"type": "summary_text", "text": text}},
	})
}

func (s *responsesAnswer) item(item map[string]any) {
	s.event("response.output_item.done", map[string]any{"item": item})
}

// shell asks for a command with whichever shell tool the request offers.
func (s *responsesAnswer) shell(cmd string) {
	name, args := "shell_command", map[string]any{"command": cmd}
	if slices.Contains(s.req.Tools, "exec_command") {
		name, args = "exec_command", map[string]any{"cmd": cmd, "yield_time_ms": 30000}
	}
	text, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	s.item(map[string]any{
		"type": "function_call", "id": "fc_" + s.id, "call_id": "call_" + s.id,
		"name": name, "arguments": string(text),
	})
}

// write asks for a patch that adds the file.
func (s *responsesAnswer) write(path, text string) {
	s.patch("*** Add File: " + path + "\n+" + strings.ReplaceAll(text, "\n", "\n+"))
}

// edit asks for a patch that changes a line.
func (s *responsesAnswer) edit(path, from, to string) {
	s.patch("*** Update File: " + path + "\n@@\n-" + from + "\n+" + to)
}

func (s *responsesAnswer) patch(hunk string) {
	patch := "*** Begin Patch\n" + hunk + "\n*** End Patch\n"
	s.item(map[string]any{
		"type": "custom_tool_call", "id": "ctc_" + s.id, "call_id": "call_" + s.id,
		"name": "apply_patch", "input": patch, "status": "completed",
	})
}

func (s *responsesAnswer) failed(code string) {
	s.event("response.failed", map[string]any{"response": map[string]any{
		"id": s.id, "status": "failed",
		"error": map[string]any{"code": code, "message": "fake " + code},
	}})
}

// completed ends the stream with the usage of one request.
func (s *responsesAnswer) completed() {
	s.event("response.completed", map[string]any{"response": map[string]any{
		"id": s.id,
		"usage": map[string]any{
			"input_tokens": 110, "input_tokens_details": map[string]any{"cached_tokens": 40},
			"output_tokens": 21, "output_tokens_details": map[string]any{"reasoning_tokens": 5},
			"total_tokens": 131,
		},
	}})
}
