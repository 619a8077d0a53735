package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/codex"
	"stint/coordinator/task"
	"stint/state"
)

func TestCodexPromptOnStdin(t *testing.T) {
	b := NewBench(t)
	c := fakeCodex(b, `echo "$@" >args; cat >prompt; echo '{"type":"thread.started","thread_id":"`+UUID+`"}'
		echo '{"type":"item.completed","item":{"type":"agent_message","text":"42"}}'; echo '{"type":"turn.completed"}'`)
	turn := b.Turn("--dangerous; $(rm -rf /)")
	turn.Session = "01a1fbfd-004f-7b52-a66b-d51066fa7873"
	out := c.Run(t.Context(), turn, quiet)
	if out.Class != "" || out.Result != "42" || out.Session != UUID || !strings.Contains(out.Note, "was not resumed") {
		t.Errorf("outcome: %+v", out)
	}
	sent := agent.Read(t, turn.Workspace, "prompt")
	if want, err := os.ReadFile(turn.Prompt); err != nil || sent != string(want) {
		t.Errorf("sent %q, %v", sent, err)
	}
	args := agent.Read(t, turn.Workspace, "args")
	if strings.Contains(args, "dangerous") {
		t.Errorf("arguments: %s", args)
	}
}

func TestCodexProbe(t *testing.T) {
	b := NewBench(t)
	home := filepath.Join(b.Dir, "home")
	must(t, os.MkdirAll(home, 0o700))
	const says = `[ "$1" = --version ] && echo codex-cli 1.2.3 && exit; `
	c := fakeCodex(b, says+`[ -f "$CODEX_HOME/auth.json" ] && echo Logged in using ChatGPT && exit; echo Not logged in; exit 1`)
	base := slices.Concat(c.Env, []string{"CODEX_HOME=" + home})
	correct, provider := "correct "+home+"/config.toml", "model_provider = \"fake\"\n[model_providers.fake]\nenv_key = \"FAKE_KEY\"\n"
	for _, r := range []struct {
		name, env, config string
		in                bool
		detail, fix       string
	}{
		{"nothing there", "", "", false, "Not logged in", c.Bin + " login"},
		{"key", "CODEX_API_KEY=x", "", true, "CODEX_API_KEY is set", ""},
		{"provider without key", "", provider, false, "FAKE_KEY", c.Bin + " login"},
		{"provider with key", "FAKE_KEY=secret", provider, true, "FAKE_KEY is set", ""},
		{"auth.json", "", "model = \"x\"\n", true, "Logged in using ChatGPT", ""},
		{"broken configuration", "", "model = \n", false, "configuration", correct},
		{"wrong configuration", "", "model = 3\n", false, "invalid type", correct}, // what only codex finds
	} {
		must(t, os.WriteFile(filepath.Join(home, "config.toml"), []byte(r.config), 0o600))
		switch r.name {
		case "auth.json":
			must(t, os.WriteFile(filepath.Join(home, "auth.json"), []byte("{}"), 0o600))
		case "wrong configuration":
			fakeCodex(b, says+`echo "Error loading configuration: $CODEX_HOME/config.toml:1:9: invalid type: integer 3, expected a string"; exit 1`)
		}
		c.Env = slices.Concat(base, strings.Fields(r.env))
		if p := c.CLI().Probe(t.Context()); !p.Found || p.Version != "codex-cli 1.2.3" || p.LoggedIn != r.in || !strings.Contains(p.Detail, r.detail) || p.Fix != r.fix || strings.Contains(p.Detail, "secret") {
			t.Errorf("%s: %+v", r.name, p)
		}
	}
	c.Bin = "no-such-codex"
	if p := c.CLI().Probe(t.Context()); p.Found || p.Fix == "" {
		t.Errorf("missing: %+v", p)
	}
}

func TestCodexExamine(t *testing.T) {
	b := NewBench(t)
	home := filepath.Join(b.Dir, "home")
	must(t, os.MkdirAll(home, 0o700))
	const old = "older than 0.160.0"
	for _, r := range []struct {
		name, version, sandbox, home string
		want                         []string // parts of the findings; the last one is fatal if there is a command that helps
		fix                          string   // its beginning
	}{
		{"nothing is wrong", "0.169.0", "exit 0", home, nil, ""},
		{"old version", "0.159.3", "exit 0", home, []string{old}, ""},
		{"a configuration that stops the sandbox", "0.159.3", "exit 1; [ \"$1\" = login ] && { echo 'Error loading configuration: config.toml:1:9: x'; exit 1; }", home, []string{old, "1:9"}, "correct " + home},
		{"new version", "0.170.1", "exit 0", home, []string{"newer than 0.169.0"}, ""},
		{"a version that cannot be read", "of the future", "exit 0", home, nil, ""},
		{"no sandbox", "0.169.0", "{ echo 'bwrap: Creating new namespace failed'; exit 1; }", home, []string{"bwrap"}, "sudo sysctl"},
		{"no home", "0.169.0", "exit 1", home + "/none", []string{"does not exist"}, "mkdir -p "},
		{"odd home", "0.169.0", "exit 0", "relative", []string{"no absolute path"}, "chmod"},
	} {
		c := fakeCodex(b, `[ "$1" = --version ] && echo "codex-cli `+r.version+`" && exit; [ "$1" = sandbox ] && `+r.sandbox)
		c.Env = slices.Concat(c.Env, []string{"CODEX_HOME=" + r.home})
		found := examine(t, c)
		for i, p := range found {
			last := i == len(found)-1 && r.fix != ""
			if len(found) != len(r.want) || !strings.Contains(p.Text, r.want[i]) || p.Fatal != last || last && !strings.HasPrefix(p.Fix, r.fix) {
				t.Errorf("%s: %+v", r.name, found)
			}
		}
		if len(found) < len(r.want) {
			t.Errorf("%s: %+v", r.name, found)
		}
	}
}

// An agent of a version that stint does not know may end in another way than it expects:
// then the error names the version and the events that were not understood.
func TestCodexTurnWithoutItsEnd(t *testing.T) {
	b := NewBench(t)
	begin := `{"type":"thread.started","thread_id":"` + UUID + `"}`
	run := func(code string, lines ...string) task.Outcome {
		c := fakeCodex(b, `[ "$1" = --version ] && echo codex-cli 9.8.7 && exit; cat >/dev/null; cat <<'END'
`+strings.Join(lines, "\n")+`
END
`+code)
		return c.Run(t.Context(), b.Turn("p"), quiet)
	}
	for _, c := range []struct {
		code  string
		lines []string
		want  string
	}{
		{"echo 'error: unexpected argument --json' >&2; exit 2", nil, "the agent ended with exit code 2: unexpected argument --json (codex-cli 9.8.7)"},
		{"exit 0", []string{"a plain text"}, "the agent ended before its turn was over (codex-cli 9.8.7)"},
		{"exit 0", []string{begin, `{"type":"turn.done"}`, `{"type":"x.y"}`, `{"type":"turn.done"}`}, "the agent ended before its turn was over (codex-cli 9.8.7; events that stint does not know: turn.done, x.y)"},
		{"exit 0", []string{begin}, "the agent ended before its turn was over (codex-cli 9.8.7)"},
		{"exit 3", []string{begin, `{"type":"turn.done"}`}, "the agent ended with exit code 3 (codex-cli 9.8.7; events that stint does not know: turn.done)"},
		{"exit 1", []string{begin, `{"type":"turn.failed","error":{"message":"no"}}`, `{"type":"z"}`}, "no"},
	} {
		if out := run(c.code, c.lines...); out.Class != state.ClassExit || out.Error != c.want {
			t.Errorf("%s: %q, want %q", out.Class, out.Error, c.want)
		}
	}
}

// fakeCodex writes a program that does as script says.
func fakeCodex(b *Bench, script string) *codex.Agent {
	return &codex.Agent{Bin: b.Program("codex", script), Runner: b.Runner}
}

// No text becomes an option.
func TestPromise6NoTextBecomesAnOptionOfCodex(t *testing.T) {
	b := NewBench(t)
	of := func(a codex.Agent) *codex.Agent { a.Runner = b.Runner; return &a }
	CheckRefusals(t, b, []Refusal{
		{Agent: of(codex.Agent{}), Turn: task.Turn{Session: "--last"}, Class: state.ClassSessionLost},
		{Agent: of(codex.Agent{}), Turn: task.Turn{Session: "urn:uuid:" + UUID}, Class: state.ClassSessionLost},
		{Agent: of(codex.Agent{}), Turn: task.Turn{Model: "--dangerously-bypass-approvals-and-sandbox"}, Class: state.ClassExit},
		{Agent: of(codex.Agent{Profile: "-x"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(codex.Agent{Sandbox: "-x"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(codex.Agent{Bin: "no-such-codex"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
		{Agent: of(codex.Agent{Bin: "/no/such/codex"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
	})
}

func TestCodexPlan(t *testing.T) {
	b := NewBench(t)
	a := fakeCodex(b, `[ "$1" = --version ] || touch started`)
	a.Profile = "work"
	CheckPlan(t, b, a)
}

// What the recorded runs of the real CLI came to, and what the agent was denied in them.
func TestCodexRecordings(t *testing.T) {
	const first, busy = "01a1fbfd-004f-7b52-a66b-d51066fa7872", "already has an active writer"
	const limited, auth, network = state.ClassRateLimited, state.ClassAuth, state.ClassNetwork
	CheckRecordings(t, "codex", codex.NewDecoder, []Recording{
		{Name: "first_turn", Session: first, Answer: `ECHO #1 last="hello alpha"`, Input: 110, Kept: true},
		{Name: "resume_second_turn", Session: first, Answer: `all=[hello alpha ;; hello beta]`, Input: 230, Kept: true},
		{Name: "resume_unknown_name", Session: "*", Answer: "ECHO #1", Input: 110, Kept: true},
		{Name: "reasoning", Session: "*", Answer: "ECHO #1", Input: 110, Kept: true},
		{Name: "tool_write_patch", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true},
		{Name: "tool_fail", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true},
		{Name: "tool_default_sandbox", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true},
		{Name: "denied_git", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true},
		{Name: "denied_network", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true},
		{Name: "denied_patch", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true, Denied: `apply_patch: writing outside of the project; to allow it: codex_sandbox = "danger-full-access" and allow_dangerous = true`},
		{Name: "denied_userns", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true, Denied: `shell(echo hi): its sandbox cannot be set up: bwrap: Creating new namespace failed: nesting depth or /proc/sys/user…; to allow it: see stint doctor`},
		{Name: "err_trunc_once", Session: "*", Answer: "ECHO #1", Input: 110, Kept: true},
		{Name: "err_401", Class: auth, Session: "*", Msg: "401 Unauthorized", Kept: true},
		{Name: "err_429_always", Class: limited, Session: "*", Msg: "429", Kept: true},
		{Name: "err_429_usage_limit", Class: limited, Session: "*", Msg: "usage limit", Kept: true},
		{Name: "err_500", Class: network, Session: "*", Msg: "high demand", Kept: true},
		{Name: "err_trunc_noretry", Class: network, Session: "*", Msg: "stream disconnected", Kept: true},
		{Name: "err_stream_failed_ctx", Class: state.ClassContextFull, Session: "*", Msg: "context window", Kept: true},
		{Name: "kill_TERM_streaming", Class: state.ClassStalled, Session: "*", Msg: "terminated"},
		{Name: "conc_B", Class: state.ClassSessionBusy, Msg: busy},
		{Name: "resume_unknown", Class: state.ClassSessionLost, Msg: "no rollout found"},
	})
	if _, v := Replay(t, "codex", "err_429_usage_limit", codex.NewDecoder); !v.RetryAt.Equal(time.Date(2026, 11, 21, 3, 47, 0, 0, time.UTC)) {
		t.Errorf("try again at %v", v.RetryAt)
	}
	if h, _ := Replay(t, "codex", "resume_second_turn", codex.NewDecoder); h.Usage != (state.Usage{}) ||
		h.Thread != (state.Usage{InputTokens: 230, CachedInputTokens: 80, OutputTokens: 43, ReasoningTokens: 10}) {
		t.Errorf("%+v, %+v", h.Usage, h.Thread)
	}
}

// A fork is reported when it got anywhere, by a message or a tool, and not before.
func TestCodexForkIsReportedWhenItGotAnywhere(t *testing.T) {
	CheckFork(t, codex.NewDecoder, []string{`{"type":"thread.started","thread_id":"` + UUID + `"}`, `{"type":"turn.started"}`}, map[string]bool{
		`{"type":"error","message":"Reconnecting... 1/5 (x)"}`:                       false,
		`{"type":"item.completed","item":{"type":"error","message":"a warning"}}`:    false,
		`{"type":"item.completed","item":{"type":"reasoning","text":"hm"}}`:          false,
		`{"type":"turn.failed","error":{"message":"429"}}`:                           false,
		`{"type":"item.started","item":{"type":"command_execution","command":"ls"}}`: true,
		`{"type":"item.completed","item":{"type":"agent_message","text":"so"}}`:      true,
		`{"type":"turn.completed"}`:                                                  true,
	})
}

// What an agent reported last decides when it falls silent; whatever shows that it got on
// makes it a silent one like any other.
func TestCodexLastErrorOfASilentAgent(t *testing.T) {
	const limited, network = state.ClassRateLimited, state.ClassNetwork
	const limit429 = "exceeded retry limit, last status: 429 Too Many Requests"
	says := func(msg string) string { return `{"type":"error","message":"Reconnecting... 1/5 (` + msg + `)"}` }
	CheckSilences(t, codex.NewDecoder, []Silence{
		{Lines: says(limit429), Class: limited},
		{Lines: says(limit429) + "\n" + `{"type":"item.completed","item":{"type":"error","message":"a warning"}}`, Class: limited},
		{Lines: says(limit429) + "\n" + `{"type":"item.completed","item":{"type":"reasoning","text":"hm"}}`, Class: ""},
		{Lines: says(limit429) + "\n" + `{"type":"item.started","item":{"type":"command_execution"}}`, Class: ""},
		{Lines: `{"type":"item.started","item":{"type":"command_execution"}}` + "\n" + says(limit429), Class: limited},
		{Lines: says(limit429) + "\n" + says("stream disconnected before completion: x"), Class: network},
		{Lines: says("waiting") + "\n" + `{"type":"error","message":"Reconnecting... waiting for network (x)"}`, Class: network, Offline: true},
		{Lines: says("unexpected status 401 Unauthorized: x"), Class: state.ClassAuth},
		{Stderr: "Attempt 1 failed with status 429. Retrying with backoff...\n", Class: ""},
	})
}

func FuzzCodexEvents(f *testing.F) {
	f.Add([]byte(`{"type":"error","message":"usage limit, try again in 99999999999999999999 days at 99:99 PM"}`), 1, "")
	fuzzEvents(f, "codex", codex.NewDecoder)
}

// An agent that writes about errors has none.
func TestCodexAnswerIsNoError(t *testing.T) {
	answer := `Error: 401 Unauthorized, usage limit, try again at 3:47 AM, no rollout found`
	text, err := json.Marshal(answer)
	must(t, err)
	lines := []string{
		`{"type":"item.completed","item":{"type":"error","message":"usage limit"}}`,
		`{"type":"item.completed","item":{"type":"agent_message","text":` + string(text) + `}}`,
		`{"type":"turn.completed","usage":{"input_tokens":1e99}}`,
	}
	for exit, class := range map[int]state.Class{0: "", 1: state.ClassExit} {
		d := codex.NewDecoder(task.Turn{}, quiet)
		if v := Play(d, exit, lines...); v.Class != class || d.State().Answer != answer {
			t.Errorf("%+v, %+v", v, d)
		}
	}
}

func TestCodexLog(t *testing.T) {
	CheckLog(t, codex.NewDecoder, `
{"type":"thread.started","thread_id":"`+UUID+`"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata not found."}}
{"type":"item.completed","item":{"id":"item_1","type":"reasoning","text":"**Looking\n\naround**"}}
{"type":"item.started","item":{"id":"item_2","type":"command_execution","command":"/bin/bash -lc 'go test ./...'","aggregated_output":"","exit_code":null,"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_2","type":"command_execution","command":"/bin/bash -lc 'go test ./...'","aggregated_output":"1\n2\n3\n4\nFAIL\tshop\nFAIL\n","exit_code":1,"status":"failed"}}
{"type":"item.started","item":{"id":"item_3","type":"todo_list","items":[{"text":"read","completed":false},{"text":"fix","completed":false}]}}
{"type":"item.updated","item":{"id":"item_3","type":"todo_list","items":[{"text":"read","completed":true},{"text":"fix","completed":false}]}}
{"type":"error","message":"Reconnecting... 1/5 (stream disconnected before completion)"}
{"type":"error","message":"Reconnecting... waiting for network (x)"}
{"type":"item.started","item":{"id":"item_4","type":"file_change","changes":[{"path":"/w/a.go","kind":"add"},{"path":"/w/b.go","kind":"update"}],"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_4","type":"file_change","changes":[{"path":"/w/a.go","kind":"add"},{"path":"/w/b.go","kind":"update"}],"status":"failed"}}
{"type":"item.completed","item":{"id":"item_5","type":"web_search","query":"go errors.Join"}}
{"type":"item.started","item":{"id":"item_6","type":"mcp_tool_call","server":"docs","tool":"find","status":"in_progress"}}
{"type":"item.updated","item":{"id":"item_6","type":"mcp_tool_call","server":"docs","tool":"find","status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_7","type":"agent_message","text":"Two tests fail.\nBoth in shop."}}
{"type":"turn.failed","error":{"message":"We’re currently experiencing high demand"}}
`, "", `
warning: Model metadata not found.
… **Looking around**
$ go test ./...  exit 1 · 1s
  2
  3
  4
  FAIL	shop
  FAIL
plan: 0 of 2 done; next: read
plan: 1 of 2 done; next: fix
retry: Reconnecting... 1/5 (stream disconnected before completion)
retry: waiting for the network
edit a.go b.go  failed · 1s
search go errors.Join
mcp_tool_call docs find
Two tests fail.
Both in shop.
warning: We’re currently experiencing high demand
`)
}
