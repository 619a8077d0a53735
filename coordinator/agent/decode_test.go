package agent

import (
	"bytes"
	"encoding/json"
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

// recorded plays a recorded run of the real codex through decoder and table.
func recorded(t testing.TB, name string) (*stream, verdict) {
	t.Helper()
	base := filepath.Join("testdata", "codex", name)
	stdout, err := os.ReadFile(base + ".jsonl")
	must(t, err)
	stderr, err := os.ReadFile(base + ".stderr")
	must(t, err)
	data, err := os.ReadFile(base + ".exit")
	must(t, err)
	var exit struct {
		Exit   *int
		Signal string
	}
	must(t, json.Unmarshal(data, &exit))
	e := ended{started: true, stderr: stderr, end: endReport{Exit: -1}}
	if exit.Exit != nil {
		e.end.Exit = *exit.Exit
	}
	if exit.Signal == "SIGTERM" {
		e.end.Signal = 15
	}
	st := newStream(func(coordinator.Event) {})
	st.feed(stdout)
	st.lines.end()
	return st, classify(e, &st.decoder, testNow)
}

var testNow = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

func TestRecordedStreams(t *testing.T) {
	const first, busy = "01a1fbfd-004f-7b52-a66b-d51066fa7872", "already has an active writer"
	for _, c := range []struct {
		name    string
		class   state.Class
		session string // "" when codex said none; "*" for any
		answer  string // part of it
		msg     string // part of it
		input   int64
	}{
		{"first_turn", "", first, `ECHO #1 last="hello alpha"`, "", 110},
		{"resume_second_turn", "", first, `all=[hello alpha ;; hello beta]`, "", 230},
		{"resume_unknown_name", "", "*", "ECHO #1", "", 110},
		{"reasoning", "", "*", "ECHO #1", "", 110},
		{"tool_write_patch", "", "*", "TOOL DONE", "", 220},
		{"tool_fail", "", "*", "TOOL DONE", "", 220},
		{"tool_default_sandbox", "", "*", "TOOL DONE", "", 220},
		{"err_trunc_once", "", "*", "ECHO #1", "", 110},
		{"err_401", state.ClassAuth, "*", "", "401 Unauthorized", 0},
		{"err_429_always", state.ClassRateLimited, "*", "", "429", 0},
		{"err_429_usage_limit", state.ClassRateLimited, "*", "", "usage limit", 0},
		{"err_500", state.ClassNetwork, "*", "", "high demand", 0},
		{"err_trunc_noretry", state.ClassNetwork, "*", "", "stream disconnected", 0},
		{"err_stream_failed_ctx", state.ClassExit, "*", "", "context window", 0},
		{"kill_TERM_streaming", state.ClassExit, "*", "", "terminated", 0},
		{"conc_B", state.ClassSessionBusy, "", "", busy, 0},
		{"resume_unknown", state.ClassSessionLost, "", "", "no rollout found", 0},
	} {
		st, v := recorded(t, c.name)
		d := &st.decoder
		if v.class != c.class || !strings.Contains(v.msg, c.msg) || !strings.Contains(d.answer, c.answer) || d.usage.InputTokens != c.input {
			t.Errorf("%s: %+v, answer %q, usage %+v", c.name, v, d.answer, d.usage)
		}
		if c.session == "*" && !isUUID(d.session) || c.session != "*" && d.session != c.session {
			t.Errorf("%s: session %q", c.name, d.session)
		}
		if d.bad != 0 {
			t.Errorf("%s: %d lines were not understood", c.name, d.bad)
		}
	}
	if _, v := recorded(t, "err_429_usage_limit"); !v.retryAt.Equal(time.Date(2026, 11, 21, 3, 47, 0, 0, time.UTC)) {
		t.Errorf("try again at %v", v.retryAt)
	}
	names, err := filepath.Glob("testdata/codex/*.jsonl")
	if err != nil || len(names) != 17 {
		t.Errorf("%d recorded streams, %v: name each in the table", len(names), err)
	}
}

// The rows of the table that no recording has.
func TestClassify(t *testing.T) {
	exit := func(n int) ended { return ended{started: true, end: endReport{Exit: n}} }
	stop := func(err error) ended {
		return ended{started: true, cause: err, end: endReport{Exit: -1, Signal: 15}}
	}
	done := func(d *decoder) { d.events, d.end, d.answer = 3, turnCompleted, "42" }
	fail := func(msg string) func(*decoder) {
		return func(d *decoder) { d.events, d.end, d.failure = 3, turnFailed, msg }
	}
	complains := func(msg string) func(*decoder) {
		return func(d *decoder) { d.line([]byte(`{"type":"error","message":"` + msg + `"}`)) }
	}
	none := func(*decoder) {}
	stderr := func(n int, text string) ended {
		e := exit(n)
		e.stderr = []byte(text)
		return e
	}
	for i, c := range []struct {
		e     ended
		d     func(*decoder)
		class state.Class
	}{
		{exit(0), done, ""},
		{exit(3), done, state.ClassExit},
		{ended{started: true, end: endReport{Exit: -1, Signal: 9}}, done, state.ClassExit},
		{exit(0), none, state.ClassExit},
		{exit(0), func(d *decoder) { d.end, d.answer = turnCompleted, " \n" }, state.ClassOutputMissing},
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
		{stop(errHung), func(d *decoder) { d.end = turnCompleted }, state.ClassOutputMissing},
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
		{stderr(1, "Error: x\n"), func(d *decoder) { d.events = 2 }, state.ClassExit},
	} {
		var d decoder
		c.d(&d)
		if v := classify(c.e, &d, testNow); v.class != c.class || v.msg == "" && v.class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
}

// An agent that writes about errors has none.
func TestAnswerIsNoError(t *testing.T) {
	answer := `Error: 401 Unauthorized, usage limit, try again at 3:47 AM, no rollout found`
	text, err := json.Marshal(answer)
	must(t, err)
	st := newStream(func(coordinator.Event) {})
	st.feed([]byte(`{"type":"item.completed","item":{"type":"error","message":"usage limit"}}` + "\n"))
	st.feed([]byte(`{"type":"item.completed","item":{"type":"agent_message","text":` + string(text) + `}}` + "\n"))
	st.feed([]byte(`{"type":"turn.completed","usage":{"input_tokens":1e99}}`))
	st.lines.end()
	if v := classify(ended{started: true}, &st.decoder, testNow); v.class != "" || st.decoder.answer != answer {
		t.Errorf("%+v, %+v", v, &st.decoder)
	}
	if v := classify(ended{started: true, end: endReport{Exit: 1}}, &st.decoder, testNow); v.class != state.ClassExit {
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
	var d decoder
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
		st := newStream(func(coordinator.Event) {})
		data := []byte(line + noise + tooLong + end)
		for len(data) > 0 {
			n := min(size, len(data))
			st.feed(data[:n])
			data = data[n:]
		}
		st.lines.end()
		if st.decoder.answer != answer || st.decoder.end != turnCompleted || st.lines.skipped != 1 {
			t.Errorf("pieces of %d: answer %d bytes, %q, %d skipped", size, len(st.decoder.answer), st.decoder.end, st.lines.skipped)
		}
	}
}

func TestLongAnswerIsCut(t *testing.T) {
	var d decoder
	d.message(strings.Repeat("é", maxAnswer))
	if !d.cut || len(d.answer) != maxAnswer || strings.HasSuffix(d.answer, "\xc3") {
		t.Errorf("%d bytes, cut %v", len(d.answer), d.cut)
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
	st := &peak{stream: newStream(func(coordinator.Event) {})}
	script := `for i in $(seq 500); do cat ` + name + `; done; printf %s '` + long + `'; head -c 50000000 /dev/zero | tr '\0' x; echo '"}}'
		echo '{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}'; echo '{"type":"turn.completed"}'`
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.Sys
	s := spec{turn: turn, argv: []string{"/bin/bash", "-c", script}, env: b.demo.agentEnv(turn)}
	e := b.demo.supervise(t.Context(), s, st)
	runtime.ReadMemStats(&m)
	if v := classify(e, &st.decoder, testNow); v.class != "" || st.decoder.answer != "ok" || st.bytes < 100e6 {
		t.Errorf("%+v, answer %q after %d bytes", v, st.decoder.answer, st.bytes)
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
	names, err := filepath.Glob("testdata/codex/*.jsonl")
	must(f, err)
	for i, name := range names {
		data, err := os.ReadFile(name)
		must(f, err)
		f.Add(data, i+1, 0, "Error: no rollout found\n")
		f.Add(data[:len(data)*2/3], 7, 1, "")
	}
	f.Add([]byte(`{"type":"error","message":"usage limit, try again in 99999999999999999999 days at 99:99 PM"}`), 3, 1, "")
	f.Fuzz(func(t *testing.T, data []byte, cut, exit int, stderr string) {
		whole := newStream(func(coordinator.Event) {})
		whole.feed(data)
		whole.lines.end()
		pieces := newStream(func(coordinator.Event) {})
		for rest := data; len(rest) > 0; {
			n := min(len(rest), max(cut, 1))
			pieces.feed(rest[:n])
			rest = rest[n:]
		}
		pieces.lines.end()
		e := ended{started: true, end: endReport{Exit: exit}, stderr: []byte(stderr)}
		v, w := classify(e, &whole.decoder, testNow), classify(e, &pieces.decoder, testNow)
		if v != w || whole.decoder.answer != pieces.decoder.answer || whole.decoder.session != pieces.decoder.session {
			t.Fatalf("pieces of %d make a difference: %+v and %+v", cut, v, w)
		}
		if s := whole.decoder.session; s != "" && !isUUID(s) {
			t.Fatalf("session %q", s)
		}
		success := exit == 0 && whole.decoder.end == turnCompleted && whole.decoder.answered()
		if (v.class == "") != success {
			t.Fatalf("class %q with exit %d, %q, answer %q", v.class, exit, whole.decoder.end, whole.decoder.answer)
		}
		if v.class != "" && v.msg == "" || bytes.ContainsRune([]byte(v.class), '\n') {
			t.Fatalf("verdict %+v", v)
		}
		if !v.retryAt.IsZero() && v.class != state.ClassRateLimited {
			t.Fatalf("retry at %v for %q", v.retryAt, v.class)
		}
	})
}
