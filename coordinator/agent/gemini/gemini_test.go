package gemini

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/agent"
	"stint/coordinator/agent/agenttest"
	"stint/coordinator/agent/gate/gatetest"
	"stint/coordinator/task"
	"stint/state"
)

func TestMain(m *testing.M) { agenttest.Main(m, nil) }

var must, quiet = gatetest.Must, agenttest.Quiet

const someUUID = agenttest.UUID

func TestGeminiArgs(t *testing.T) {
	for _, c := range []struct {
		gemini Agent
		turn   task.Turn
		want   string
	}{
		{Agent{}, task.Turn{}, "--skip-trust --output-format stream-json --approval-mode auto_edit"},
		{Agent{}, task.Turn{Session: someUUID}, "--skip-trust --output-format stream-json --approval-mode auto_edit --resume UUID"},
		{Agent{ApprovalMode: "inherit", Model: "pro"}, task.Turn{}, "--skip-trust --output-format stream-json --model pro"},
		{Agent{ApprovalMode: "plan", Model: "pro"}, task.Turn{Model: "flash"}, "--skip-trust --output-format stream-json --approval-mode plan --model flash"},
		{Agent{}, task.Turn{Files: "/runs/r/files"}, "--skip-trust --include-directories /runs/r/files --output-format stream-json --approval-mode auto_edit"},
		{Agent{ApprovalMode: "yolo"}, task.Turn{ReadOnly: true, Schema: "/runs/r/schema.json"}, "--skip-trust --output-format stream-json --approval-mode default"},
	} {
		got := strings.ReplaceAll(strings.Join(c.gemini.args(c.turn), " "), someUUID, "UUID")
		if got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// Nothing that gemini would expand is left in a prompt, and the text can be had back.
func TestGeminiEscapePrompt(t *testing.T) {
	at := regexp.MustCompile(`(^|[^\\])@`)
	for _, text := range []string{
		"", "hello", "see @a, \\@b, \\\\@c and ana@example.com", "@", "@@\\@", "/exit", "/exit @x", "//x", "\n/x", "a\r\n@\x00é",
	} {
		got := (&Agent{}).EscapePrompt(text)
		if at.MatchString(got) || strings.HasPrefix(got, "/") {
			t.Errorf("%q gives %q", text, got)
		}
		back := strings.ReplaceAll(strings.TrimPrefix(got, escapeNote), `\@`, "@")
		if back != text && back != "\n"+text || !strings.ContainsAny(text, "@/") && got != text {
			t.Errorf("%q gives %q and back %q", text, got, back)
		}
	}
}

func TestGeminiPromptOnStdin(t *testing.T) {
	b := agenttest.NewBench(t)
	g := &Agent{Runner: b.Runner}
	g.Bin = b.Program("gemini", `echo "$GEMINI_CLI_NO_RELAUNCH $@" >args; cat >prompt; cat <<'END'
{"type":"init","session_id":"`+someUUID+`"}
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
	if out.Class != "" || out.Result != "42" || out.Session != someUUID || out.Note != "Something odd" || out.Kept {
		t.Errorf("outcome: %+v", out)
	}
	if out.Usage != (state.Usage{InputTokens: 6, CachedInputTokens: 2, OutputTokens: 4, ReasoningTokens: 1}) {
		t.Errorf("usage: %+v", out.Usage)
	}
	if !slices.Equal(texts, []string{"let me see", "42"}) {
		t.Errorf("messages: %q", texts)
	}
	sent, err := os.ReadFile(filepath.Join(turn.Workspace, "prompt"))
	must(t, err)
	if want, err := os.ReadFile(turn.Prompt); err != nil || string(sent) != string(want) {
		t.Errorf("sent %q, %v", sent, err)
	}
	args, err := os.ReadFile(filepath.Join(turn.Workspace, "args"))
	must(t, err)
	if strings.Contains(string(args), "yolo") || !strings.HasPrefix(string(args), "true ") {
		t.Errorf("arguments: %s", args)
	}
}

// An agent that cannot fork a session resumes it, and tells when it went astray.
func TestGeminiDoesNotFork(t *testing.T) {
	b := agenttest.NewBench(t)
	g := &Agent{Runner: b.Runner}
	g.Bin = b.Program("gemini", `echo "$@" >args; cat >/dev/null; echo '{"type":"init","session_id":"`+someUUID+`"}'; echo '{"type":"message","role":"assistant","content":"x"}'; echo '{"type":"result","status":"success"}'`)
	turn := b.Turn("p")
	turn.Session, turn.Fork = "01a1fbfd-004f-7b52-a66b-d51066fa7873", true
	out := g.Run(t.Context(), turn, quiet)
	args, err := os.ReadFile(filepath.Join(turn.Workspace, "args"))
	must(t, err)
	if out.Forked || out.Session != someUUID || !strings.Contains(out.Note, "was not resumed") || !strings.Contains(string(args), "--resume "+turn.Session) {
		t.Errorf("%+v\n%s", out, args)
	}
}

func TestGeminiProbe(t *testing.T) {
	b := agenttest.NewBench(t)
	home := filepath.Join(b.Dir, "home")
	must(t, os.MkdirAll(filepath.Join(home, ".gemini"), 0o700))
	g := &Agent{Runner: b.Runner, Bin: b.Program("gemini", "echo 0.61.0")}
	base := slices.Concat(g.Env, []string{"GEMINI_CLI_HOME=" + home, envDefaults + "=" + filepath.Join(b.Dir, "none")})
	write := func(name, text string) {
		must(t, os.WriteFile(filepath.Join(home, ".gemini", name), []byte(text), 0o600))
	}
	probe := func(extra ...string) agent.Probe {
		g.Env = slices.Concat(base, extra)
		return g.Probe(t.Context())
	}
	if p := probe(); !p.Found || p.LoggedIn || p.Version != "0.61.0" || p.Fix != "export GEMINI_API_KEY=..." {
		t.Errorf("nothing there: %+v", p)
	}
	if p := probe("GEMINI_API_KEY=secret"); !p.LoggedIn || p.Fix != "" || strings.Contains(p.Detail, "secret") {
		t.Errorf("key: %+v", p)
	}
	if p := probe("GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1"); p.LoggedIn || !strings.Contains(p.Fix, "selectedType") {
		t.Errorf("base URL without a method: %+v", p)
	}
	if p := probe("GOOGLE_GENAI_USE_VERTEXAI=true", "GOOGLE_CLOUD_PROJECT=p"); p.LoggedIn || !strings.Contains(p.Detail, "GOOGLE_CLOUD_LOCATION") {
		t.Errorf("half of Vertex AI: %+v", p)
	}
	if found := g.Examine(t.Context()); len(found) != 2 || found[0].Fatal || !strings.Contains(found[0].Fix, "sessionRetention") || !strings.Contains(found[1].Text, "for minutes") {
		t.Errorf("defaults: %+v", found)
	}
	write("settings.json", "{ // mine\n\"security\": {\"auth\": {\"selectedType\": \"oauth-personal\"}}, /* \" */ \"general\": {\"maxAttempts\": 2, \"sessionRetention\": {\"enabled\": false}}}")
	if p := probe("GEMINI_API_KEY=x"); p.LoggedIn {
		t.Errorf("no login with Google: %+v", p)
	}
	write("oauth_creds.json", "{}")
	if p := probe(); !p.LoggedIn {
		t.Errorf("login with Google: %+v", p)
	}
	if found := g.Examine(t.Context()); len(found) != 0 {
		t.Errorf("nothing is wrong: %+v", found)
	}
	write(".env", "OTHER=1\nexport GEMINI_API_KEY=y\n")
	write("settings.json", `{"security":{"auth":{"selectedType":"gemini-api-key"}}}`)
	if p := probe(); !p.LoggedIn {
		t.Errorf("key in .env: %+v", p)
	}
	write("settings.json", `{"security":`)
	if p, found := probe(), g.Examine(t.Context()); p.LoggedIn || !strings.Contains(p.Detail, "settings") || len(found) != 1 || !found[0].Fatal {
		t.Errorf("broken settings: %+v, %+v", p, found)
	}
	g.Bin = b.Program("gemini", "echo 0.9.3")
	if found := g.Examine(t.Context()); len(found) != 2 || !strings.Contains(found[0].Text, "older than 0.50.0") {
		t.Errorf("old version: %+v", found)
	}
	g.Bin = "no-such-gemini"
	if p, found := probe(), g.Examine(t.Context()); p.Found || p.Fix == "" || len(found) != 1 || !found[0].Fatal {
		t.Errorf("missing: %+v, %+v", p, found)
	}
}

// Gemini's version from its package, without starting it.
func TestGeminiVersion(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bundle", "gemini.js")
	must(t, os.MkdirAll(filepath.Dir(bin), 0o700))
	must(t, os.WriteFile(bin, []byte("#!/bin/false\n"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"@google/gemini-cli","version":"0.61.0"}`), 0o600))
	link := filepath.Join(dir, "gemini")
	must(t, os.Symlink(bin, link))
	if v, err := (&Agent{}).version(t.Context(), link); err != nil || v != "0.61.0" {
		t.Errorf("%q, %v", v, err)
	}
}

// What the machine has as defaults stays, and ours are added to it. They are not
// written where gemini would refuse to read them.
func TestGeminiDefaults(t *testing.T) {
	dir := agenttest.RootDir(t)
	machine := filepath.Join(dir, "machine.json")
	g := &Agent{Runner: agent.Runner{Env: []string{envDefaults + "=" + machine}}}
	ours := func(dir string) map[string]any {
		t.Helper()
		must(t, g.writeDefaults(dir))
		path := filepath.Join(dir, defaultsFile)
		env := g.env(dir)
		_, err := os.Lstat(path)
		if told := agent.LookupEnv(env, envDefaults) == path; told != (err == nil) {
			t.Errorf("%q, and a file: %v", env, !told)
		}
		if err != nil {
			return nil
		}
		settings, err := readSettings(path)
		must(t, err)
		must(t, os.Remove(path))
		return settings
	}
	if got := ours(t.TempDir()); got != nil {
		t.Errorf("below the temp directory: %v", got)
	}
	must(t, os.WriteFile(machine, []byte(`{"general": {"maxAttempts": 7 /* ours */}, "ui": {"theme": "http://x"}}`), 0o600))
	got := ours(dir)
	if at(got, "general", "maxAttempts") != 7.0 || at(got, "ui", "theme") != "http://x" || at(got, "general", "sessionRetention", "enabled") != false {
		t.Errorf("%+v", got)
	}
	must(t, os.Remove(machine))
	if got := ours(dir); got == nil {
		t.Error("none without the machine's")
	}
	if g.defaults(filepath.Join(dir, "yet", "to", "come")) == nil {
		t.Error("none in a directory that is not made yet")
	}
	for _, text := range []string{"{", "null", "[]", ""} {
		must(t, os.WriteFile(machine, []byte(text), 0o600))
		if got := ours(dir); got != nil {
			t.Errorf("the machine's cannot be read (%q): %v", text, got)
		}
	}
}

func TestWithoutComments(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": "//x\"/*"} // y`: `{"a":"//x\"/*"}`,
		`{/*"*/"a":1,//"`:       `{"a":1,`,
		`/*/ 1 */2/**/3`:        `23`,
		"//a\n//b\n/**/{}":      "{}",
		`"open`:                 `"open`,
		`"\`:                    `"\`,
		`/* open`:               ``,
	} {
		got := strings.Join(strings.Fields(string(withoutComments([]byte(in)))), "")
		if got != want {
			t.Errorf("%q gives %q, not %q", in, got, want)
		}
	}
}

// TestGeminiUnset: what a .env file says of gemini is empty for it, but its keys, and what
// the user passes; what is for the workspace's own programs is left to them.
func TestGeminiUnset(t *testing.T) {
	b := agenttest.NewBench(t)
	g := &Agent{Runner: agent.Runner{Env: []string{"HOME=" + b.Dir, "GEMINI_MODEL=mine"}}}
	dir := filepath.Join(b.Dir, "shop")
	must(t, os.MkdirAll(filepath.Join(dir, ".gemini"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("DATABASE_URL=x\nhttps_proxy=p\nNODE_TLS_REJECT_UNAUTHORIZED=0\nNODE_ENV=test\nGEMINI_MODEL=y\nGEMINI_API_KEY=k\n export GOOGLE_GEMINI_BASE_URL = z\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, ".gemini", ".env"), []byte("GEMINI_SYSTEM_MD: /x"), 0o600))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	must(t, os.Symlink(filepath.Join(dir, "sub"), link))
	got, err := g.unset(link)
	if want := []string{"GEMINI_SYSTEM_MD=", "https_proxy=", "NODE_TLS_REJECT_UNAUTHORIZED=", "GOOGLE_GEMINI_BASE_URL="}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	must(t, os.Truncate(filepath.Join(dir, ".env"), 1<<20+1))
	if _, err := g.unset(dir); err == nil {
		t.Error("a file that is too large to be looked at")
	}
}

// No text becomes an option.
func TestPromise6NoTextBecomesAnOption(t *testing.T) {
	b := agenttest.NewBench(t)
	of := func(a Agent) *Agent { a.Runner = b.Runner; return &a }
	agenttest.CheckRefusals(t, b, []agenttest.Refusal{
		{Agent: of(Agent{}), Turn: task.Turn{Session: "latest"}, Class: state.ClassSessionLost},
		{Agent: of(Agent{}), Turn: task.Turn{Model: "-y"}, Class: state.ClassExit},
		{Agent: of(Agent{ApprovalMode: "--yolo"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(Agent{Bin: "/no/such/gemini"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
	})
}

func TestPlan(t *testing.T) {
	b := agenttest.NewBench(t)
	bin := b.Program("gemini", `[ "$1" = --version ] || touch started`)
	agenttest.CheckPlan(t, b, &Agent{Runner: b.Runner, Bin: bin})
}

func TestCommands(t *testing.T) {
	a := &Agent{Bin: "/opt/my gemini"}
	if got := a.ResumeCommand(someUUID, ""); got != "'/opt/my gemini' --resume "+someUUID || a.LoginCommand() != "export GEMINI_API_KEY=..." {
		t.Errorf("%s; %s", got, a.LoginCommand())
	}
}
