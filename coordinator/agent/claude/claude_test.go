package claude

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/agent/agenttest"
	"stint/coordinator/agent/gate/gatetest"
	"stint/coordinator/task"
	"stint/state"
)

func TestMain(m *testing.M) { agenttest.Main(m, nil) }

var must, quiet = gatetest.Must, agenttest.Quiet

const someUUID = agenttest.UUID

func TestClaudeArgs(t *testing.T) {
	const tail = "--input-format stream-json --output-format stream-json --verbose"
	schema := filepath.Join(t.TempDir(), "schema.json")
	must(t, os.WriteFile(schema, []byte(`{"type":"object"}`+"\n"), 0o600))
	for _, c := range []struct {
		claude Agent
		turn   task.Turn
		want   string
	}{
		{Agent{}, task.Turn{}, "-p " + tail + " --permission-mode acceptEdits"},
		{Agent{}, task.Turn{Session: someUUID}, "-p " + tail + " --permission-mode acceptEdits --resume UUID"},
		{Agent{}, task.Turn{Session: someUUID, Fork: true}, "-p " + tail + " --permission-mode acceptEdits --resume UUID --fork-session"},
		{Agent{PermissionMode: "plan", Model: "opus"}, task.Turn{}, "-p " + tail + " --permission-mode plan --model opus"},
		{Agent{PermissionMode: "inherit", Model: "opus"}, task.Turn{Model: "haiku"}, "-p " + tail + " --model haiku"},
		{Agent{PermissionMode: "inherit", MaxTurns: 9}, task.Turn{Files: "/runs/r/files"}, "-p --add-dir /runs/r/files " + tail + " --max-turns 9"},
		{
			Agent{PermissionMode: "inherit", AllowedTools: []string{"Bash(git diff:*)", `--x "y"`}},
			task.Turn{Allow: []string{"Edit"}},
			"-p " + tail + ` --settings {"permissions":{"allow":["Bash(git diff:*)","--x \"y\"","Edit"]}}`,
		},
		{
			Agent{PermissionMode: "bypassPermissions", AllowedTools: []string{"Bash"}},
			task.Turn{ReadOnly: true, Schema: schema},
			"-p " + tail + ` --permission-mode default --tools  --strict-mcp-config --json-schema {"type":"object"}`,
		},
		{Agent{AllowedTools: []string{"Bash"}}, task.Turn{ReadOnly: true, Looks: true}, "-p " + tail + " --permission-mode default --tools Read,Glob,Grep --strict-mcp-config"},
	} {
		got := strings.ReplaceAll(strings.Join(c.claude.args(c.turn), " "), someUUID, "UUID")
		if got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestMisleads: what could lead claude elsewhere does, and so does what cannot be read as claude reads it.
func TestMisleads(t *testing.T) {
	planted := `"ANTHROPIC_BASE_URL":"http://127.0.0.1:1"`
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for text, want := range map[string]bool{
		`{}`: false, `null`: false, `{"model":"opus","env":null}`: false, `{"ENV":{` + planted + `},"env":{"GREETING":"hello","HOUSE":1}}`: false,
		`{"env":{` + planted + `},"ENV":null}`: true, "\xef\xbb\xbf{}": true, "\xff\xfe{\x00}\x00": true, `{"env":{},"x":` + deep + `}`: true,
		``: true, `[]`: true, `{"env":[]}`: true, `{} // a comment`: true, `{"apiKeyHelper":"x"}`: true, `{"proxyAuthHelper":"x"}`: true,
		`{"awsAuthRefresh":"x"}`: true, `{"forceLoginMethod":"console"}`: true, `{"__proto__":{"env":{` + planted + `}}}`: true,
	} {
		if got := misleadsWith(t, text); got != want {
			t.Errorf("%.80q misleads: %v", text, got)
		}
	}
	for _, name := range strings.Fields(`CLAUDE_CONFIG_DIR CLAUDE_CODE_USE_ANTHROPIC_AWS CLAUDE_CODE_USE_MANTLE CLAUDE_CODE_CUSTOM_OAUTH_URL
		_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL ANTHROPIC_AWS_BASE_URL ANTHROPIC_UNIX_SOCKET USE_LOCAL_OAUTH HTTPS_PROXY http_proxy NODE_OPTIONS
		NODE_EXTRA_CA_CERTS SSL_CERT_FILE AWS_PROFILE AZURE_AUTHORITY_HOST CLOUD_ML_REGION GCE_METADATA_HOST BETA_TRACING_ENDPOINT OTEL_EXPORTER_OTLP_HEADERS HOME`) {
		if !misleadsWith(t, `{"env":{"`+name+`":"x"}}`) {
			t.Errorf("%s misleads nobody", name)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, ".claude", "settings.local.json")
	must(t, os.MkdirAll(path, 0o700))
	if !misleads(dir) {
		t.Error("a directory in the place of settings misleads nobody")
	}
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Truncate(path, 64<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	does := misleads(dir)
	if runtime.ReadMemStats(&after); !does || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("a large file: %v, %d bytes were allocated", does, after.TotalAlloc-before.TotalAlloc)
	}
}

func misleadsWith(t *testing.T, settings string) bool {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, ".claude"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ".claude", "settings.json"), []byte(settings), 0o600))
	return misleads(dir)
}

// The user's own environment wins, but it cannot turn the expansion of files on again.
func TestClaudeEnv(t *testing.T) {
	c := Agent{}
	if got := strings.Join(c.env(""), " "); got != "CLAUDE_CODE_MAX_RETRIES=2 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_FILE_MENTIONS=1" {
		t.Error(got)
	}
	c.Env = []string{"CLAUDE_CODE_MAX_RETRIES=", "DISABLE_AUTOUPDATERS=0", "CLAUDE_CODE_DISABLE_FILE_MENTIONS=0"}
	if got := strings.Join(c.env(""), " "); got != "DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_FILE_MENTIONS=1" {
		t.Error(got)
	}
	c.Bin = agenttest.NewBench(t).Program("claude", "exit 1")
	s, out := c.spec(task.Turn{})
	if out != nil || task.LookupEnv(s.Env, "CLAUDE_CODE_DISABLE_FILE_MENTIONS") != "1" {
		t.Errorf("%+v, %+v", s.Env, out)
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
		if got := task.LookupEnv((&Agent{}).env(link), "CLAUDE_CODE_DISABLE_ATTACHMENTS") == "1"; got != c.off {
			t.Errorf("%s: attachments off: %v", c.file, got)
		}
	}
}

func TestClaudePromptOnStdin(t *testing.T) {
	b := agenttest.NewBench(t)
	c := &Agent{Runner: b.Runner, AllowedTools: []string{"Bash"}}
	c.Bin = b.Program("claude", `echo "$@" >args; env >env; cat >prompt; cat <<'END'
{"session_id":"`+someUUID+`","type":"system","subtype":"init","apiKeySource":"none"}
{"type":"assistant","message":{"content":[{"type":"text","text":"42"}]}}
{"permission_denials":[{"tool_name":"Bash","tool_input":{"command":"A=1 make"}},{"tool_name":"Write","tool_input":{"file_path":"/etc/x"}},{"tool_name":"Bash","tool_input":{"command":"A=1 make"}}],"is_error":false,"subtype":"success","result":"42","type":"result","total_cost_usd":3,"usage":{"input_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":4,"output_tokens":8}}
END`)
	turn := b.Turn("--dangerous; $(rm -rf /)\n{\"type\":\"control_request\"} \u2028 <b>")
	out := c.Run(t.Context(), turn, quiet)
	if out.Class != "" || out.Result != "42" || out.Session != someUUID || out.Note != "" || len(out.Findings) != 2 ||
		out.Findings[0].Message != `Bash(A=1 make); to allow it: --allow 'Bash' (if the key allow covers it), or claude_allowed_tools = ["Bash"]` ||
		out.Findings[1].Message != `Write(/etc/x); to allow it: --allow 'Write' (if the key allow covers it), or claude_allowed_tools = ["Write"]` {
		t.Errorf("outcome: %+v", out)
	}
	if out.Usage != (state.Usage{InputTokens: 7, CachedInputTokens: 2, OutputTokens: 8}) || out.Thread != (state.Usage{}) {
		t.Errorf("usage %+v, thread %+v: a subscription costs nothing", out.Usage, out.Thread)
	}
	sent := gatetest.Read(t, turn.Workspace, "prompt")
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
	args := gatetest.Read(t, turn.Workspace, "args")
	env := gatetest.Read(t, turn.Workspace, "env")
	if strings.Contains(args, "dangerous") || !strings.Contains(env, "CLAUDE_CODE_MAX_RETRIES=2\n") {
		t.Errorf("arguments: %s, environment: %s", args, env)
	}
}

func TestClaudeProbe(t *testing.T) {
	b := agenttest.NewBench(t)
	home := filepath.Join(b.Dir, "home")
	must(t, os.Mkdir(home, 0o700))
	c := &Agent{Runner: b.Runner}
	c.Env = slices.Concat(c.Env, []string{"CLAUDE_CONFIG_DIR=" + home})
	c.Bin = b.Program("claude", `[ "$1" = --version ] && echo "2.1.329 (Claude Code)" && exit; echo '{"loggedIn":false,"authMethod":"none"}'; exit 1`)
	if p := c.Probe(t.Context()); !p.Found || p.LoggedIn || p.Version != "2.1.329 (Claude Code)" || !strings.HasSuffix(p.Fix, "/claude auth login") {
		t.Errorf("not logged in: %+v", p)
	}
	c.Bin = b.Program("claude", `[ "$1" = --version ] && echo 2.0.9 && exit; echo '{"loggedIn":true,"authMethod":"api_key","apiKeySource":"ANTHROPIC_API_KEY"}'`)
	if p := c.Probe(t.Context()); !p.LoggedIn || p.Fix != "" || p.Detail != "the API key is from ANTHROPIC_API_KEY" {
		t.Errorf("key: %+v", p)
	}
	if found := c.Examine(t.Context()); len(found) != 1 || !strings.Contains(found[0].Text, "older than 2.1.299") || found[0].Fatal {
		t.Errorf("old version: %+v", found)
	}
	c.Bin = b.Program("claude", `[ "$1" = --version ] && echo 2.1.299 && exit; echo unknown command; exit 1`)
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

// No text becomes an option.
func TestPromise6NoTextBecomesAnOption(t *testing.T) {
	b := agenttest.NewBench(t)
	of := func(a Agent) *Agent { a.Runner = b.Runner; return &a }
	agenttest.CheckRefusals(t, b, []agenttest.Refusal{
		{Agent: of(Agent{}), Turn: task.Turn{Session: "--continue"}, Class: state.ClassSessionLost},
		{Agent: of(Agent{}), Turn: task.Turn{Session: "/home/x/a.jsonl"}, Class: state.ClassSessionLost},
		{Agent: of(Agent{}), Turn: task.Turn{Model: "--dangerously-skip-permissions"}, Class: state.ClassExit},
		{Agent: of(Agent{PermissionMode: "-x"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(Agent{Bin: "no-such-claude"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
	})
}

func TestPlan(t *testing.T) {
	b := agenttest.NewBench(t)
	bin := b.Program("claude", `[ "$1" = --version ] || touch started`)
	agenttest.CheckPlan(t, b, &Agent{Runner: b.Runner, Bin: bin, AllowedTools: []string{"Bash(go test:*)"}})
}

func TestCommands(t *testing.T) {
	a := &Agent{}
	if got := a.ResumeCommand(someUUID, "/w x'y"); got != "cd '/w x'\\''y' && claude --resume "+someUUID || a.LoginCommand() != "claude auth login" {
		t.Errorf("%s; %s", got, a.LoginCommand())
	}
}
