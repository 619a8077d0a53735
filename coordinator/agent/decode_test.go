package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

var testNow = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// The rows of the table that no recording has.
func TestClassify(t *testing.T) {
	exit := func(n int) ended { return ended{started: true, end: endReport{Exit: n}} }
	stop := func(err error) ended {
		return ended{started: true, cause: err, end: endReport{Exit: -1, Signal: 15}}
	}
	done := func(d *codexDecoder) { d.events, d.end, d.answer = 3, turnCompleted, "42" }
	fail := func(msg string) func(*codexDecoder) {
		return func(d *codexDecoder) { d.events, d.end, d.failure = 3, turnFailed, msg }
	}
	complains := func(msg string) func(*codexDecoder) {
		return func(d *codexDecoder) { d.line([]byte(`{"type":"error","message":"` + msg + `"}`)) }
	}
	none := func(*codexDecoder) {}
	stderr := func(n int, text string) ended {
		e := exit(n)
		e.stderr = []byte(text)
		return e
	}
	for i, c := range []struct {
		e     ended
		d     func(*codexDecoder)
		class state.Class
	}{
		{exit(0), done, ""},
		{exit(3), done, state.ClassExit},
		{ended{started: true, end: endReport{Exit: -1, Signal: 9}}, done, state.ClassExit},
		{exit(0), none, state.ClassExit},
		{exit(0), func(d *codexDecoder) { d.end, d.answer = turnCompleted, " \n" }, state.ClassOutputMissing},
		{exit(0), fail("unexpected status 503 Service Unavailable: x"), state.ClassNetwork},
		{exit(1), fail(""), state.ClassExit},
		{exit(1), fail("Missing environment variable: `FAKE_KEY`."), state.ClassAuth},
		{exit(1), fail("unexpected status 403 Forbidden: x"), state.ClassAuth},
		{exit(1), fail("unexpected status 404 Not Found: rate limit, 429, unauthorized"), state.ClassExit},
		{exit(1), fail(`{"error":"your prompt about the usage limit is refused"}`), state.ClassExit},
		{exit(1), fail("Quota exceeded. Check your plan and billing details."), state.ClassRateLimited},
		{exit(1), complains("Reconnecting... 1/5 (unexpected status 500 Internal Server Error)"), state.ClassNetwork},
		{exit(1), complains("Reconnecting... waiting for network"), state.ClassNetwork},
		{exit(1), complains("Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"), state.ClassRateLimited},
		{stop(errHung), done, ""},
		{stop(errHung), fail("unexpected status 401 Unauthorized"), state.ClassAuth},
		{stop(errHung), func(d *codexDecoder) { d.end = turnCompleted }, state.ClassOutputMissing},
		{stop(coordinator.ErrTimeout), done, ""},
		{stop(coordinator.ErrShutdown), done, ""},
		{stop(coordinator.ErrCanceled), done, state.ClassCanceled},
		{stop(coordinator.ErrTimeout), complains("Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"), state.ClassTimeout},
		{stop(errIdle), none, state.ClassStalled},
		{ended{lost: true}, done, ""},
		{ended{lost: true}, none, state.ClassInterrupted},
		{stderr(1, "Error: Not logged in. Please run codex login"), none, state.ClassAuth},
		{stderr(1, "429 Too Many Requests"), none, state.ClassExit},
		{stderr(2, "error: unexpected argument '-a' found\n\nUsage: codex exec\n"), none, state.ClassExit},
		{stderr(127, "/usr/bin/env: 'node': No such file or directory\n"), none, state.ClassAgentMissing},
		{stderr(1, "Error: x\n"), func(d *codexDecoder) { d.events = 2 }, state.ClassExit},
	} {
		d := newCodexDecoder(coordinator.Turn{}, quiet).(*codexDecoder)
		c.d(d)
		if v := classify(c.e, d, testNow); v.class != c.class || v.msg == "" && v.class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
}

// An agent that writes about errors has none.
func TestAnswerIsNoError(t *testing.T) {
	answer := `Error: 401 Unauthorized, usage limit, try again at 3:47 AM, no rollout found`
	text, err := json.Marshal(answer)
	must(t, err)
	st := newStream(codexEars(), quiet)
	st.feed([]byte(`{"type":"item.completed","item":{"type":"error","message":"usage limit"}}` + "\n"))
	st.feed([]byte(`{"type":"item.completed","item":{"type":"agent_message","text":` + string(text) + `}}` + "\n"))
	st.feed([]byte(`{"type":"turn.completed","usage":{"input_tokens":1e99}}`))
	st.end()
	if v := classify(ended{started: true}, st.decoder, testNow); v.class != "" || st.decoder.said().answer != answer {
		t.Errorf("%+v, %+v", v, st.decoder)
	}
	if v := classify(ended{started: true, end: endReport{Exit: 1}}, st.decoder, testNow); v.class != state.ClassExit {
		t.Errorf("%+v", v)
	}
}

func TestRetryAt(t *testing.T) {
	zone := time.FixedZone("test", 2*60*60)
	now := time.Date(2026, 11, 21, 15, 30, 10, 0, zone)
	day := func(y int, m time.Month, d, h, min int) time.Time { return time.Date(y, m, d, h, min, 0, 0, zone) }
	for _, c := range []struct {
		msg  string
		want time.Time
	}{
		{"or try again at 3:47 PM.", day(2026, 11, 21, 15, 47)},
		{"or try again at 3:47 AM.", day(2026, 11, 22, 3, 47)},
		{"Try again at 12:05 AM.", day(2026, 11, 22, 0, 5)},
		{"try again at 12:30 PM", day(2026, 11, 22, 12, 30)},
		{"try again at 3:30 PM", day(2026, 11, 21, 15, 30)}, // ten seconds ago
		{"try again at Nov 25th, 2026 3:47 AM.", day(2026, 11, 25, 3, 47)},
		{"try again at Jan 1st, 2027 11:00 PM.", day(2027, 1, 1, 23, 0)},
		{"try again in 2 hours 5 minutes.", now.Add(125 * time.Minute)},
		{"Try again in 3 days 2 hours 1 minute.", now.Add(74*time.Hour + time.Minute)},
		{"try again in 2 hours, 5 minutes and 3 seconds", now.Add(2*time.Hour + 5*time.Minute + 3*time.Second)},
		{"Please try again in 1.5s. Visit x", now.Add(1500 * time.Millisecond)},
		{"Please try again in 28ms", now.Add(28 * time.Millisecond)},
		{"try again in less than a minute", now.Add(time.Minute)},
		{"try again in an hour", now.Add(time.Hour)},
		{"try again in 1m30s.", now.Add(90 * time.Second)},
		{"try again later.", time.Time{}},
		{"try again in a moment", time.Time{}},
		{"try again in 0 seconds", time.Time{}},
		{"try again in 99999999999999999999 days", now.Add(365 * 24 * time.Hour)},
		{"", time.Time{}},
	} {
		if got := retryAt(c.msg, now); !got.Equal(c.want) {
			t.Errorf("%q: %v, want %v", c.msg, got, c.want)
		}
	}
}

func TestDecoder(t *testing.T) {
	const a, b = "01a1fbfd-004f-7b52-a66b-d51066fa7872", "01a1fbfd-004f-7b52-a66b-d51066fa7873"
	d := newCodexDecoder(coordinator.Turn{}, quiet).(*codexDecoder)
	for _, l := range []string{
		"", "not json", `{"no":"type"}`, `[]`, `{"type":"thread.started","thread_id":"--last"}`,
		`{"type":"thread.started","thread_id":"` + a + `"}`, `{"type":"thread.started","thread_id":"` + b + `"}`,
		`{"type":"item.completed","item":{"type":"agent_message","text":"one"}}`,
		`{"type":"item.completed","item":{"type":"agent_message","text":7}}`,
		`{"type":"item.updated","item":{"type":"agent_message","text":"no"}}`,
		`{"type":"of the future","message":["x"]}`,
	} {
		d.line([]byte(l))
	}
	if d.session != a || d.answer != "" || d.bad != 3 || d.end != noTerminal {
		t.Errorf("%+v", d)
	}
}

// Long lines arrive whole wherever the pieces are cut, and those that do not
// matter are not kept.
func TestLongLines(t *testing.T) {
	answer := strings.Repeat("é", 3<<19) // 3 MiB
	line := fmt.Sprintf(`{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":%q}}`+"\n", answer)
	noise := `{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"` + strings.Repeat("x", 70<<20) + `"}}` + "\n"
	tooLong := `{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"` + strings.Repeat("x", 70<<20) + `"}}` + "\n"
	end := `{"type":"turn.completed","usage":{}}`
	for _, size := range []int{1000, 64 << 10, 100 << 20} {
		st := newStream(codexEars(), quiet)
		data := []byte(line + noise + tooLong + end)
		for len(data) > 0 {
			n := min(size, len(data))
			st.feed(data[:n])
			data = data[n:]
		}
		st.end()
		if st.decoder.said().answer != answer || st.decoder.said().end != turnCompleted || st.lines.skipped != 1 {
			t.Errorf("pieces of %d: answer %d bytes, %v, %d skipped", size, len(st.decoder.said().answer), st.decoder.said().end, st.lines.skipped)
		}
	}
}

func TestHeadValue(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"user","message":"xxxx`:                       "user",
		`{"a":{"type":"no"},"b":[1,{}],"type":"yes","c":`:      "yes",
		`{"message":"` + strings.Repeat("x", 5000) + `","type`: "",
		`{"type":7}`: "",
		`{"a":1}`:    "",
		`["type"]`:   "",
		``:           "",
	} {
		if got, ok := headValue([]byte(in), "type"); got != want || ok != (want != "") {
			t.Errorf("%.40s: %q, %v", in, got, ok)
		}
	}
	if got, ok := headValue([]byte(`{"item":{"id":"i","type":"agent_message","text":"xx`), "item", "type"); got != "agent_message" || !ok {
		t.Errorf("%q, %v", got, ok)
	}
}

// An agent that does nothing but wait for the network is stopped, and one that
// goes on in between is not.
func TestStuck(t *testing.T) {
	st := newStream(codexEars(), quiet)
	at := func(s int) time.Time { return testNow.Add(time.Duration(s) * time.Second) }
	waits := func() { st.feed([]byte(`{"type":"error","message":"Reconnecting... waiting for network (x)"}` + "\n")) }
	for i, c := range []struct {
		feed func()
		at   int
		want bool
	}{
		{nil, 0, false},
		{waits, 10, false},
		{nil, 69, false},
		{waits, 70, true},
		{func() { st.feed([]byte(`{"type":"item.started"}` + "\n")) }, 80, false},
		{waits, 200, false},
		{waits, 259, false},
		{nil, 260, true},
	} {
		if c.feed != nil {
			c.feed()
		}
		if err := st.stuck(at(c.at)); errors.Is(err, errUnreachable) != c.want {
			t.Errorf("step %d: %v", i, err)
		}
	}
	st.patience = time.Second
	if err := st.stuck(at(202)); err == nil {
		t.Error("patience is not heeded")
	}
	if v := classify(ended{started: true, cause: st.stuck(at(300))}, st.decoder, testNow); v.class != state.ClassNetwork || !strings.Contains(v.msg, "waiting for network") {
		t.Errorf("%+v", v)
	}
}

func TestLongAnswerIsCut(t *testing.T) {
	d := heard{report: quiet}
	d.message(strings.Repeat("é", maxAnswer))
	if !d.cut || len(d.answer) != maxAnswer || strings.HasSuffix(d.answer, "\xc3") {
		t.Errorf("%d bytes, cut %v", len(d.answer), d.cut)
	}
}

// What an agent reports as an error may be the page of a stranger's server.
func TestLongErrorIsCut(t *testing.T) {
	b := newBench(t)
	c := b.fakeCodex(`printf '{"type":"turn.failed","error":{"message":"'; head -c 600000 /dev/zero | tr '\0' x; echo '"}}'; exit 1`)
	if out := c.Run(t.Context(), b.turn(""), quiet); out.Class != state.ClassExit || len(out.Error) != maxError {
		t.Errorf("class %q, %d bytes", out.Class, len(out.Error))
	}
}

// 100 MB of output cost no more than the buffers.
func TestMemoryOfLargeOutput(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	row := `{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"` + strings.Repeat("x", 100<<10) + `"}}`
	long := `{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"`
	name := filepath.Join(b.dir, "row")
	must(t, os.WriteFile(name, []byte(row+"\n"), 0o600))
	st := &peak{stream: newStream(codexEars(), quiet)}
	script := `for i in $(seq 500); do cat ` + name + `; done; printf %s '` + long + `'; head -c 50000000 /dev/zero | tr '\0' x; echo '"}}'
		echo '{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}'; echo '{"type":"turn.completed"}'`
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.Sys
	s := spec{turn: turn, argv: []string{"/bin/bash", "-c", script}, env: b.demo.agentEnv(turn)}
	e := b.demo.supervise(t.Context(), s, st)
	runtime.ReadMemStats(&m)
	if v := classify(e, st.decoder, testNow); v.class != "" || st.decoder.said().answer != "ok" || st.bytes < 100e6 {
		t.Errorf("%+v, answer %q after %d bytes", v, st.decoder.said().answer, st.bytes)
	}
	if grown := int64(m.Sys) - int64(before); grown > 16<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
}

type peak struct {
	*stream
	bytes int64
}

func (p *peak) feed(b []byte) {
	p.bytes += int64(len(b))
	p.stream.feed(b)
}

func FuzzCodexEvents(f *testing.F) {
	f.Add([]byte(`{"type":"error","message":"usage limit, try again in 99999999999999999999 days at 99:99 PM"}`), 3, 1, "")
	fuzzEvents(f, "codex")
}

func FuzzClaudeEvents(f *testing.F) {
	f.Add([]byte(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":9223372036854775807}}`), 3, 1, "")
	f.Add([]byte(`{"type":"result","subtype":"success","model_usage_since_last_result":{"a":null,"b":7},"permission_denials":[7,null]}`), 3, 0, "")
	fuzzEvents(f, "claude")
}

func FuzzGeminiEvents(f *testing.F) {
	f.Add([]byte(`{"type":"result","status":"error","error":{"message":"Suggested retry after 99999999999999999999s"}}`), 3, 173, "")
	f.Add([]byte(`{"type":"result","status":"error","error":[{}]}`), 3, 1, "\x1b[31mError resuming session: x\x1b[0m\n")
	fuzzEvents(f, "gemini")
}

// fuzzEvents checks what must hold for whatever a CLI writes, beginning with what
// the real ones have written.
func fuzzEvents(f *testing.F, tool string) {
	names, err := filepath.Glob("testdata/" + tool + "/*.jsonl")
	must(f, err)
	for i, name := range names {
		data, err := os.ReadFile(name)
		must(f, err)
		f.Add(data, i+1, 0, "Error: no rollout found\n")
		f.Add(data[:len(data)*2/3], 7, 1, "")
	}
	f.Fuzz(func(t *testing.T, data []byte, cut, exit int, stderr string) {
		whole := newStream(ears(tool, coordinator.Turn{}, quiet), quiet)
		whole.feed(data)
		whole.end()
		pieces := newStream(ears(tool, coordinator.Turn{}, quiet), quiet)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), max(cut, 1))
			pieces.feed(rest[:n])
			rest = rest[n:]
		}
		pieces.end()
		e := ended{started: true, end: endReport{Exit: exit}, stderr: []byte(stderr)}
		v, w := classify(e, whole.decoder, testNow), classify(e, pieces.decoder, testNow)
		h, g := whole.decoder.said(), pieces.decoder.said()
		if v != w || h.answer != g.answer || h.session != g.session || h.usage != g.usage || h.kept != g.kept {
			t.Fatalf("pieces of %d make a difference: %+v and %+v", cut, v, w)
		}
		if h.session != "" && !isUUID(h.session) {
			t.Fatalf("session %q", h.session)
		}
		if u := h.usage; u.InputTokens < 0 || u.OutputTokens < 0 || !(u.CostUSD >= 0) {
			t.Fatalf("usage %+v", u)
		}
		success := exit == 0 && h.end == turnCompleted && h.answered()
		if (v.class == "") != success {
			t.Fatalf("class %q with exit %d, %v, answer %q", v.class, exit, h.end, h.answer)
		}
		if v.class != "" && v.msg == "" {
			t.Fatalf("verdict %+v", v)
		}
		if !v.retryAt.IsZero() && v.class != state.ClassRateLimited {
			t.Fatalf("retry at %v for %q", v.retryAt, v.class)
		}
	})
}

// With a schema, the answer of claude is the object that it has checked.
func TestClaudeStructuredOutput(t *testing.T) {
	for structured, want := range map[string]string{`{"findings":[]}`: `{"findings":[]}`, "null": "It is good."} {
		d := newClaudeDecoder(coordinator.Turn{}, func(coordinator.Event) {})
		d.line([]byte(`{"type":"result","subtype":"success","is_error":false,"result":"It is good.","structured_output":` + structured + `}`))
		if got := d.said().answer; got != want {
			t.Errorf("the answer is %q, want %q", got, want)
		}
	}
}
