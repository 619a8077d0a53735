package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

func TestClaudeArgs(t *testing.T) {
	const tail = "--input-format stream-json --output-format stream-json --verbose"
	schema := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		claude Claude
		turn   coordinator.Turn
		want   string
	}{
		{Claude{}, coordinator.Turn{}, "-p " + tail + " --permission-mode acceptEdits"},
		{Claude{}, coordinator.Turn{Session: someUUID}, "-p " + tail + " --permission-mode acceptEdits --resume UUID"},
		{Claude{}, coordinator.Turn{Session: someUUID, Fork: true}, "-p " + tail + " --permission-mode acceptEdits --resume UUID --fork-session"},
		{Claude{PermissionMode: "plan", Model: "opus"}, coordinator.Turn{}, "-p " + tail + " --permission-mode plan --model opus"},
		{Claude{PermissionMode: "inherit", Model: "opus"}, coordinator.Turn{Model: "haiku"}, "-p " + tail + " --model haiku"},
		{Claude{PermissionMode: "inherit", MaxTurns: 9}, coordinator.Turn{Files: "/runs/r/files"}, "-p --add-dir /runs/r/files " + tail + " --max-turns 9"},
		{
			Claude{PermissionMode: "inherit", AllowedTools: []string{"Bash(git diff:*)", `--x "y"`}},
			coordinator.Turn{},
			"-p " + tail + ` --settings {"permissions":{"allow":["Bash(git diff:*)","--x \"y\""]}}`,
		},
		{
			Claude{PermissionMode: "bypassPermissions", AllowedTools: []string{"Bash"}},
			coordinator.Turn{ReadOnly: true, Schema: schema},
			"-p " + tail + ` --permission-mode default --tools  --strict-mcp-config --json-schema {"type":"object"}`,
		},
	} {
		got := strings.ReplaceAll(strings.Join(c.claude.args(c.turn), " "), someUUID, "UUID")
		if got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestPromise6NoTextBecomesAnOption: of any CLI.
func TestPromise6NoTextBecomesAnOption(t *testing.T) {
	b := newBench(t)
	r := b.demo.Runner
	for _, c := range []struct {
		agent coordinator.Agent
		turn  coordinator.Turn
		class state.Class
	}{
		{&Claude{Runner: r}, coordinator.Turn{Session: "--continue"}, state.ClassSessionLost},
		{&Claude{Runner: r}, coordinator.Turn{Session: "/home/x/a.jsonl"}, state.ClassSessionLost},
		{&Claude{Runner: r}, coordinator.Turn{Model: "--dangerously-skip-permissions"}, state.ClassExit},
		{&Claude{Runner: r, PermissionMode: "-x"}, coordinator.Turn{RunDir: b.dir}, state.ClassExit},
		{&Claude{Runner: r, Bin: "no-such-claude"}, coordinator.Turn{RunDir: b.dir}, state.ClassAgentMissing},
		{&Gemini{Runner: r}, coordinator.Turn{Session: "latest"}, state.ClassSessionLost},
		{&Gemini{Runner: r}, coordinator.Turn{Model: "-y"}, state.ClassExit},
		{&Gemini{Runner: r, ApprovalMode: "--yolo"}, coordinator.Turn{RunDir: b.dir}, state.ClassExit},
		{&Gemini{Runner: r, Bin: "/no/such/gemini"}, coordinator.Turn{RunDir: b.dir}, state.ClassAgentMissing},
		{b.demo, coordinator.Turn{Session: "../x"}, state.ClassSessionLost},
	} {
		out := c.agent.Run(t.Context(), c.turn, quiet)
		if out.Class != c.class || out.Error == "" || out.ExitCode != -1 {
			t.Errorf("%+v gives %+v", c, out)
		}
	}
	if names, err := filepath.Glob(filepath.Join(b.dir, "*")); err != nil || len(names) != 0 {
		t.Errorf("something was begun: %v, %v", names, err)
	}
}

// The user's own environment wins, but it cannot turn the expansion of files on again.
func TestClaudeEnv(t *testing.T) {
	c := Claude{}
	if got := strings.Join(c.env(""), " "); got != "CLAUDE_CODE_MAX_RETRIES=2 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_FILE_MENTIONS=1" {
		t.Error(got)
	}
	c.Env = []string{"CLAUDE_CODE_MAX_RETRIES=", "DISABLE_AUTOUPDATERS=0", "CLAUDE_CODE_DISABLE_FILE_MENTIONS=0"}
	if got := strings.Join(c.env(""), " "); got != "DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_FILE_MENTIONS=1" {
		t.Error(got)
	}
	c.Bin = newBench(t).fakeProgram("claude", "exit 1")
	s, out := c.spec(coordinator.Turn{})
	if out != nil || lookupEnv(s.env, "CLAUDE_CODE_DISABLE_FILE_MENTIONS") != "1" {
		t.Errorf("%+v, %+v", s.env, out)
	}
}

// A claude that does not know client_composed attaches nothing at all to a prompt. Its
// version is known from npm's package or from the name of its file, however it is called.
func TestClaudeTooOldForText(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		file, pkg string
		off       bool
	}{
		{"versions/2.1.298", "", true},
		{"versions/2.1.299", "", false},
		{"versions/3.0.0", "", false},
		{"a/bin/claude.exe", `{"name":"@anthropic-ai/claude-code","version":"2.1.205"}`, true},
		{"b/bin/claude.exe", `{"name":"@anthropic-ai/claude-code","version":"2.1.330"}`, false},
		{"c/cli.js", `{"name":"@anthropic-ai/claude-code","version":"2.0.9"}`, true},
		{"d/bin/claude", `{"name":"wrapper","version":"1.0.0"}`, false},
	} {
		file, root := filepath.Join(dir, c.file), filepath.Join(dir, filepath.Dir(c.file))
		must(t, os.MkdirAll(root, 0o700))
		must(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o700))
		if filepath.Base(root) == "bin" {
			root = filepath.Dir(root)
		}
		if c.pkg != "" {
			must(t, os.WriteFile(filepath.Join(root, "package.json"), []byte(c.pkg), 0o600))
		}
		link := filepath.Join(dir, "claude")
		_ = os.Remove(link)
		must(t, os.Symlink(file, link))
		if got := lookupEnv((&Claude{}).env(link), "CLAUDE_CODE_DISABLE_ATTACHMENTS") == "1"; got != c.off {
			t.Errorf("%s: attachments off: %v", c.file, got)
		}
	}
}

func TestResumeCommands(t *testing.T) {
	for want, got := range map[string]string{
		"cd /w && codex resume " + someUUID:              (&Codex{}).ResumeCommand(someUUID, "/w"),
		"cd '/w x'\\''y' && claude --resume " + someUUID: (&Claude{}).ResumeCommand(someUUID, "/w x'y"),
		"'/opt/my gemini' --resume " + someUUID:          (&Gemini{Bin: "/opt/my gemini"}).ResumeCommand(someUUID, ""),
		"":                                               (&Demo{}).ResumeCommand(someUUID, "/w"),
		"codex login":                                    (&Codex{}).LoginCommand(),
		"claude auth login":                              (&Claude{}).LoginCommand(),
		"export GEMINI_API_KEY=...":                      (&Gemini{}).LoginCommand(),
	} {
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// fakeProgram writes a program that does as a script says.
func (b *bench) fakeProgram(name, script string) string {
	b.t.Helper()
	bin := filepath.Join(b.dir, name)
	must(b.t, os.WriteFile(bin, []byte("#!/bin/bash\n"+script+"\n"), 0o700))
	return bin
}

func TestClaudePromptOnStdin(t *testing.T) {
	b := newBench(t)
	c := &Claude{Runner: b.demo.Runner, AllowedTools: []string{"Bash"}}
	c.Bin = b.fakeProgram("claude", `echo "$@" >args; env >env; cat >prompt; cat <<'END'
{"session_id":"`+someUUID+`","type":"system","subtype":"init","apiKeySource":"none"}
{"type":"assistant","message":{"content":[{"type":"text","text":"42"}]}}
{"permission_denials":[{"tool_name":"Bash","tool_input":{"command":"A=1 make"}},{"tool_name":"Write","tool_input":{"file_path":"/etc/x"}},{"tool_name":"Bash","tool_input":{"command":"A=1 make"}}],"is_error":false,"subtype":"success","result":"42","type":"result","total_cost_usd":3,"usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":4,"output_tokens":8}}
END`)
	turn := b.turn("--dangerous; $(rm -rf /)\n{\"type\":\"control_request\"} \u2028 <b>")
	out := c.Run(t.Context(), turn, quiet)
	if out.Class != "" || out.Result != "42" || out.Session != someUUID || out.Note != "" || len(out.Findings) != 2 ||
		out.Findings[0].Message != `Bash "A=1 make" was denied; to allow it: claude_allowed_tools = ["Bash"]` ||
		out.Findings[1].Message != `Write "/etc/x" was denied; to allow it: claude_allowed_tools = ["Write"]` {
		t.Errorf("outcome: %+v", out)
	}
	if out.Usage != (state.Usage{InputTokens: 7, CachedInputTokens: 2, OutputTokens: 8}) || out.Thread != (state.Usage{}) {
		t.Errorf("usage %+v, thread %+v: a subscription costs nothing", out.Usage, out.Thread)
	}
	sent, err := os.ReadFile(filepath.Join(turn.Workspace, "prompt"))
	must(t, err)
	var input struct {
		Type    string
		Message struct{ Role, Content string }
		AsText  bool `json:"client_composed"`
	}
	must(t, json.Unmarshal(sent, &input))
	if want, err := os.ReadFile(turn.Prompt); err != nil || input.Message.Content != string(want) || input.Message.Role != "user" || input.Type != "user" || !input.AsText {
		t.Errorf("sent %q, %v", sent, err)
	}
	if strings.Count(string(sent), "\n") != 1 {
		t.Errorf("%q is not one line", sent)
	}
	args, err := os.ReadFile(filepath.Join(turn.Workspace, "args"))
	must(t, err)
	env, err := os.ReadFile(filepath.Join(turn.Workspace, "env"))
	must(t, err)
	if strings.Contains(string(args), "dangerous") || !strings.Contains(string(env), "CLAUDE_CODE_MAX_RETRIES=2\n") {
		t.Errorf("arguments: %s, environment: %s", args, env)
	}
}

// play gives what a decoder makes of some lines and an exit code.
func play(tool string, exit int, lines ...string) (*heard, verdict) {
	d := ears(tool, coordinator.Turn{}, quiet)
	for _, l := range lines {
		d.line([]byte(l))
	}
	d.close()
	return d.said(), classify(ended{started: true, end: endReport{Exit: exit}}, d, testNow)
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
		if _, v := play("claude", c.exit, c.lines...); v.class != c.class || v.msg == "" && v.class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
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
		if _, v := play("claude", 1, c.lines...); !v.retryAt.Equal(c.want) || v.class != state.ClassRateLimited {
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
		if h, v := play("claude", 0, c.lines...); v.class != "" || h.usage != c.usage || h.thread != c.thread {
			t.Errorf("row %d: %+v, %+v, %+v", i, v, h.usage, h.thread)
		}
	}
	h, _ := play("claude", 0, `{"type":"assistant","message":{"content":[{"type":"text","text":"mine"}]}}`,
		`{"type":"assistant","parent_tool_use_id":"t","message":{"content":[{"type":"text","text":"another's"}]}}`,
		`{"type":"user","message":{"role":"user","content":"a string"}}`, `{"type":"result","subtype":"success","result":""}`)
	if h.answer != "mine" || h.bad != 0 {
		t.Errorf("%+v", h)
	}
}

func TestClaudeProbe(t *testing.T) {
	b := newBench(t)
	home := filepath.Join(b.dir, "home")
	must(t, os.Mkdir(home, 0o700))
	c := &Claude{Runner: b.demo.Runner}
	c.Env = slices.Concat(c.Env, []string{"CLAUDE_CONFIG_DIR=" + home})
	c.Bin = b.fakeProgram("claude", `[ "$1" = --version ] && echo "2.1.329 (Claude Code)" && exit; echo '{"loggedIn":false,"authMethod":"none"}'; exit 1`)
	if p := c.Probe(t.Context()); !p.Found || p.LoggedIn || p.Version != "2.1.329 (Claude Code)" || !strings.HasSuffix(p.Fix, "/claude auth login") {
		t.Errorf("not logged in: %+v", p)
	}
	c.Bin = b.fakeProgram("claude", `[ "$1" = --version ] && echo 2.0.9 && exit; echo '{"loggedIn":true,"authMethod":"api_key","apiKeySource":"ANTHROPIC_API_KEY"}'`)
	if p := c.Probe(t.Context()); !p.LoggedIn || p.Fix != "" || p.Detail != "the API key is from ANTHROPIC_API_KEY" {
		t.Errorf("key: %+v", p)
	}
	if found := c.Examine(t.Context()); len(found) != 1 || !strings.Contains(found[0].Text, "older than 2.1.299") || found[0].Fatal {
		t.Errorf("old version: %+v", found)
	}
	c.Bin = b.fakeProgram("claude", `[ "$1" = --version ] && echo 2.1.299 && exit; echo unknown command; exit 1`)
	if p := c.Probe(t.Context()); p.LoggedIn || p.Detail == "" {
		t.Errorf("no status: %+v", p)
	}
	if found := c.Examine(t.Context()); len(found) != 0 {
		t.Errorf("nothing is wrong: %+v", found)
	}
	c.Env = append(c.Env, "CLAUDE_CONFIG_DIR=/proc/nowhere")
	if found := c.Examine(t.Context()); len(found) != 1 || found[0].Fatal || found[0].Fix == "" {
		t.Errorf("no home: %+v", found)
	}
	c.Bin = "no-such-claude"
	if p, found := c.Probe(t.Context()), c.Examine(t.Context()); p.Found || p.Fix == "" || len(found) != 1 || !found[0].Fatal {
		t.Errorf("missing: %+v, %+v", p, found)
	}
}
