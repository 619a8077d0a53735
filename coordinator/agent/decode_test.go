package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

var testNow = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// The rows of the table that no recording has.
func TestClassify(t *testing.T) {
	exit := func(n int) ended { return ended{started: true, end: endReport{Exit: n}} }
	killed := func(s syscall.Signal) ended { return ended{started: true, end: endReport{Exit: -1, Signal: int(s)}} }
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
		{killed(syscall.SIGKILL), done, ""},
		{killed(syscall.SIGKILL), none, state.ClassStalled},
		{killed(syscall.SIGSEGV), func(d *codexDecoder) { d.events = 2 }, state.ClassStalled},
		{killed(syscall.SIGILL), func(d *codexDecoder) { d.events = 2 }, state.ClassStalled},
		{killed(syscall.SIGXCPU), none, state.ClassExit}, // the run's own limit
		{killed(syscall.SIGKILL), fail("unexpected status 401 Unauthorized"), state.ClassAuth},
		{exit(137), none, state.ClassStalled}, // a shell in front of it says so
		{exit(143), func(d *codexDecoder) { d.events = 2 }, state.ClassStalled},
		{exit(130), none, state.ClassExit},
		{exit(0), none, state.ClassExit},
		{exit(0), func(d *codexDecoder) { d.end, d.answer = turnCompleted, " \n" }, state.ClassOutputMissing},
		{exit(0), fail("unexpected status 503 Service Unavailable: x"), state.ClassNetwork},
		{exit(1), fail(""), state.ClassExit},
		{exit(1), fail("Missing environment variable: `FAKE_KEY`."), state.ClassAuth},
		{exit(1), fail("unexpected status 403 Forbidden: x"), state.ClassExit},
		{exit(1), fail("unexpected status 402 Payment Required: x"), state.ClassAuth},
		{exit(1), fail("unexpected status 404 Not Found: rate limit, 429, unauthorized"), state.ClassExit},
		{exit(1), fail(`{"error":"your prompt about the usage limit is refused"}`), state.ClassExit},
		{exit(1), fail("Quota exceeded. Check your plan and billing details."), state.ClassAuth},
		{exit(1), fail("You exceeded your rate limit: check your plan."), state.ClassAuth},
		{exit(1), fail("stream disconnected before completion: Rate limit reached for gpt-5: Limit 3. Please try again in 20s. You can increase your rate limit by adding a payment method at https://platform.openai.com/account/billing."), state.ClassRateLimited},
		{exit(1), fail("Your account is not active, please check your billing details."), state.ClassAuth},
		{exit(1), fail("You've hit your usage limit. Visit https://x/settings/usage to purchase more credits or try again at 3:47 AM."), state.ClassRateLimited},
		{exit(1), fail("stream disconnected before completion: Incomplete response returned, reason: content_filter"), state.ClassExit},
		{exit(1), fail("Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying."), state.ClassContextFull},
		{exit(1), fail(`{"error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}`), state.ClassContextFull},
		{exit(1), fail(`{"error":{"code":"invalid_prompt","message":"context_length_exceeded, it says"}}`), state.ClassExit},
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
		{stderr(1, "Error: thread/resume: thread/resume failed: rollout at /home/u/429/x.jsonl is empty (code -32603)\n\nStack backtrace:\n"), none, state.ClassSessionLost},
		{stderr(1, "Error: thread/resume: thread/resume failed: failed to read session metadata /x.jsonl: stream did not contain valid UTF-8 (code -32603)"), none, state.ClassSessionLost},
		{stderr(1, "Error: thread/resume: thread/resume failed: stream did not contain valid UTF-8 (code -32603)"), none, state.ClassSessionLost},
		{stderr(1, "Error: thread/fork: thread/fork failed: invalid paginated history lineage for 0: missing source rollout (code -32600)"), none, state.ClassSessionLost},
		{stderr(1, "Error: thread/fork: thread/fork failed: rollout at /x.jsonl does not start with session metadata (code -32603)"), none, state.ClassSessionLost},
		{stderr(1, "Error: thread/resume: thread/resume failed: thread 0 already has an active writer (code -32600)"), none, state.ClassSessionBusy},
		{stderr(1, "429 Too Many Requests"), none, state.ClassExit},
		{stderr(2, "error: unexpected argument '-a' found\n\nUsage: codex exec\n"), none, state.ClassExit},
		{stderr(127, "/usr/bin/env: 'node': No such file or directory\n"), none, state.ClassAgentMissing},
		{stderr(126, "/usr/bin/env: 'node': Permission denied\n"), none, state.ClassAgentMissing},
		{stderr(1, "Error: x\n"), func(d *codexDecoder) { d.events = 2 }, state.ClassExit},
	} {
		d := newCodexDecoder(coordinator.Turn{}, quiet).(*codexDecoder)
		c.d(d)
		if v := classify(c.e, d, testNow); v.class != c.class || v.msg == "" && v.class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
}

// What a program says of its end is its reason, not the usage that follows it.
func TestErrorTextKeepsTheReason(t *testing.T) {
	for text, want := range map[string]string{
		"error: unexpected argument '--nope' found\n\n  tip: to pass '--nope' as a value, use '-- --nope'\n\nUsage: codex exec\n\nFor more information, try '--help'.\n": "unexpected argument '--nope' found",
		"Error loading config.toml:\n/home/u/.codex/config.toml:11:9: extra `=`, expected nothing\n   |\n11 | model = = 3\n   |         ^\n":                             "Error loading config.toml: /home/u/.codex/config.toml:11:9: extra `=`, expected nothing",
		"Error loading config.toml: invalid type: integer `3`, expected a string\nin `model`\n":                                                                          "Error loading config.toml: invalid type: integer `3`, expected a string",
		"Error: first\nError: last\n\nStack backtrace:\n   0: <unknown>\n":                                                                                               "last",
		"something odd\nFor more information, try '--help'.\n":                                                                                                           "something odd",
		"one\ntwo\n": "two",
		"":           "",
	} {
		if got, _ := lastError([]byte(text)); got != want {
			t.Errorf("%q\ngave %q, want %q", text, got, want)
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

// A fork is told of when it got anywhere, by a message or a tool, and not before; an agent
// that resumed after all has forked nothing.
func TestForkIsToldOfWhenItGotAnywhere(t *testing.T) {
	const parent, fork = "01a1fbfd-004f-7b52-a66b-d51066fa7873", someUUID
	codex := []string{`{"type":"thread.started","thread_id":"` + fork + `"}`, `{"type":"turn.started"}`}
	claude := []string{`{"type":"system","subtype":"init","session_id":"` + fork + `"}`}
	for _, c := range []struct {
		tool   string
		begin  []string
		line   string
		forked bool
	}{
		{"codex", codex, `{"type":"error","message":"Reconnecting... 1/5 (x)"}`, false},
		{"codex", codex, `{"type":"item.completed","item":{"type":"error","message":"a warning"}}`, false},
		{"codex", codex, `{"type":"item.completed","item":{"type":"reasoning","text":"hm"}}`, false},
		{"codex", codex, `{"type":"turn.failed","error":{"message":"429"}}`, false},
		{"codex", codex, `{"type":"item.started","item":{"type":"command_execution","command":"ls"}}`, true},
		{"codex", codex, `{"type":"item.completed","item":{"type":"agent_message","text":"so"}}`, true},
		{"codex", codex, `{"type":"turn.completed"}`, true},
		{"claude", claude, `{"type":"system","subtype":"api_retry","error":"rate_limit","error_status":429}`, false},
		{"claude", claude, `{"type":"assistant","error":"rate_limit","message":{"content":[{"type":"text","text":"API Error"}]}}`, false},
		{"claude", claude, `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"}]}}`, false},
		{"claude", claude, `{"type":"assistant","message":{"content":[{"type":"text","text":"so"}]}}`, true},
		{"claude", claude, `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}`, true},
		{"claude", claude, `{"type":"result","subtype":"success","is_error":false,"result":"42"}`, true},
	} {
		for _, from := range []string{parent, fork} { // the second one was resumed
			var told []coordinator.Event
			d := ears(c.tool, coordinator.Turn{Session: from, Fork: true}, func(e coordinator.Event) {
				if e.Session != "" {
					told = append(told, e)
				}
			})
			for _, l := range append(c.begin, c.line) {
				d.line([]byte(l))
			}
			want := []coordinator.Event{{Session: fork, Forked: from == parent}}
			if from == parent && !c.forked {
				want = nil
			}
			if !slices.Equal(told, want) || (d.said().session != "") != (want != nil) {
				t.Errorf("%s from %s: %s told of %v, session %q", c.tool, from, c.line, told, d.said().session)
			}
		}
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
	t.Parallel()
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

// What an agent reported last decides when a silent one is stopped, and as what; whatever
// shows that it got on makes it a silent one like any other.
func TestLastErrorOfASilentAgent(t *testing.T) {
	const limited, network = state.ClassRateLimited, state.ClassNetwork
	codex := func(msg string) string { return `{"type":"error","message":"Reconnecting... 1/5 (` + msg + `)"}` }
	claude := func(code string, status int) string {
		return fmt.Sprintf(`{"type":"system","subtype":"api_retry","error":%q,"error_status":%d}`, code, status)
	}
	const limit429 = "exceeded retry limit, last status: 429 Too Many Requests"
	for i, c := range []struct {
		tool   string
		lines  []string
		stderr string
		after  int         // seconds until it is stopped; 0: never
		idle   state.Class // when the idle limit stops it
	}{
		{"codex", []string{codex(limit429)}, "", 120, limited},
		{"codex", []string{codex(limit429), `{"type":"item.completed","item":{"type":"error","message":"a warning"}}`}, "", 120, limited},
		{"codex", []string{codex(limit429), `{"type":"item.completed","item":{"type":"reasoning","text":"hm"}}`}, "", 0, state.ClassStalled},
		{"codex", []string{codex(limit429), `{"type":"item.started","item":{"type":"command_execution"}}`}, "", 0, state.ClassStalled},
		{"codex", []string{`{"type":"item.started","item":{"type":"command_execution"}}`, codex(limit429)}, "", 120, limited},
		{"codex", []string{codex(limit429), codex("stream disconnected before completion: x")}, "", 0, network},
		{"codex", []string{codex("waiting"), `{"type":"error","message":"Reconnecting... waiting for network (x)"}`}, "", 60, network},
		{"codex", []string{codex("unexpected status 401 Unauthorized: x")}, "", 0, state.ClassAuth},
		{"codex", nil, "Attempt 1 failed with status 429. Retrying with backoff...\n", 0, state.ClassStalled},
		{"claude", []string{claude("rate_limit", 429)}, "", 120, limited},
		{"claude", []string{claude("overloaded", 529)}, "", 0, network},
		{"claude", []string{claude("rate_limit", 429), `{"type":"system","subtype":"thinking_tokens"}`}, "", 0, state.ClassStalled},
		{"claude", []string{claude("rate_limit", 429), `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}`}, "", 0, state.ClassStalled},
		{"claude", []string{claude("rate_limit", 429), `{"type":"user","message":{}}`}, "", 0, state.ClassStalled},
		{"gemini", nil, "Attempt 1 failed with status 429. Retrying with backoff... _ApiError: {\"error\":{}}\n    at x\n", 120, limited},
		{"gemini", nil, "Attempt 1 failed with 429 error (no Retry-After header). Retrying with backoff... x\n", 120, limited},
		{"gemini", nil, "Attempt 2 failed with status 503. Retrying with backoff... x\n", 0, network},
		{"gemini", nil, "Attempt 2 failed. Retrying with backoff... fetch failed\n", 0, network},
		{"gemini", nil, "the model wrote: Attempt 1 failed with status 429\n", 0, state.ClassStalled},
	} {
		st := newStream(ears(c.tool, coordinator.Turn{}, quiet), quiet)
		for _, l := range c.lines {
			st.feed([]byte(l + "\n"))
		}
		st.aside([]byte(c.stderr))
		for s := range 600 {
			err := st.stuck(testNow.Add(time.Duration(s) * time.Second))
			if (err != nil) != (c.after > 0 && s >= c.after) {
				t.Errorf("row %d: after %d s %v", i, s, err)
				break
			}
			if err != nil {
				if v := classify(ended{started: true, cause: err}, st.decoder, testNow); v.class != c.idle {
					t.Errorf("row %d: stopped as %+v", i, v)
				}
				break
			}
		}
		if v := classify(ended{started: true, cause: errIdle}, st.decoder, testNow); v.class != c.idle || v.msg == "" {
			t.Errorf("row %d: when it is idle %+v", i, v)
		}
	}
	st := newStream(ears("gemini", coordinator.Turn{}, quiet), quiet)
	st.aside([]byte("Attempt 1 failed with status 429. Retrying with backoff... x\n"))
	st.feed([]byte(`{"type":"message","role":"assistant","content":"so"}` + "\n"))
	if st.decoder.said().failing {
		t.Error("gemini has got on")
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
