package claude

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

// play returns what a decoder and the table make of some lines and an exit code.
func play(exit int, lines ...string) (*agent.TurnState, agent.Verdict) {
	d := NewDecoder(task.Turn{}, quiet)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\n", " ")
	}
	v := judge(d, strings.Join(lines, "\n"), "", exit)
	return d.State(), v
}

// The rows of the table that no recording of claude has.
func TestClaudeClasses(t *testing.T) {
	apiError := func(code string, status any) []string {
		n, err := json.Marshal(status)
		must(t, err)
		return []string{
			`{"type":"assistant","error":"` + code + `","api_error_status":` + string(n) + `,"message":{"content":[{"type":"text","text":"API Error"}]}}`,
			`{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","result":"API Error","api_error_status":` + string(n) + `}`,
		}
	}
	good := `{"type":"result","subtype":"success","is_error":false,"result":"rate limit, 401"}`
	for i, c := range []struct {
		lines []string
		exit  int
		class state.Class
	}{
		{apiError("rate_limit", 429), 1, state.ClassRateLimited},
		{apiError("billing_error", 400), 1, state.ClassAuth},
		{apiError("authentication_failed", nil), 1, state.ClassAuth},
		{apiError("authentication_failed", 401), 1, state.ClassAuth},
		{apiError("authentication_failed", 403), 1, state.ClassExit},
		{apiError("account_on_hold", 403), 1, state.ClassAuth},
		{apiError("overloaded", 529), 1, state.ClassNetwork},
		{apiError("unknown", nil), 1, state.ClassNetwork},
		{apiError("unknown", 418), 1, state.ClassExit},
		{apiError("model_not_found", 404), 1, state.ClassExit},
		{apiError("of the future", 503), 0, state.ClassNetwork},
		{[]string{good}, 0, ""},
		{[]string{good}, 1, state.ClassExit},
		{append(apiError("rate_limit", 429), `{"type":"assistant","message":{"content":[]}}`, good), 0, ""},
		{[]string{`{"type":"result","subtype":"success","is_error":false,"result":" "}`}, 0, state.ClassOutputMissing},
		{[]string{`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: x"]}`}, 1, state.ClassSessionLost},
		{[]string{`{"type":"assistant","message":{"content":[{"type":"text","text":"No conversation found with session ID"}]}}`}, 1, state.ClassExit},
		{[]string{`{"type":"system","subtype":"api_retry","error":"rate_limit","error_status":429}`}, 143, state.ClassRateLimited},
		{[]string{`{"type":"result","subtype":"error_max_turns","is_error":true}`}, 1, state.ClassExit},
		{[]string{`{"type":"result","subtype":"success","is_error":true,"result":"Prompt is too long"}`}, 1, state.ClassContextFull}, // older ones give no reason
		{[]string{`{"type":"result","subtype":"success","is_error":false,"result":"Prompt is too long"}`}, 0, ""},
		{nil, 0, state.ClassExit},
	} {
		if _, v := play(c.exit, c.lines...); v.Class != c.class || v.Msg == "" && v.Class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
}

// The names of denied tools are cut: findings go into the ledger.
func TestClaudeDenialsAreBounded(t *testing.T) {
	var denials []string
	for i := range 9 {
		denials = append(denials, fmt.Sprintf(`{"tool_name":"%d\n## Task x%s","tool_input":{"command":"%[2]s x"}}`, i, strings.Repeat("T", 1<<20)))
	}
	h, _ := play(0, `{"type":"result","subtype":"success","is_error":false,"result":"ok","permission_denials":[`+strings.Join(denials, ",")+`]}`)
	for _, f := range h.Denied {
		if len(f.Message) > 500 || strings.Contains(f.Message, "\n") || !strings.HasSuffix(f.Message, `…"]`) {
			t.Errorf("%d bytes: %.200q", len(f.Message), f.Message)
		}
	}
	if len(h.Denied) != 5 {
		t.Errorf("%d findings", len(h.Denied))
	}
}

// A limit of a subscription names its end, and so does its refusal alone.
func TestClaudeRetryAt(t *testing.T) {
	const limit = `"rate_limit_info":{"status":"rejected","resetsAt":1795299615,"rateLimitType":"five_hour"}`
	event := `{"type":"rate_limit_event",` + limit + `}`
	warn := `{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":1795299615}}`
	refused := `{"type":"assistant","error":"rate_limit","api_error_params":{` + limit + `},"message":{"content":[{"type":"text","text":"You've hit your 5-hour limit"}]}}`
	bare := `{"type":"assistant","error":"rate_limit","message":{"content":[{"type":"text","text":"API Error"}]}}`
	end := `{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":429,"result":"You've hit your 5-hour limit"}`
	at := time.Unix(1795299615, 0)
	for _, c := range []struct {
		lines []string
		want  time.Time
	}{
		{[]string{event, bare, end}, at},
		{[]string{refused, end}, at},
		{[]string{warn, bare, end}, time.Time{}},
	} {
		if _, v := play(1, c.lines...); !v.RetryAt.Equal(c.want) || v.Class != state.ClassRateLimited {
			t.Errorf("%q: %+v", c.lines, v)
		}
	}
}

// Several results in one run add up; sub-agents say nothing for the agent.
func TestClaudeUsage(t *testing.T) {
	init := func(source string) string {
		return `{"type":"system","subtype":"init","apiKeySource":"` + source + `"}`
	}
	result := func(provider string) string {
		return `{"type":"result","subtype":"success","result":"x","total_cost_usd":9,"model_usage_since_last_result":{
			"a":{"inputTokens":1,"cacheReadInputTokens":2,"cacheCreationInputTokens":4,"outputTokens":8,"thinkingTokens":3,"costUSD":0.5,"provider":"` + provider + `"},
			"b":{"inputTokens":100,"outputTokens":-5,"costUSD":0.25,"provider":"` + provider + `"}}}`
	}
	tokens := state.Usage{InputTokens: 107, CachedInputTokens: 2, OutputTokens: 8, ReasoningTokens: 3}
	with := func(u state.Usage, cost float64) state.Usage { u.CostUSD = cost; return u }
	old := `{"type":"result","subtype":"success","result":"x","total_cost_usd":9,"usage":{"input_tokens":5}}`
	for i, c := range []struct {
		lines         []string
		usage, thread state.Usage
	}{
		{[]string{init("ANTHROPIC_API_KEY"), result("firstParty")}, with(tokens, 0.75), state.Usage{}},
		{[]string{init("none"), result("firstParty")}, tokens, state.Usage{}},
		{[]string{init("oauth"), result("")}, tokens, state.Usage{}},
		{[]string{init("none"), result("bedrock")}, with(tokens, 0.75), state.Usage{}},
		{[]string{init("apiKeyHelper"), old, old}, state.Usage{InputTokens: 10}, state.Usage{CostUSD: 9}},
		{[]string{init("none"), old}, state.Usage{InputTokens: 5}, state.Usage{}},
	} {
		if h, v := play(0, c.lines...); v.Class != "" || h.Usage != c.usage || h.Thread != c.thread {
			t.Errorf("row %d: %+v, %+v, %+v", i, v, h.Usage, h.Thread)
		}
	}
	h, _ := play(0, `{"type":"assistant","message":{"content":[{"type":"text","text":"mine"}]}}`,
		`{"type":"assistant","parent_tool_use_id":"t","message":{"content":[{"type":"text","text":"another's"}]}}`,
		`{"type":"user","message":{"role":"user","content":"a string"}}`, `{"type":"result","subtype":"success","result":""}`)
	if h.Answer != "mine" || h.Bad != 0 {
		t.Errorf("%+v", h)
	}
}

// With a schema, the answer of claude is the object that it has checked.
func TestClaudeStructuredOutput(t *testing.T) {
	for structured, want := range map[string]string{`{"findings":[]}`: `{"findings":[]}`, "null": "It is good."} {
		d := NewDecoder(task.Turn{}, quiet)
		d.Line([]byte(`{"type":"result","subtype":"success","is_error":false,"result":"It is good.","structured_output":` + structured + `}`))
		if got := d.State().Answer; got != want {
			t.Errorf("the answer is %q, want %q", got, want)
		}
	}
}
