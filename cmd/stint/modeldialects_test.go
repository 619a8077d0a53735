package main

import (
	"encoding/json"
	"net/http"
	"regexp"
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

// anthropic is Anthropic's Messages API, as a stream or as one document, as claude speaks it.
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

// gemini is Google's generateContent and streamGenerateContent, as gemini speaks them.
type geminiAPI struct{}

var geminiPath = regexp.MustCompile(`/models/([^/:]+):(generateContent|streamGenerateContent)$`)

func (geminiAPI) read(path string, body []byte) (*modelRequest, error) {
	var in struct {
		Contents []struct {
			Role  string
			Parts []struct {
				Text             string
				Thought          bool
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
		Tools []struct {
			FunctionDeclarations []struct{ Name string }
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	where := geminiPath.FindStringSubmatch(path)
	req := &modelRequest{Model: where[1], Whole: where[2] == "generateContent"}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			req.Tools = append(req.Tools, f.Name)
		}
	}
	for _, c := range in.Contents {
		for _, p := range c.Parts {
			switch {
			case p.FunctionResponse != nil:
				req.toolOutput(string(p.FunctionResponse.Response))
			case c.Role == "user":
				req.userText(p.Text)
			case p.Text != "" && !p.Thought:
				req.Answers = append(req.Answers, p.Text)
			}
		}
	}
	return req, nil
}

func (geminiAPI) reject(w http.ResponseWriter, number, status int, opts map[string]string) {
	name := map[int]string{
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusUnauthorized: "UNAUTHENTICATED",
		http.StatusForbidden: "PERMISSION_DENIED", http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusNotFound: "NOT_FOUND",
	}[status]
	if name == "" {
		name = "INTERNAL"
	}
	details := []any{}
	if id := map[string]string{"day": "PerDay", "quota": "PerDay", "usage": "PerDay", "min": "PerMinute"}[opts["kind"]]; id != "" {
		details = append(details, map[string]any{
			"@type": "type.googleapis.com/google.rpc.QuotaFailure",
			"violations": []any{map[string]any{
				"quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
				"quotaId":     "GenerateRequests" + id + "PerProjectPerModel",
			}},
		})
	}
	if ra := opts["ra"]; ra != "" {
		details = append(details, map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": ra + "s"})
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"code": status, "message": rejection(status, opts), "status": name, "details": details,
	}})
}

func (geminiAPI) begin(w http.ResponseWriter, number int, req *modelRequest) answerWriter {
	a := &geminiAnswer{w: w, req: req, number: number}
	if !req.Whole {
		a.stream = newEventStream(w, number)
	}
	return a
}

// A geminiAnswer is an answer of generateContent.
type geminiAnswer struct {
	w      http.ResponseWriter
	stream eventStream // unless the answer is one document
	req    *modelRequest
	number int
	parts  []any // of a whole answer
}

// chunk is a document with these parts; the last one says why it ends.
func (a *geminiAnswer) chunk(last bool, parts ...any) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	doc := map[string]any{"candidates": []any{candidate}, "modelVersion": a.req.Model, "responseId": "r" + strconv.Itoa(a.number)}
	if last {
		candidate["finishReason"] = "STOP"
		doc["usageMetadata"] = map[string]any{
			"promptTokenCount": 110, "cachedContentTokenCount": 40, "candidatesTokenCount": 21,
			"thoughtsTokenCount": 5, "totalTokenCount": 136,
		}
	}
	return doc
}

func (a *geminiAnswer) part(p map[string]any) {
	if a.req.Whole {
		a.parts = append(a.parts, p)
		return
	}
	a.stream.send("", a.chunk(false, p))
}

func (a *geminiAnswer) start() {}

func (a *geminiAnswer) delta(text string) { a.part(map[string]any{"text": text}) }

func (a *geminiAnswer) message(text string) { a.delta(text) }

func (a *geminiAnswer) reasoning(text string) {
	a.part(map[string]any{"text": "**Thinking** " + text, "thought": true})
}

func (a *geminiAnswer) call(name string, args map[string]any) {
	a.part(map[string]any{"functionCall": map[string]any{"name": name, "args": args}})
}

func (a *geminiAnswer) shell(cmd string) {
	a.call("run_shell_command", map[string]any{"command": cmd, "description": "as the test wants it"})
}

func (a *geminiAnswer) write(path, text string) {
	a.call("write_file", map[string]any{"file_path": path, "content": text})
}

func (a *geminiAnswer) edit(path, from, to string) {
	a.call("replace", map[string]any{
		"file_path": path, "old_string": from, "new_string": to, "instruction": "as the test wants it",
	})
}

// failed ends the stream as Google does: with an error in place of a chunk.
func (a *geminiAnswer) failed(code string) {
	doc := map[string]any{"error": map[string]any{"code": 500, "message": "fake " + code, "status": strings.ToUpper(code)}}
	if a.req.Whole {
		writeJSON(a.w, http.StatusInternalServerError, doc)
		return
	}
	a.stream.send("", doc)
}

func (a *geminiAnswer) completed() {
	if a.req.Whole {
		writeJSON(a.w, http.StatusOK, a.chunk(true, a.parts...))
		return
	}
	a.stream.send("", a.chunk(true, map[string]any{"text": ""}))
}
