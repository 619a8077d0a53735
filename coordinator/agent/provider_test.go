package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A fakeProvider speaks as much of the Responses, Messages and Gemini APIs as the CLIs need: it answers with
// all that the user has said so far, or with what the last message asks for: "fail CODE" or "hang".
type fakeProvider struct {
	*httptest.Server
	asked atomic.Int64  // requests for an answer so far
	begun chan struct{} // gets one when a request hangs

	mu     sync.Mutex
	bodies [][]byte // of the requests for an answer
	deaf   bool     // it answers any message alike
	skill  string   // claude is asked to use this skill before it gets an answer
}

// take returns the bodies of the requests since it was last asked.
func (p *fakeProvider) take() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	bodies := p.bodies
	p.bodies = nil
	return bodies
}

// startProvider starts one, which ends with the test.
func startProvider(t *testing.T) *fakeProvider {
	p := &fakeProvider{begun: make(chan struct{}, 10)}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *fakeProvider) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := p.responses
	switch {
	case strings.HasSuffix(r.URL.Path, ":streamGenerateContent"):
		answer = p.gemini
	case strings.HasSuffix(r.URL.Path, "/messages"):
		answer = p.messages
	case !strings.HasSuffix(r.URL.Path, "/responses"):
		http.NotFound(w, r)
		return
	}
	p.mu.Lock()
	p.bodies = append(p.bodies, body)
	p.mu.Unlock()
	said := userTexts(body)
	if p.deaf {
		said = []string{"yes"}
	}
	if len(said) == 0 {
		http.Error(w, "nobody said anything", http.StatusBadRequest)
		return
	}
	p.asked.Add(1)
	if p.trouble(w, r, said[len(said)-1]) {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if p.skill != "" && !strings.Contains(string(body), `"tool_result"`) {
		p.useSkill(w)
		return
	}
	answer(w, strings.Join(said, " ;; "))
}

// userTexts returns the user's messages in a request, whatever its protocol: each text behind our heading.
func userTexts(body []byte) []string {
	var said []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range []string{"input", "messages", "contents", "content", "parts", "text"} {
				walk(v[key])
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case string:
			for i, part := range strings.Split(v, "## User message\n") {
				if i > 0 {
					msg, _, _ := strings.Cut(strings.TrimSpace(part), "\n")
					said = append(said, msg)
				}
			}
		}
	}
	var req any
	if json.Unmarshal(body, &req) == nil {
		walk(req)
	}
	return said
}

// trouble does what a message asks for instead of an answer.
func (p *fakeProvider) trouble(w http.ResponseWriter, r *http.Request, last string) bool {
	var code int
	if n, _ := fmt.Sscanf(last, "fail %d", &code); n == 1 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":"x","code":%d,"message":"as you wish","status":"X"}}`, code)
		return true
	}
	if last == "hang" {
		p.begun <- struct{}{}
		<-r.Context().Done()
		return true
	}
	return false
}

func (p *fakeProvider) responses(w io.Writer, text string) {
	item := map[string]any{"type": "message", "role": "assistant", "id": "m", "content": []any{map[string]any{"type": "output_text", "text": text}}}
	usage := map[string]any{"input_tokens": 110, "output_tokens": 21, "total_tokens": 131, "input_tokens_details": map[string]int{"cached_tokens": 40}, "output_tokens_details": map[string]int{"reasoning_tokens": 5}}
	sendEvents(w,
		map[string]any{"type": "response.created", "response": map[string]any{"id": "r"}},
		map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item},
		map[string]any{"type": "response.completed", "response": map[string]any{"id": "r", "usage": usage}})
}

func (p *fakeProvider) messages(w io.Writer, text string) {
	p.message(w, "end_turn", map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": text})
}

// useSkill asks claude to use a skill.
func (p *fakeProvider) useSkill(w io.Writer) {
	p.message(w, "tool_use", map[string]any{"type": "tool_use", "id": "toolu_1", "name": "Skill", "input": map[string]any{}},
		map[string]any{"type": "input_json_delta", "partial_json": fmt.Sprintf(`{"skill":%q}`, p.skill)})
}

// message answers with one block in the Messages API.
func (p *fakeProvider) message(w io.Writer, stop string, block, delta map[string]any) {
	message := map[string]any{
		"id": "m", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []any{}, "stop_reason": nil,
		"usage": map[string]int{"input_tokens": 67, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 3, "output_tokens": 1},
	}
	sendEvents(w,
		map[string]any{"type": "message_start", "message": message},
		map[string]any{"type": "content_block_start", "index": 0, "content_block": block},
		map[string]any{"type": "content_block_delta", "index": 0, "delta": delta},
		map[string]any{"type": "content_block_stop", "index": 0},
		map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": stop}, "usage": map[string]int{"output_tokens": 21}},
		map[string]any{"type": "message_stop"})
}

func (p *fakeProvider) gemini(w io.Writer, text string) {
	sendEvents(w, map[string]any{
		"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": []any{map[string]any{"text": text}}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]int{"promptTokenCount": 110, "cachedContentTokenCount": 40, "candidatesTokenCount": 21, "thoughtsTokenCount": 5, "totalTokenCount": 136},
	})
}

// sendEvents writes server-sent events, named as the providers name them.
func sendEvents(w io.Writer, events ...map[string]any) {
	for _, e := range events {
		data, err := json.Marshal(e)
		if err != nil {
			return
		}
		if kind, ok := e["type"]; ok {
			data = append([]byte(fmt.Sprintf("event: %s\ndata: ", kind)), data...)
		} else {
			data = append([]byte("data: "), data...)
		}
		if _, err := w.Write(append(data, "\n\n"...)); err != nil {
			return
		}
	}
}
