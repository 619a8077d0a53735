package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/agent"
	"stint/coordinator/agent/gemini"
	"stint/coordinator/task"
	"stint/state"
)

func TestGeminiPromptOnStdin(t *testing.T) {
	b := NewBench(t)
	g := &gemini.Agent{Runner: b.Runner}
	g.Bin = b.Program("gemini", `echo "$GEMINI_CLI_NO_RELAUNCH $@" >args; cat >prompt; cat <<'END'
{"type":"init","session_id":"`+UUID+`"}
{"type":"message","role":"assistant","content":"let me","delta":true}
{"type":"message","role":"assistant","content":" see","delta":true}
{"type":"tool_use","tool_name":"x"}
{"type":"tool_result","status":"success","output":"no"}
{"type":"message","role":"assistant","content":"4","delta":true}
{"type":"message","role":"assistant","content":"2","delta":true}
{"type":"error","severity":"warning","message":"Something odd"}
{"type":"result","status":"success","stats":{"total_tokens":10,"input_tokens":6,"output_tokens":3,"cached":2}}
END`)
	turn := b.Turn("--yolo; $(rm -rf /)")
	var texts []string
	out := g.Run(t.Context(), turn, func(e task.Event) {
		if e.Text != "" {
			texts = append(texts, e.Text)
		}
	})
	if out.Class != "" || out.Result != "42" || out.Session != UUID || out.Note != "Something odd" || out.Kept {
		t.Errorf("outcome: %+v", out)
	}
	if out.Usage != (state.Usage{InputTokens: 6, CachedInputTokens: 2, OutputTokens: 4, ReasoningTokens: 1}) {
		t.Errorf("usage: %+v", out.Usage)
	}
	if !slices.Equal(texts, []string{"let me see", "42"}) {
		t.Errorf("messages: %q", texts)
	}
	sent := agent.Read(t, turn.Workspace, "prompt")
	if want, err := os.ReadFile(turn.Prompt); err != nil || sent != string(want) {
		t.Errorf("sent %q, %v", sent, err)
	}
	args := agent.Read(t, turn.Workspace, "args")
	if strings.Contains(args, "yolo") || !strings.HasPrefix(args, "true ") {
		t.Errorf("arguments: %s", args)
	}
}

// An agent that cannot fork a session resumes it, and tells when it went astray.
func TestGeminiDoesNotFork(t *testing.T) {
	b := NewBench(t)
	g := &gemini.Agent{Runner: b.Runner}
	g.Bin = b.Program("gemini", `echo "$@" >args; cat >/dev/null; echo '{"type":"init","session_id":"`+UUID+`"}'; echo '{"type":"message","role":"assistant","content":"x"}'; echo '{"type":"result","status":"success"}'`)
	turn := b.Turn("p")
	turn.Session, turn.Fork = "01a1fbfd-004f-7b52-a66b-d51066fa7873", true
	out := g.Run(t.Context(), turn, quiet)
	args := agent.Read(t, turn.Workspace, "args")
	if out.Forked || out.Session != UUID || !strings.Contains(out.Note, "was not resumed") || !strings.Contains(args, "--resume "+turn.Session) {
		t.Errorf("%+v\n%s", out, args)
	}
}

func TestGeminiProbe(t *testing.T) {
	b := NewBench(t)
	home := filepath.Join(b.Dir, "home", ".gemini")
	must(t, os.MkdirAll(home, 0o700))
	g := &gemini.Agent{Runner: b.Runner}
	base := slices.Concat(g.Env, []string{"GEMINI_CLI_HOME=" + filepath.Dir(home), "GEMINI_CLI_SYSTEM_DEFAULTS_PATH=" + filepath.Join(b.Dir, "none")})
	const google = "{ // mine\n\"security\": {\"auth\": {\"selectedType\": \"oauth-personal\"}}, /* \" */ \"general\": {\"maxAttempts\": 2, \"sessionRetention\": {\"enabled\": false}}}"
	const retention, slow = "sessionRetention", "for minutes"
	for _, c := range []struct {
		name, env   string            // added
		files       map[string]string // written before
		in          bool
		detail, fix string // parts
		problems    []string
	}{
		{"nothing there", "", nil, false, "", "export GEMINI_API_KEY=...", []string{retention, slow}},
		{"key", "GEMINI_API_KEY=secret", nil, true, "GEMINI_API_KEY set", "", []string{retention, slow}},
		{"base URL without a method", "GEMINI_API_KEY=x GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1", nil, false, "", "selectedType", []string{retention, slow}},
		{"half of Vertex AI", "GOOGLE_GENAI_USE_VERTEXAI=true GOOGLE_CLOUD_PROJECT=p", nil, false, "GOOGLE_CLOUD_LOCATION", "export", []string{retention, slow}},
		{"no login with Google", "GEMINI_API_KEY=x", map[string]string{"settings.json": google}, false, "not logged in", "gemini", nil},
		{"login with Google", "", map[string]string{"oauth_creds.json": "{}"}, true, "Google", "", nil},
		{"key in .env", "", map[string]string{".env": "OTHER=1\nexport GEMINI_API_KEY=y\n", "settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}}}`}, true, "", "", []string{retention, slow}},
		{"broken settings", "", map[string]string{"settings.json": `{"security":`}, false, "settings", "correct ", []string{"fatal"}},
		{"old version", "", map[string]string{"../../gemini": "#!/bin/sh\necho 0.9.3\n"}, false, "", "correct ", []string{"older than 0.50.0", "fatal"}},
		{"missing", "", map[string]string{"../../gemini": ""}, false, "", "npm install", nil},
	} {
		if g.Bin == "" {
			g.Bin = b.Program("gemini", "echo 0.61.0")
		}
		for name, text := range c.files {
			must(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
		}
		if c.name == "missing" {
			g.Bin = "no-such-gemini"
		}
		g.Env = slices.Concat(base, strings.Fields(c.env))
		if p := g.CLI().Probe(t.Context()); p.Found != (c.name != "missing") || p.LoggedIn != c.in || !strings.Contains(p.Detail, c.detail) || !strings.Contains(p.Fix, c.fix) || (p.Fix == "") != c.in || strings.Contains(p.Detail, "secret") {
			t.Errorf("%s: %+v", c.name, p)
		}
		found := examine(t, g)
		for i, want := range c.problems {
			if len(found) != len(c.problems) || found[i].Fatal != (want == "fatal") || want != "fatal" && !strings.Contains(found[i].Text+found[i].Fix, want) {
				t.Errorf("%s: %+v", c.name, found)
			}
		}
		if len(c.problems) == 0 && len(found) > 0 {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
}

// No text becomes an option.
func TestPromise6NoTextBecomesAnOptionOfGemini(t *testing.T) {
	b := NewBench(t)
	of := func(a gemini.Agent) *gemini.Agent { a.Runner = b.Runner; return &a }
	CheckRefusals(t, b, []Refusal{
		{Agent: of(gemini.Agent{}), Turn: task.Turn{Session: "latest"}, Class: state.ClassSessionLost},
		{Agent: of(gemini.Agent{}), Turn: task.Turn{Model: "-y"}, Class: state.ClassExit},
		{Agent: of(gemini.Agent{ApprovalMode: "--yolo"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(gemini.Agent{Bin: "/no/such/gemini"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
	})
}

func TestGeminiPlan(t *testing.T) {
	b := NewBench(t)
	bin := b.Program("gemini", `[ "$1" = --version ] || touch started`)
	CheckPlan(t, b, &gemini.Agent{Runner: b.Runner, Bin: bin})
}

// What the recorded runs of the real CLI came to, and what the agent was denied in them.
func TestGeminiRecordings(t *testing.T) {
	const first3 = "a9a364ae-6666-44a9-b213-2f4b055b391c"
	const limited, auth, network = state.ClassRateLimited, state.ClassAuth, state.ClassNetwork
	CheckRecordings(t, "gemini", gemini.NewDecoder, []Recording{
		{Name: "first_turn", Session: first3, Answer: `ECHO #1 last="hello alpha"`, Input: 220},
		{Name: "resume_id_second_turn", Session: first3, Answer: `all=[hello alpha ;; hello beta]`, Input: 120},
		{Name: "tool_write_yolo_y", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true},
		{Name: "denied_shell", Session: "*", Answer: "TOOL DONE", Input: 220, Kept: true, Denied: `run_shell_command(echo hi): gemini is not offered this tool; to allow it: --allow 'Bash(echo hi *)' (if the key allow covers it), or gemini_approval_mode = "yolo" and allow_dangerous = true`},
		{Name: "perm_default_write", Session: "*", Answer: "NO TOOL", Input: 110},
		{Name: "kill_TERM_streaming", Session: "*", Answer: "ECHO #1", Input: 110}, // it does not listen to it
		{Name: "bigout", Class: state.ClassOutputMissing, Session: "*", Msg: "Loop detected"},
		{Name: "err_401", Class: auth, Msg: "UNAUTHENTICATED"},
		{Name: "err_429_day_quota", Class: limited, Msg: "daily quota"},
		{Name: "err_429_max1", Class: limited, Msg: "fake 429"},
		{Name: "err_500_max1", Class: network, Msg: "INTERNAL"},
		{Name: "err_trunc_once", Class: network, Msg: "terminated"},
		{Name: "err_empty", Class: network, Msg: "The model returned an empty response", Input: 440},
		{Name: "nokey", Class: auth, Msg: "GEMINI_API_KEY"},
		{Name: "first_try_untrusted", Class: state.ClassExit, Msg: "not running in a trusted directory"},
		{Name: "resume_unknown", Class: state.ClassSessionLost, Msg: "Invalid session identifier"},
	})
	want := state.Usage{InputTokens: 220, CachedInputTokens: 80, OutputTokens: 53, ReasoningTokens: 10}
	if h, _ := Replay(t, "gemini", "first_turn", gemini.NewDecoder); h.Usage != want || h.Thread != (state.Usage{}) {
		t.Errorf("%+v, %+v", h.Usage, h.Thread)
	}
}

// What an agent reported last decides when it falls silent; whatever shows that it got on
// makes it a silent one like any other.
func TestGeminiLastErrorOfASilentAgent(t *testing.T) {
	const limited, network = state.ClassRateLimited, state.ClassNetwork
	CheckSilences(t, gemini.NewDecoder, []Silence{
		{Stderr: "Attempt 1 failed with status 429. Retrying with backoff... _ApiError: {\"error\":{}}\n    at x\n", Class: limited},
		{Stderr: "Attempt 1 failed with 429 error (no Retry-After header). Retrying with backoff... x\n", Class: limited},
		{Stderr: "Attempt 2 failed with status 503. Retrying with backoff... x\n", Class: network},
		{Stderr: "Attempt 2 failed. Retrying with backoff... fetch failed\n", Class: network},
		{Stderr: "the model wrote: Attempt 1 failed with status 429\n", Class: ""},
	})
}

func FuzzGeminiEvents(f *testing.F) {
	f.Add([]byte(`{"type":"result","status":"error","error":{"message":"Suggested retry after 99999999999999999999s"}}`), 173, "")
	f.Add([]byte(`{"type":"result","status":"error","error":[{}]}`), 1, "\x1b[31mError resuming session: x\x1b[0m\n")
	fuzzEvents(f, "gemini", gemini.NewDecoder)
}

func TestGeminiLog(t *testing.T) {
	CheckLog(t, gemini.NewDecoder, `
{"type":"init","session_id":"`+UUID+`","model":"auto"}
{"type":"message","role":"user","content":"do it"}
{"type":"message","role":"assistant","content":"I look ","delta":true}
{"type":"message","role":"assistant","content":"first.","delta":true}
{"type":"tool_use","tool_name":"run_shell_command","tool_id":"a","parameters":{"command":"go vet ./...","description":"check"}}
{"type":"tool_result","tool_id":"a","status":"success","output":"fine"}
{"type":"tool_use","tool_name":"replace","tool_id":"b","parameters":{"file_path":"/w/cart.go","old_string":"a\nb","new_string":"a\nc\nd"}}
{"type":"tool_result","tool_id":"b","status":"error","error":{"type":"edit_no_occurrence_found","message":"0 occurrences found"}}
{"type":"tool_use","tool_name":"write_file","tool_id":"c","parameters":{"file_path":"/w/new.go","content":"one\ntwo\n"}}
{"type":"tool_use","tool_name":"glob","tool_id":"d","parameters":{"pattern":"**/*.go"}}
{"type":"tool_use","tool_name":"read_many_files","tool_id":"e","parameters":{"include":["a.go","b.go"]}}
{"type":"tool_use","tool_name":"save_memory","tool_id":"f","parameters":{"fact":"x"}}
{"type":"error","severity":"warning","message":"Loop detected, stopping execution"}
{"type":"message","role":"assistant","content":"Done.","delta":true}
{"type":"result","status":"success","stats":{}}
`, "Attempt 1 failed with status 429. Retrying with backoff...\n", `
I look first.
$ go vet ./...  1s
edit cart.go +2 −1  failed · 1s
  0 occurrences found
warning: Loop detected, stopping execution
edit new.go +2
search **/*.go
read a.go b.go
save_memory
Done.
retry: Attempt 1 failed with status 429. Retrying with backoff...
`)
}
