package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/agent"
	"stint/coordinator/agent/claude"
	"stint/coordinator/task"
	"stint/state"
)

func TestClaudePromptOnStdin(t *testing.T) {
	b := NewBench(t)
	c := &claude.Agent{Runner: b.Runner, AllowedTools: []string{"Bash"}}
	c.Bin = b.Program("claude", `echo "$@" >args; env >env; cat >prompt; cat <<'END'
{"session_id":"`+UUID+`","type":"system","subtype":"init","apiKeySource":"none"}
{"type":"assistant","message":{"content":[{"type":"text","text":"42"}]}}
{"permission_denials":[{"tool_name":"Bash","tool_input":{"command":"A=1 make"}},{"tool_name":"Write","tool_input":{"file_path":"/etc/x"}},{"tool_name":"Bash","tool_input":{"command":"A=1 make"}}],"is_error":false,"subtype":"success","result":"42","type":"result","total_cost_usd":3,"usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":4,"output_tokens":8}}
END`)
	turn := b.Turn("--dangerous; $(rm -rf /)\n{\"type\":\"control_request\"} \u2028 <b>")
	out := c.Run(t.Context(), turn, quiet)
	if out.Class != "" || out.Result != "42" || out.Session != UUID || out.Note != "" || len(out.Findings) != 2 ||
		out.Findings[0].Message != `Bash(A=1 make); to allow it: --allow 'Bash' (if the key allow covers it), or claude_allowed_tools = ["Bash"]` ||
		out.Findings[1].Message != `Write(/etc/x); to allow it: --allow 'Write' (if the key allow covers it), or claude_allowed_tools = ["Write"]` {
		t.Errorf("outcome: %+v", out)
	}
	if out.Usage != (state.Usage{InputTokens: 7, CachedInputTokens: 2, OutputTokens: 8}) || out.Thread != (state.Usage{}) {
		t.Errorf("usage %+v, thread %+v: a subscription costs nothing", out.Usage, out.Thread)
	}
	sent := agent.Read(t, turn.Workspace, "prompt")
	var input struct {
		Type    string
		Message struct{ Role, Content string }
		AsText  bool `json:"client_composed"`
	}
	must(t, json.Unmarshal([]byte(sent), &input))
	if want, err := os.ReadFile(turn.Prompt); err != nil || input.Message.Content != string(want) || input.Message.Role != "user" || input.Type != "user" || !input.AsText {
		t.Errorf("sent %q, %v", sent, err)
	}
	if strings.Count(sent, "\n") != 1 {
		t.Errorf("%q is not one line", sent)
	}
	args := agent.Read(t, turn.Workspace, "args")
	env := agent.Read(t, turn.Workspace, "env")
	if strings.Contains(args, "dangerous") || !strings.Contains(env, "CLAUDE_CODE_MAX_RETRIES=2\n") {
		t.Errorf("arguments: %s, environment: %s", args, env)
	}
}

func TestClaudeProbe(t *testing.T) {
	b := NewBench(t)
	home := filepath.Join(b.Dir, "home")
	must(t, os.Mkdir(home, 0o700))
	c := &claude.Agent{Runner: b.Runner}
	c.Env = slices.Concat(c.Env, []string{"CLAUDE_CONFIG_DIR=" + home})
	c.Bin = b.Program("claude", `[ "$1" = --version ] && echo "2.1.329 (Claude Code)" && exit; echo '{"loggedIn":false,"authMethod":"none"}'; exit 1`)
	if p := c.CLI().Probe(t.Context()); !p.Found || p.LoggedIn || p.Version != "2.1.329 (Claude Code)" || !strings.HasSuffix(p.Fix, "/claude auth login") {
		t.Errorf("not logged in: %+v", p)
	}
	c.Bin = b.Program("claude", `[ "$1" = --version ] && echo 2.0.9 && exit; echo '{"loggedIn":true,"authMethod":"api_key","apiKeySource":"ANTHROPIC_API_KEY"}'`)
	if p := c.CLI().Probe(t.Context()); !p.LoggedIn || p.Fix != "" || p.Detail != "the API key is from ANTHROPIC_API_KEY" {
		t.Errorf("key: %+v", p)
	}
	if found := examine(t, c); len(found) != 1 || !strings.Contains(found[0].Text, "older than 2.1.299") || found[0].Fatal {
		t.Errorf("old version: %+v", found)
	}
	c.Bin = b.Program("claude", `[ "$1" = --version ] && echo 2.1.299 && exit; echo unknown command; exit 1`)
	if p := c.CLI().Probe(t.Context()); p.LoggedIn || p.Detail == "" {
		t.Errorf("no status: %+v", p)
	}
	if found := examine(t, c); len(found) != 0 {
		t.Errorf("nothing is wrong: %+v", found)
	}
	c.Env = append(c.Env, "CLAUDE_CONFIG_DIR=/proc/nowhere")
	if found := examine(t, c); len(found) != 1 || found[0].Fatal || found[0].Fix == "" {
		t.Errorf("no home: %+v", found)
	}
	c.Bin = "no-such-claude"
	if p, found := c.CLI().Probe(t.Context()), examine(t, c); p.Found || p.Fix == "" || len(found) != 0 {
		t.Errorf("missing: %+v, %+v", p, found)
	}
}

// No text becomes an option.
func TestPromise6NoTextBecomesAnOptionOfClaude(t *testing.T) {
	b := NewBench(t)
	of := func(a claude.Agent) *claude.Agent { a.Runner = b.Runner; return &a }
	CheckRefusals(t, b, []Refusal{
		{Agent: of(claude.Agent{}), Turn: task.Turn{Session: "--continue"}, Class: state.ClassSessionLost},
		{Agent: of(claude.Agent{}), Turn: task.Turn{Session: "/home/x/a.jsonl"}, Class: state.ClassSessionLost},
		{Agent: of(claude.Agent{}), Turn: task.Turn{Model: "--dangerously-skip-permissions"}, Class: state.ClassExit},
		{Agent: of(claude.Agent{PermissionMode: "-x"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(claude.Agent{Bin: "no-such-claude"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
	})
}

func TestClaudePlan(t *testing.T) {
	b := NewBench(t)
	bin := b.Program("claude", `[ "$1" = --version ] || touch started`)
	CheckPlan(t, b, &claude.Agent{Runner: b.Runner, Bin: bin, AllowedTools: []string{"Bash(go test:*)"}})
}

// What the recorded runs of the real CLI came to, and what the agent was denied in them.
func TestClaudeRecordings(t *testing.T) {
	const first2 = "f0a5b986-2e18-498c-ae86-b8e09348037f"
	const limited, auth, network = state.ClassRateLimited, state.ClassAuth, state.ClassNetwork
	CheckRecordings(t, "claude", claude.NewDecoder, []Recording{
		{Name: "first_turn", Session: first2, Answer: `ECHO #1 last="hello alpha"`, Input: 153, Kept: true},
		{Name: "resume_second_turn", Session: first2, Answer: `all=[hello alpha ;; hello beta]`, Input: 163, Kept: true},
		{Name: "tool_write", Session: "*", Answer: "TOOL DONE", Input: 306, Kept: true},
		{Name: "perm_acceptedits_bash", Session: "*", Answer: "TOOL DONE", Input: 306, Kept: true, Denied: `Bash(python3 -c 'print(1)'); to allow it: --allow 'Bash(python3 *)' (if the key allow covers it), or claude_allowed_tools = ["Bash(python3 *)"]`},
		{Name: "err_429_twice_then_ok", Session: "*", Answer: "ECHO #1", Input: 153, Kept: true},
		{Name: "err_429_3retries", Class: limited, Session: "*", Msg: "Request rejected (429)", Kept: true},
		{Name: "err_401", Class: auth, Session: "*", Msg: "Failed to authenticate", Kept: true},
		{Name: "err_500_3retries", Class: network, Session: "*", Msg: "500", Kept: true},
		{Name: "err_context_full", Class: state.ClassContextFull, Session: "*", Msg: "Prompt is too long", Kept: true},
		{Name: "err_nokey", Class: auth, Session: "*", Msg: "Not logged in", Kept: true},
		{Name: "max_turns", Class: state.ClassExit, Session: "*", Msg: "maximum number of turns", Input: 153, Kept: true},
		{Name: "kill_INT_streaming", Class: state.ClassStalled, Session: "*", Answer: "ECHO", Msg: "aborted", Input: 153, Kept: true},
		{Name: "kill_TERM_streaming", Class: state.ClassStalled, Msg: "terminated"},
		{Name: "resume_unknown", Class: state.ClassSessionLost, Msg: "No conversation found"},
		{Name: "session_id_reuse", Class: state.ClassExit, Msg: "already in use"},
	})
	want := state.Usage{InputTokens: 153, CachedInputTokens: 40, OutputTokens: 22, CostUSD: 0.0009029999999999999}
	if h, _ := Replay(t, "claude", "first_turn", claude.NewDecoder); h.Usage != want || h.Thread != (state.Usage{}) {
		t.Errorf("%+v, %+v", h.Usage, h.Thread)
	}
}

// A fork is reported when it got anywhere, by a message or a tool, and not before.
func TestClaudeForkIsReportedWhenItGotAnywhere(t *testing.T) {
	CheckFork(t, claude.NewDecoder, []string{`{"type":"system","subtype":"init","session_id":"` + UUID + `"}`}, map[string]bool{
		`{"type":"system","subtype":"api_retry","error":"rate_limit","error_status":429}`:                      false,
		`{"type":"assistant","error":"rate_limit","message":{"content":[{"type":"text","text":"API Error"}]}}`: false,
		`{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"}]}}`:                     false,
		`{"type":"assistant","message":{"content":[{"type":"text","text":"so"}]}}`:                             true,
		`{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}`:                       true,
		`{"type":"result","subtype":"success","is_error":false,"result":"42"}`:                                 true,
	})
}

// What an agent reported last decides when it falls silent; whatever shows that it got on
// makes it a silent one like any other.
func TestClaudeLastErrorOfASilentAgent(t *testing.T) {
	const limited, network = state.ClassRateLimited, state.ClassNetwork
	says := func(code string, status int) string {
		return fmt.Sprintf(`{"type":"system","subtype":"api_retry","error":%q,"error_status":%d}`, code, status)
	}
	CheckSilences(t, claude.NewDecoder, []Silence{
		{Lines: says("rate_limit", 429), Class: limited},
		{Lines: says("overloaded", 529), Class: network},
		{Lines: says("rate_limit", 429) + "\n" + `{"type":"system","subtype":"thinking_tokens"}`, Class: ""},
		{Lines: says("rate_limit", 429) + "\n" + `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}`, Class: ""},
		{Lines: says("rate_limit", 429) + "\n" + `{"type":"user","message":{}}`, Class: ""},
	})
}

func FuzzClaudeEvents(f *testing.F) {
	f.Add([]byte(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"MultiEdit","input":{"file_path":"a","edits":[{"old_string":"x","new_string":"y\nz"}]}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":[{"type":"text","text":"Exit code 1\nno"}]}]}}`), 0, "")
	f.Add([]byte(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":9223372036854775807}}`), 1, "")
	f.Add([]byte(`{"type":"rate_limit_event","rate_limit_info":{"unifiedWindows":{"":{"utilization":0.5},"x":{"utilization":-1},"y":{"utilization":1e306},"z":{"resetsAt":-99999999999}}}}`), 1, "")
	f.Add([]byte(`{"type":"result","subtype":"success","model_usage_since_last_result":{"a":null,"b":7},"permission_denials":[7,null]}`), 0, "")
	fuzzEvents(f, "claude", claude.NewDecoder)
}

func TestClaudeLog(t *testing.T) {
	use := func(id, tool, input string) string {
		return fmt.Sprintf(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":%q,"name":%q,"input":%s}],"usage":{"input_tokens":10,"output_tokens":1}}}`+"\n", id, tool, input)
	}
	result := func(id, content string, failed bool) string {
		return fmt.Sprintf(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"is_error":%v,"content":%s}]}}`+"\n", id, failed, content)
	}
	CheckLog(t, claude.NewDecoder, `{"type":"system","subtype":"init","session_id":"`+UUID+`"}
{"type":"system","subtype":"api_retry","attempt":2,"max_retries":10,"error_status":429,"error":"rate_limit"}
{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"error":"unknown"}
{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"Let me\nsee."},{"type":"text","text":"I look first."}]}}
`+use("t1", "Bash", `{"command":"go test ./...\necho $?","description":"test"}`)+result("t1", `"Exit code 1\nFAIL"`, true)+
		use("t2", "Edit", `{"file_path":"/w/cart.go","old_string":"a\nb\nc","new_string":"a\nx\ny\nz\nc"}`)+result("t2", `[{"type":"text","text":"updated"}]`, false)+
		use("t3", "Write", `{"file_path":"/w/new.go","content":"one\ntwo\n"}`)+result("t3", `"Permission to use Write was denied"`, true)+
		use("t4", "Read", `{"file_path":"/w/cart.go","limit":"many"}`)+
		use("t5", "Grep", `{"pattern":"func Total","path":"/w"}`)+
		use("t6", "TodoWrite", `{"todos":[{"content":"read","status":"completed"},{"content":"fix","status":"pending"}]}`)+
		use("t7", "mcp__docs__find", `{"query":"cart"}`)+
		use("t8", "Task", `[1]`)+
		`{"type":"user","message":{"role":"user","content":"a string"}}
{"type":"result","subtype":"error_max_turns","is_error":true}
`, "", `
retry: the API's answer was rate_limit (429); try 2 of 10
retry: waiting for the network; try 1 of 10
… Let me see.
I look first.
$ go test ./... echo $?  exit 1 · 1s
  FAIL
edit cart.go +3 −1  1s
edit new.go +2  failed · 1s
  Permission to use Write was denied
warning: error_max_turns
read cart.go
search func Total
plan: 1 of 2 done; next: fix
mcp__docs__find cart
Task
`)
}
