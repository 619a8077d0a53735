package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/prompt"
)

// A modelServer stands in for the model providers: it speaks OpenAI's Responses,
// Anthropic's Messages and Gemini's generateContent on 127.0.0.1, well enough for
// the real CLIs. What it does is said by markers in the last prompt of a request:
//
//	[[tool:CMD]]          asks for the shell command CMD, then answers
//	[[write:PATH|TEXT]]   asks for a file PATH with TEXT, then answers
//	[[edit:PATH|OLD|NEW]] asks for NEW in place of OLD in the file PATH, then answers
//	[[mend:PATH|OLD|NEW]] the same in the turn after a verify command that failed
//	[[loop:PATH]]         asks for the same file again and again
//	[[429:ra=2,n=3,kind=usage|quota|day|min]]  rejects (n times, with a time), then answers
//	[[401]] [[403]] [[500]] and so on: rejects; n= as above, msg= is the provider's text
//	[[quota:35,12]]       tells, as the provider does, that so many per cent of five hours
//	                      and of seven days are used, of which four and one are left
//	[[empty:n=1]]         ends the stream without a word (n times)
//	[[slow:30]]           streams its answer over 30 s
//	[[hang:30]]           begins a stream and then says nothing for 30 s
//	[[trunc:n=1]]         cuts the connection in mid-stream (n times)
//	[[streamerr:CODE,n=1]] ends the stream with an error of this code (n times)
//	[[final:TEXT]]        answers TEXT
//	[[schema:JSON]]       answers JSON, in the way in which the CLI asks for an answer of a schema
//	[[reason:TEXT]]       thinks TEXT before it answers
//	[[bigout:KIB]]        answers with so many KiB
//
// Without one of the last it answers `ECHO #<prompts> last="…" all=[p1 ;; p2]`, which proves what context the
// request carried. A request without a key is rejected with 401.
type modelServer struct {
	*httptest.Server
	stopped chan struct{} // closed by Close: ends every slow answer
	closing sync.Once

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

// Close ends the requests under way and the server, once.
func (m *modelServer) Close() {
	m.closing.Do(func() {
		close(m.stopped)
		m.CloseClientConnections()
		m.Server.Close()
	})
}

// Requests returns the model requests so far, in order.
func (m *modelServer) Requests() []modelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]modelRequest(nil), m.requests...)
}

// A modelRequest is what a CLI asked the model, in the words of no protocol.
type modelRequest struct {
	Model   string
	Tools   []string // names of those that it offers
	Prompts []string // the user's messages, without what CLI and stint put around them
	Answers []string // earlier answers in the context
	Check   string   // what stint has told in the last prompt of a verify command
	Output  string   // of the tool call that the last prompt led to
	Called  bool     // there was one
	Key     string   // the secret that came with it
	Whole   bool     // the answer is wanted as one document, not as a stream
}

// A dialect is the protocol of one provider.
type dialect interface {
	// read decodes the body of a request to path.
	read(path string, body []byte) (*modelRequest, error)
	// reject answers an HTTP error; opts are those of the marker.
	reject(w http.ResponseWriter, number, status int, opts map[string]string)
	// begin answers 200 and gives the writer of the answer.
	begin(w http.ResponseWriter, number int, req *modelRequest) answerWriter
}

// An answerWriter writes one answer, in the order in which it is called.
type answerWriter interface {
	start()                     // what a stream begins with
	delta(text string)          // a piece of an answer, not its end
	message(text string)        // the rest of an answer
	reasoning(text string)      // before the answer
	shell(cmd string)           // a call of the shell tool, in place of an answer
	write(path, text string)    // a call that writes a file, in place of an answer
	edit(path, from, to string) // a call that changes a line of a file, in place of an answer
	failed(code string)         // the provider has lost its way: the end
	completed()                 // the end
}

// dialectOf finds the protocol by the path of a request; nil: none of ours.
func dialectOf(path string) dialect {
	switch {
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/v1/messages"):
		return anthropic{}
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		return geminiAPI{}
	}
	return nil
}

func (m *modelServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	if serveCount(w, r.URL.Path) {
		return
	}
	d := dialectOf(r.URL.Path)
	if r.Method != http.MethodPost || d == nil {
		http.Error(w, `{"error":{"message":"no such path"}}`, http.StatusNotFound)
		return
	}
	req, err := d.read(r.URL.Path, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.Key = keyOf(r.Header)
	number := m.record(*req, body)
	if req.Key == "" {
		d.reject(w, number, http.StatusUnauthorized, nil)
		return
	}
	m.answer(w, r, d, req, number)
}

// keyOf returns the secret of a request, wherever its protocol has it.
func keyOf(h http.Header) string {
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"} {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// serveCount answers what asks only how many tokens something has.
func serveCount(w http.ResponseWriter, path string) bool {
	switch {
	case strings.HasSuffix(path, "/messages/count_tokens"):
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": 110})
	case strings.HasSuffix(path, ":countTokens"):
		writeJSON(w, http.StatusOK, map[string]any{"totalTokens": 110})
	default:
		return false
	}
	return true
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

const (
	userSection  = "## User message\n"
	checkSection = "\n## Verify output\n"
	goOn         = "(go on)"  // stands for prompt.GoOn
	fixIt        = "(fix it)" // for prompt.FixIt
)

// userMessage returns what the user wrote: not the CLI's own context messages
// (false), and without the sections that stint puts before it.
func userMessage(text string) (string, bool) {
	t := strings.TrimSpace(text)
	for _, own := range []string{"<", "# AGENTS.md instructions", "System: ", "[System: "} {
		if t == "" || strings.HasPrefix(t, own) {
			return "", false
		}
	}
	if i := strings.Index("\n"+text, "\n"+userSection); i >= 0 {
		t = strings.TrimSpace(text[i+len(userSection):])
	}
	switch t {
	case prompt.GoOn:
		t = goOn
	case prompt.FixIt:
		t = fixIt
	}
	return t, true
}

var markerForm = regexp.MustCompile(`(?s)\[\[([a-z]+|\d{3})(?::(.*?))?\]\]`)

// userText adds a text of the user, if it is one.
func (req *modelRequest) userText(text string) {
	if p, ok := userMessage(text); ok {
		req.Prompts = append(req.Prompts, p)
		req.Output, req.Called = "", false
		_, check, _ := strings.Cut(text, checkSection)
		req.Check, _, _ = strings.Cut(check, "\n## ")
	}
}

// toolOutput notes what a tool call led to.
func (req *modelRequest) toolOutput(text string) { req.Output, req.Called = text, true }

// order returns the prompt that the model is to follow: the last one that does not
// only say to go on, or to mend what that one has led to.
func (req *modelRequest) order() (order string, mend bool) {
	for _, p := range slices.Backward(req.Prompts) {
		switch p {
		case goOn:
		case fixIt:
			mend = true
		default:
			return p, mend
		}
	}
	return "", mend
}

// markers returns name -> argument of the markers in the order, of equal ones the
// first: what comes behind may be quoted.
func (req *modelRequest) markers() map[string]string {
	order, mend := req.order()
	found := map[string]string{}
	for _, m := range markerForm.FindAllStringSubmatch(order, -1) {
		if _, ok := found[m[1]]; !ok {
			found[m[1]] = m[2]
		}
	}
	if arg, ok := found["mend"]; ok && mend {
		found["edit"] = arg
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

// due reports whether a marker that may be bounded by n= still acts.
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
	order, _ := req.order()
	key := name + ":" + order
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

// answer does what the markers of the last prompt say.
func (m *modelServer) answer(w http.ResponseWriter, r *http.Request, d dialect, req *modelRequest, number int) {
	marks := req.markers()
	for name, arg := range marks {
		if status, err := strconv.Atoi(name); err == nil && m.due(req, name, arg) {
			d.reject(w, number, status, options(arg))
			return
		}
	}
	if arg, ok := marks["quota"]; ok {
		tellQuota(w.Header(), arg)
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

// tellQuota sets what OpenAI and Anthropic tell in the headers of each answer to a subscriber.
func tellQuota(h http.Header, arg string) {
	short, long, _ := strings.Cut(arg, ",")
	for _, w := range []struct {
		codex, claude, used string
		minutes             int
		left                time.Duration
	}{{"Primary", "5h", short, 300, 4 * time.Hour}, {"Secondary", "7d", long, 7 * 24 * 60, 24 * time.Hour}} {
		reset, used := strconv.FormatInt(time.Now().Add(w.left).Unix(), 10), seconds(w.used).Seconds()
		h.Set("X-Codex-"+w.codex+"-Used-Percent", w.used)
		h.Set("X-Codex-"+w.codex+"-Window-Minutes", strconv.Itoa(w.minutes))
		h.Set("X-Codex-"+w.codex+"-Reset-At", reset)
		h.Set("Anthropic-Ratelimit-Unified-"+w.claude+"-Utilization", strconv.FormatFloat(used/100, 'f', 3, 64))
		h.Set("Anthropic-Ratelimit-Unified-"+w.claude+"-Reset", reset)
		h.Set("Anthropic-Ratelimit-Unified-"+w.claude+"-Status", "allowed")
		if w.claude == "5h" {
			h.Set("Anthropic-Ratelimit-Unified-Reset", reset)
		}
	}
	h.Set("Anthropic-Ratelimit-Unified-Status", "allowed")
	h.Set("Anthropic-Ratelimit-Unified-Representative-Claim", "five_hour")
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
