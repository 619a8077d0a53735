package codex

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/state"
)

// judge returns what a decoder and the table make of two outputs and an exit code.
func judge(d agent.Decoder, stdout, stderr string, exit int) agent.Verdict {
	for line := range strings.Lines(stdout) {
		d.Line([]byte(strings.TrimSuffix(line, "\n")))
	}
	for line := range strings.Lines(stderr) {
		d.Aside([]byte(strings.TrimSuffix(line, "\n")))
	}
	d.Close()
	end := hold.EndReport{Exit: max(exit, -1), Signal: max(-exit, 0)}
	return agent.Classify(gate.Result{Started: true, Stderr: []byte(stderr), End: end}, d, testNow)
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
		{"Please try again in 1.5s. Visit x", now.Add(1500 * time.Millisecond)},
		{"Please try again in 28ms", now.Add(28 * time.Millisecond)},
		{"try again later.", time.Time{}},
		{"try again in a moment", time.Time{}},
		{"try again in 1m30s.", now.Add(90 * time.Second)},
		{"Try again in 20 seconds", now.Add(20 * time.Second)},
		{"try again in 0 seconds", time.Time{}},
		{"try again in 99999999999999999999s", time.Time{}},
		{"try again in 2 hours 5 minutes.", time.Time{}},
		{"", time.Time{}},
	} {
		if got := retryAt(c.msg, now); !got.Equal(c.want) {
			t.Errorf("%q: %v, want %v", c.msg, got, c.want)
		}
	}
}

func TestDecoder(t *testing.T) {
	const a, b = "01a1fbfd-004f-7b52-a66b-d51066fa7872", "01a1fbfd-004f-7b52-a66b-d51066fa7873"
	d := NewDecoder(task.Turn{}, quiet).(*decoder)
	for _, l := range []string{
		"", "not json", `{"no":"type"}`, `[]`, `{"type":"thread.started","thread_id":"--last"}`,
		`{"type":"thread.started","thread_id":"` + a + `"}`, `{"type":"thread.started","thread_id":"` + b + `"}`,
		`{"type":"item.completed","item":{"type":"agent_message","text":"one"}}`,
		`{"type":"item.completed","item":{"type":"agent_message","text":7}}`,
		`{"type":"item.updated","item":{"type":"agent_message","text":"no"}}`,
		`{"type":"of the future","message":["x"]}`,
	} {
		d.Line([]byte(l))
	}
	if d.Session != a || d.Answer != "" || d.Bad != 3 || d.End != agent.NoTerminal {
		t.Errorf("%+v", d)
	}
}

// FuzzWindows: what a line of a thread's file tells can be read back, with the time at which it told it.
func FuzzWindows(f *testing.F) {
	const line = `{"timestamp":"2026-01-05T12:00:00.5Z","payload":{"rate_limits":{"primary":{"used_percent":35,"window_minutes":300,"resets_at":1767700000}%s}}}`
	f.Add(fmt.Sprintf(line, ""))
	for _, other := range []string{`"used_percent":-1`, `"used_percent":1e7`, `"window_minutes":576001`, `"used_percent":7`} {
		f.Add(fmt.Sprintf(line, `,"secondary":{"resets_at":1767700000,`+other+`}`))
	}
	f.Fuzz(func(t *testing.T, line string) {
		list := windowsOf([]byte(line))
		if _, err := state.ParseQuota(state.FormatQuota(list)); err != nil {
			t.Error(err)
		}
		if strings.Contains(line, `{"timestamp":"2026-01-05T12:00:00.5Z","payload":{"rate_limits":{"primary":{"used_percent":35,`) && len(list) > 0 && list[0].At.UnixMilli() != 1767614400500 {
			t.Errorf("told at %v", list[0].At)
		}
	})
}

// The classes of codex's errors that no recording has.
func TestClasses(t *testing.T) {
	fail := func(msg string) string {
		text, err := json.Marshal(msg)
		must(t, err)
		return `{"type":"turn.failed","error":{"message":` + string(text) + `}}`
	}
	for i, c := range []struct {
		stdout, stderr string
		exit           int
		class          state.Class
	}{
		{fail("unexpected status 503 Service Unavailable: x"), "", 0, state.ClassNetwork},
		{fail(""), "", 1, state.ClassExit},
		{fail("Missing environment variable: `FAKE_KEY`."), "", 1, state.ClassAuth},
		{fail("unexpected status 403 Forbidden: x"), "", 1, state.ClassExit},
		{fail("unexpected status 402 Payment Required: x"), "", 1, state.ClassAuth},
		{fail("unexpected status 404 Not Found: rate limit, 429, unauthorized"), "", 1, state.ClassExit},
		{fail(`{"error":"your prompt about the usage limit is refused"}`), "", 1, state.ClassExit},
		{fail("Quota exceeded. Check your plan and billing details."), "", 1, state.ClassAuth},
		{fail("You exceeded your rate limit: check your plan."), "", 1, state.ClassAuth},
		{fail("stream disconnected before completion: Rate limit reached for gpt-5: Limit 3. Please try again in 20s. You can increase your rate limit by adding a payment method at https://platform.openai.com/account/billing."), "", 1, state.ClassRateLimited},
		{fail("Your account is not active, please check your billing details."), "", 1, state.ClassAuth},
		{fail("You've hit your usage limit. Visit https://x/settings/usage to purchase more credits or try again at 3:47 AM."), "", 1, state.ClassRateLimited},
		{fail("stream disconnected before completion: Incomplete response returned, reason: content_filter"), "", 1, state.ClassExit},
		{fail("Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying."), "", 1, state.ClassContextFull},
		{fail(`{"error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}`), "", 1, state.ClassContextFull},
		{fail(`{"error":{"code":"invalid_prompt","message":"context_length_exceeded, it says"}}`), "", 1, state.ClassExit},
		{`{"type":"error","message":"` + "Reconnecting... 1/5 (unexpected status 500 Internal Server Error)" + `"}`, "", 1, state.ClassNetwork},
		{`{"type":"error","message":"` + "Reconnecting... waiting for network" + `"}`, "", 1, state.ClassNetwork},
		{`{"type":"error","message":"` + "Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)" + `"}`, "", 1, state.ClassRateLimited},
		{"", "Error: Not logged in. Please run codex login", 1, state.ClassAuth},
		{"", "Error: thread/resume: thread/resume failed: rollout at /home/u/429/x.jsonl is empty (code -32603)\n\nStack backtrace:\n", 1, state.ClassSessionLost},
		{"", "Error: thread/resume: thread/resume failed: failed to read session metadata /x.jsonl: stream did not contain valid UTF-8 (code -32603)", 1, state.ClassSessionLost},
		{"", "Error: thread/resume: thread/resume failed: stream did not contain valid UTF-8 (code -32603)", 1, state.ClassSessionLost},
		{"", "Error: thread/fork: thread/fork failed: invalid paginated history lineage for 0: missing source rollout (code -32600)", 1, state.ClassSessionLost},
		{"", "Error: thread/fork: thread/fork failed: rollout at /x.jsonl does not start with session metadata (code -32603)", 1, state.ClassSessionLost},
		{"", "Error: thread/resume: thread/resume failed: thread 0 already has an active writer (code -32600)", 1, state.ClassSessionBusy},
		{"", "429 Too Many Requests", 1, state.ClassExit},
		{"", "error: unexpected argument '-a' found\n\nUsage: codex exec\n", 2, state.ClassExit},
		{"", "/usr/bin/env: 'node': No such file or directory\n", 127, state.ClassAgentMissing},
		{"", "/usr/bin/env: 'node': Permission denied\n", 126, state.ClassAgentMissing},
	} {
		d := NewDecoder(task.Turn{}, quiet)
		if v := judge(d, c.stdout, c.stderr, c.exit); v.Class != c.class || v.Msg == "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
}
