package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A modelServer stands in for a model provider: it speaks the Responses API
// over SSE on 127.0.0.1, well enough for the real codex CLI. What it does is
// said by markers in the last prompt of a request:
//
//	[[tool:CMD]]          asks for the shell command CMD, then answers
//	[[write:PATH|TEXT]]   asks for a patch that writes TEXT to PATH, then answers
//	[[429:ra=2,n=3,kind=usage|quota]]  rejects (n times, with Retry-After), then answers
//	[[401]] [[403]] [[500]] and so on: rejects; n= as above
//	[[slow:30]]           streams its answer over 30 s
//	[[hang:30]]           begins a stream and then says nothing for 30 s
//	[[trunc:n=1]]         cuts the connection in mid-stream (n times)
//	[[streamerr:CODE]]    ends the stream with response.failed and this code
//	[[final:TEXT]]        answers TEXT
//	[[reason:TEXT]]       thinks TEXT before it answers
//	[[bigout:KIB]]        answers with so many KiB
//
// Without one of the last it answers `ECHO #<prompts> last="…" all=[p1 ;; p2]`,
// which proves what context the request carried.
type modelServer struct {
	*httptest.Server
	stopped chan struct{} // closed by Close: ends every slow answer

	mu       sync.Mutex
	log      io.Writer      // requests, one JSON document a line; may be nil
	requests []modelRequest // every request so far
	hits     map[string]int // how often a marker that counts was met
}

// newModelServer starts a server that writes each request body to log.
func newModelServer(log io.Writer) *modelServer {
	m := &modelServer{stopped: make(chan struct{}), log: log, hits: map[string]int{}}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	return m
}

// Close ends the requests under way and the server.
func (m *modelServer) Close() {
	close(m.stopped)
	m.CloseClientConnections()
	m.Server.Close()
}

// Requests gives the model requests so far, in order.
func (m *modelServer) Requests() []modelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]modelRequest(nil), m.requests...)
}

// A modelRequest is what a CLI asked the model.
type modelRequest struct {
	Model string           `json:"model"`
	Input []modelInputItem `json:"input"`
	Tools []struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tools"`
	Prompts []string `json:"-"` // the user's messages, without what CLI and stint put around them
	Answers []string `json:"-"` // earlier answers in the context
	Output  string   `json:"-"` // of the tool call that the last prompt led to
	Called  bool     `json:"-"` // there was one
	Key     string   `json:"-"` // the Authorization header
}

type modelInputItem struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Output  json.RawMessage `json:"output"`
}

func (m *modelServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responses") {
		http.Error(w, `{"error":{"message":"no such path"}}`, http.StatusNotFound)
		return
	}
	var req modelRequest
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.read()
	req.Key = r.Header.Get("Authorization")
	number := m.record(req, body)
	if req.Key == "" {
		reject(w, number, http.StatusUnauthorized, "no key", "invalid_request_error")
		return
	}
	m.answer(w, r, &req, number)
}

// record keeps a request and gives its number, from 1.
func (m *modelServer) record(req modelRequest, body []byte) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, req)
	if m.log != nil {
		if _, err := fmt.Fprintf(m.log, "%s\n", body); err != nil {
			panic(err)
		}
	}
	return len(m.requests)
}

// read takes the prompts, answers and the last tool output from the input.
func (req *modelRequest) read() {
	for _, item := range req.Input {
		switch {
		case item.Type == "message" && item.Role == "user":
			if p, ok := userMessage(itemText(item.Content)); ok {
				req.Prompts = append(req.Prompts, p)
				req.Output, req.Called = "", false
			}
		case item.Type == "message" && item.Role == "assistant":
			req.Answers = append(req.Answers, itemText(item.Content))
		case strings.HasSuffix(item.Type, "_call_output"):
			req.Output, req.Called = itemText(item.Output), true
		}
	}
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

const userSection = "## User message\n"

// userMessage gives what the user wrote: not the CLI's own context messages
// (false), and without the sections that stint puts before it.
func userMessage(text string) (string, bool) {
	t := strings.TrimSpace(text)
	if strings.HasPrefix(t, "<") || strings.HasPrefix(t, "# AGENTS.md instructions") {
		return "", false
	}
	if i := strings.Index("\n"+text, "\n"+userSection); i >= 0 {
		t = strings.TrimSpace(text[i+len(userSection):])
	}
	return t, true
}

var markerForm = regexp.MustCompile(`(?s)\[\[([a-z]+|\d{3})(?::(.*?))?\]\]`)

// markers gives name -> argument of the last prompt's markers.
func (req *modelRequest) markers() map[string]string {
	found := map[string]string{}
	if len(req.Prompts) == 0 {
		return found
	}
	for _, m := range markerForm.FindAllStringSubmatch(req.Prompts[len(req.Prompts)-1], -1) {
		found[m[1]] = m[2]
	}
	return found
}

// echo says which prompts the request carried; markers are shown as <name>, so
// that an answer never is an order.
func (req *modelRequest) echo() string {
	plain := make([]string, len(req.Prompts))
	for i, p := range req.Prompts {
		plain[i] = markerForm.ReplaceAllString(p, "<$1>")
	}
	last := ""
	if len(plain) > 0 {
		last = plain[len(plain)-1]
	}
	return fmt.Sprintf("ECHO #%d last=%q all=[%s]", len(plain), last, strings.Join(plain, " ;; "))
}

// options reads "ra=2,n=3,kind=usage".
func options(arg string) map[string]string {
	opts := map[string]string{}
	for _, kv := range strings.Split(arg, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			opts[k] = v
		}
	}
	return opts
}

// due says whether a marker that may be bounded by n= still acts.
func (m *modelServer) due(req *modelRequest, name, arg string) bool {
	n := options(arg)["n"]
	if n == "" {
		return true
	}
	limit, err := strconv.Atoi(n)
	if err != nil {
		panic("bad n= in a marker: " + arg)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := name + ":" + req.Prompts[len(req.Prompts)-1]
	m.hits[key]++
	return m.hits[key] <= limit
}

// pause waits d unless the client or the server goes first.
func (m *modelServer) pause(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-m.stopped:
	}
	return false
}

// TestUserMessage pins what counts as the user's own words.
func TestUserMessage(t *testing.T) {
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{"hello", "hello", true},
		{"<environment_context>\n</environment_context>", "", false},
		{"# Task\n\n## Output\nshort\n\n## User message\n\nhello\nyou\n", "hello\nyou", true},
		{"say `## User message` twice", "say `## User message` twice", true},
	} {
		got, ok := userMessage(c.in)
		if got != c.want || ok != c.ok {
			t.Errorf("userMessage(%q) = %q, %v; want %q, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

// codexConfig writes a CODEX_HOME's config.toml that points codex at a model
// server; codex's own retries are off, so that each error is seen at once.
func codexConfig(path, baseURL string) error {
	return os.WriteFile(path, []byte(fmt.Sprintf(`model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "%s/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = 3000

[analytics]
enabled = false
`, baseURL)), 0o600)
}
