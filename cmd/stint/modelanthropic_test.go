package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// anthropic is Anthropic's Messages API, as a stream or as one document, as claude
// speaks it.
type anthropic struct{}

// An anthropicBlock is a part of a message.
type anthropicBlock struct {
	Type, Text string
	Content    json.RawMessage
}

func (anthropic) read(_ string, body []byte) (*modelRequest, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct{ Name string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	req := &modelRequest{Model: in.Model, Whole: !in.Stream}
	for _, t := range in.Tools {
		req.Tools = append(req.Tools, t.Name)
	}
	for _, m := range in.Messages {
		for _, b := range anthropicBlocks(m.Content) {
			switch {
			case b.Type == "tool_result":
				req.toolOutput(itemText(b.Content))
			case b.Type == "text" && m.Role == "user":
				req.userText(b.Text)
			case b.Type == "text" && m.Role == "assistant":
				req.Answers = append(req.Answers, b.Text)
			}
		}
	}
	return req, nil
}

// anthropicBlocks reads a content, which is a list of blocks or one text.
func anthropicBlocks(raw json.RawMessage) (blocks []anthropicBlock) {
	if json.Unmarshal(raw, &blocks) == nil {
		return blocks
	}
	return []anthropicBlock{{Type: "text", Text: itemText(raw)}}
}

func (anthropic) reject(w http.ResponseWriter, number, status int, opts map[string]string) {
	kind, text := "api_error", rejection(status, opts)
	switch status {
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusForbidden:
		kind = "permission_error"
	case http.StatusNotFound:
		kind = "not_found_error"
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	}
	if ra := opts["ra"]; ra != "" {
		w.Header().Set("Retry-After", ra)
	}
	if opts["kind"] == "usage" { // as for a subscription whose five hours are used up
		reset := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
		w.Header().Set("Anthropic-Ratelimit-Unified-Status", "rejected")
		w.Header().Set("Anthropic-Ratelimit-Unified-Reset", reset)
		w.Header().Set("Anthropic-Ratelimit-Unified-Representative-Claim", "five_hour")
		w.Header().Set("Retry-After", "3600")
	}
	w.Header().Set("Request-Id", "req_"+strconv.Itoa(number))
	writeJSON(w, status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": text}})
}

func (anthropic) begin(w http.ResponseWriter, number int, req *modelRequest) answerWriter {
	a := &anthropicAnswer{w: w, req: req, id: "msg_" + strconv.Itoa(number), stop: "end_turn", content: []any{}}
	if !req.Whole {
		a.stream = newEventStream(w, number)
	}
	return a
}

// An anthropicAnswer is an answer in the Messages API.
type anthropicAnswer struct {
	w       http.ResponseWriter
	stream  eventStream // unless the answer is one document
	req     *modelRequest
	id      string
	stop    string // why it ends
	content []any  // the blocks so far
	open    bool   // a text block is under way
}

func (a *anthropicAnswer) event(kind string, fields map[string]any) {
	if a.req.Whole {
		return
	}
	fields["type"] = kind
	a.stream.send(kind, fields)
}

// document is the message as it stands.
func (a *anthropicAnswer) document(stop any, output int) map[string]any {
	return map[string]any{
		"id": a.id, "type": "message", "role": "assistant", "model": a.req.Model,
		"content": a.content, "stop_reason": stop, "stop_sequence": nil,
		"usage": map[string]any{
			"input_tokens": 110, "cache_creation_input_tokens": 3,
			"cache_read_input_tokens": 40, "output_tokens": output,
		},
	}
}

func (a *anthropicAnswer) start() {
	a.event("message_start", map[string]any{"message": a.document(nil, 1)})
}

// block sends a block in its pieces: how it begins and what fills it.
func (a *anthropicAnswer) block(whole, begin, delta map[string]any) {
	a.closeText()
	a.event("content_block_start", map[string]any{"index": len(a.content), "content_block": begin})
	a.event("content_block_delta", map[string]any{"index": len(a.content), "delta": delta})
	a.event("content_block_stop", map[string]any{"index": len(a.content)})
	a.content = append(a.content, whole)
}

func (a *anthropicAnswer) delta(text string) {
	if !a.open {
		a.open = true
		a.event("content_block_start", map[string]any{
			"index":         len(a.content),
			"content_block": map[string]any{"type": "text", "text": ""},
		})
		a.content = append(a.content, map[string]any{"type": "text", "text": ""})
	}
	a.event("content_block_delta", map[string]any{
		"index": len(a.content) - 1,
		"delta": map[string]any{"type": "text_delta", "text": text},
	})
	last := a.content[len(a.content)-1].(map[string]any)
	last["text"] = last["text"].(string) + text
}

func (a *anthropicAnswer) closeText() {
	if a.open {
		a.open = false
		a.event("content_block_stop", map[string]any{"index": len(a.content) - 1})
	}
}

func (a *anthropicAnswer) message(text string) {
	a.delta(text)
	a.closeText()
}

func (a *anthropicAnswer) reasoning(text string) {
	a.block(map[string]any{"type": "thinking", "thinking": text, "signature": "x"},
		map[string]any{"type": "thinking", "thinking": "", "signature": ""},
		map[string]any{"type": "thinking_delta", "thinking": text})
}

// call asks for a tool.
func (a *anthropicAnswer) call(name string, input map[string]any) {
	text, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	id := "toolu_" + a.id + "_" + strconv.Itoa(len(a.content))
	a.block(map[string]any{"type": "tool_use", "id": id, "name": name, "input": input},
		map[string]any{"type": "tool_use", "id": id, "name": name, "input": map[string]any{}},
		map[string]any{"type": "input_json_delta", "partial_json": string(text)})
	a.stop = "tool_use"
}

func (a *anthropicAnswer) shell(cmd string) {
	a.call("Bash", map[string]any{"command": cmd, "description": "as the test wants it"})
}

func (a *anthropicAnswer) write(path, text string) {
	a.call("Write", map[string]any{"file_path": path, "content": text})
}

// edit reads the file before, or claude refuses.
func (a *anthropicAnswer) edit(path, from, to string) {
	a.call("Read", map[string]any{"file_path": path})
	a.call("Edit", map[string]any{"file_path": path, "old_string": from, "new_string": to})
}

func (a *anthropicAnswer) failed(code string) {
	fields := map[string]any{"error": map[string]any{"type": code, "message": "fake " + code}}
	if a.req.Whole {
		fields["type"] = "error"
		writeJSON(a.w, http.StatusInternalServerError, fields)
		return
	}
	a.event("error", fields)
}

func (a *anthropicAnswer) completed() {
	if a.req.Whole {
		writeJSON(a.w, http.StatusOK, a.document(a.stop, 22))
		return
	}
	a.event("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": a.stop, "stop_sequence": nil},
		"usage": map[string]any{"output_tokens": 22},
	})
	a.event("message_stop", map[string]any{})
}
