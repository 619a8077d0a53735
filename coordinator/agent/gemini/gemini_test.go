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
	sent := gatetest.Read(t, turn.Workspace, "prompt")
	if want, err := os.ReadFile(turn.Prompt); err != nil || sent != string(want) {
		t.Errorf("sent %q, %v", sent, err)
	}
	args := gatetest.Read(t, turn.Workspace, "args")
	if strings.Contains(args, "yolo") || !strings.HasPrefix(args, "true ") {
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
	args := gatetest.Read(t, turn.Workspace, "args")
	if out.Forked || out.Session != someUUID || !strings.Contains(out.Note, "was not resumed") || !strings.Contains(args, "--resume "+turn.Session) {
		t.Errorf("%+v\n%s", out, args)
	}
}

func TestGeminiProbe(t *testing.T) {
	b := agenttest.NewBench(t)
	home := filepath.Join(b.Dir, "home", ".gemini")
	must(t, os.MkdirAll(home, 0o700))
	g := &Agent{Runner: b.Runner}
	base := slices.Concat(g.Env, []string{"GEMINI_CLI_HOME=" + filepath.Dir(home), envDefaults + "=" + filepath.Join(b.Dir, "none")})
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
		{"missing", "", map[string]string{"../../gemini": ""}, false, "", "npm install", []string{"fatal"}},
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
		if p := g.Probe(t.Context()); p.Found != (c.name != "missing") || p.LoggedIn != c.in || !strings.Contains(p.Detail, c.detail) || !strings.Contains(p.Fix, c.fix) || (p.Fix == "") != c.in || strings.Contains(p.Detail, "secret") {
			t.Errorf("%s: %+v", c.name, p)
		}
		found := g.Examine(t.Context())
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
		if told := task.LookupEnv(env, envDefaults) == path; told != (err == nil) {
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

// TestGeminiUnset: what a .env file says of gemini is empty for it, its keys too, but for what
// the user passes; what is for the workspace's own programs is left to them.
func TestGeminiUnset(t *testing.T) {
	b := agenttest.NewBench(t)
	g := &Agent{Runner: agent.Runner{Env: []string{"HOME=" + b.Dir, "GEMINI_MODEL=mine"}}}
	dir := filepath.Join(b.Dir, "shop")
	must(t, os.MkdirAll(filepath.Join(dir, ".gemini"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("DATABASE_URL=x\nhttps_proxy=p\nNODE_TLS_REJECT_UNAUTHORIZED=0\nNODE_ENV=test\nGEMINI_MODEL=y\nGEMINI_API_KEY=k\n export GOOGLE_GEMINI_BASE_URL\v = z\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, ".gemini", ".env"), []byte("GEMINI_SYSTEM_MD: /x"), 0o600))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	must(t, os.Symlink(filepath.Join(dir, "sub"), link))
	got, err := g.unset(link)
	if want := []string{"GEMINI_SYSTEM_MD=", "https_proxy=", "NODE_TLS_REJECT_UNAUTHORIZED=", "GEMINI_API_KEY=", "GOOGLE_GEMINI_BASE_URL="}; err != nil || !slices.Equal(got, want) {
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
