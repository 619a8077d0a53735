package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/state"
)

func TestGeminiArgs(t *testing.T) {
	for _, c := range []struct {
		gemini Gemini
		turn   coordinator.Turn
		want   string
	}{
		{Gemini{}, coordinator.Turn{}, "--skip-trust --output-format stream-json --approval-mode auto_edit"},
		{Gemini{}, coordinator.Turn{Session: someUUID}, "--skip-trust --output-format stream-json --approval-mode auto_edit --resume UUID"},
		{Gemini{ApprovalMode: "inherit", Model: "pro"}, coordinator.Turn{}, "--skip-trust --output-format stream-json --model pro"},
		{Gemini{ApprovalMode: "plan", Model: "pro"}, coordinator.Turn{Model: "flash"}, "--skip-trust --output-format stream-json --approval-mode plan --model flash"},
		{Gemini{}, coordinator.Turn{Files: "/runs/r/files"}, "--skip-trust --include-directories /runs/r/files --output-format stream-json --approval-mode auto_edit"},
		{Gemini{ApprovalMode: "yolo"}, coordinator.Turn{ReadOnly: true, Schema: "/runs/r/schema.json"}, "--skip-trust --output-format stream-json --approval-mode default"},
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
		got := (&Gemini{}).EscapePrompt(text)
		if at.MatchString(got) || strings.HasPrefix(got, "/") {
			t.Errorf("%q gives %q", text, got)
		}
		back := strings.ReplaceAll(strings.TrimPrefix(got, geminiEscapes), `\@`, "@")
		if back != text && back != "\n"+text || !strings.ContainsAny(text, "@/") && got != text {
			t.Errorf("%q gives %q and back %q", text, got, back)
		}
	}
}

func TestGeminiPromptOnStdin(t *testing.T) {
	b := newBench(t)
	g := &Gemini{Runner: b.demo.Runner}
	g.Bin = b.fakeProgram("gemini", `echo "$GEMINI_CLI_NO_RELAUNCH $@" >args; cat >prompt; cat <<'END'
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
	turn := b.turn("--yolo; $(rm -rf /)")
	var texts []string
	out := g.Run(t.Context(), turn, func(e coordinator.Event) {
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

// The rows of the table that no recording of gemini has.
func TestGeminiClasses(t *testing.T) {
	fail := func(msg string) string {
		text, err := json.Marshal(msg)
		must(t, err)
		return `{"type":"result","status":"error","error":{"type":"unknown","message":` + string(text) + `}}`
	}
	const badKey = `[API Error: {"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`
	good, bare := `{"type":"result","status":"success"}`, `{"type":"result","status":"error"}`
	said := `{"type":"message","role":"assistant","content":"[API Error: fetch failed] 429"}`
	for i, c := range []struct {
		lines []string
		exit  int
		class state.Class
	}{
		{[]string{said, good}, 0, ""},
		{[]string{said, good}, 173, state.ClassExit},
		{[]string{good}, 0, state.ClassOutputMissing},
		{[]string{said}, 0, state.ClassExit},
		{[]string{said, fail("x")}, 0, state.ClassExit},
		{[]string{fail("x")}, 173, state.ClassRateLimited},
		{[]string{fail("x")}, 147, state.ClassExit},
		{[]string{fail("[API Error: You exceeded your current quota, please check your plan and billing details.]")}, 173, state.ClassAuth},
		{[]string{fail("[API Error: You exceeded your current quota, please check your plan and billing details. Please retry in 34.5s.]")}, 173, state.ClassRateLimited},
		{[]string{fail("[API Error: please check your plan and billing details. * Quota exceeded for metric: requests, limit: 250]")}, 173, state.ClassRateLimited},
		{[]string{fail("x")}, 144, state.ClassExit},
		{[]string{fail(badKey)}, 144, state.ClassAuth},
		{[]string{fail(`[API Error: {"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}]`)}, 144, state.ClassContextFull},
		{[]string{fail("x")}, 247, state.ClassNetwork},
		{[]string{fail("x")}, 152, state.ClassNetwork},
		{[]string{fail("x")}, 53, state.ClassExit},
		{[]string{fail("x")}, 41, state.ClassAuth},
		{[]string{fail("[API Error: terminated]")}, 1, state.ClassNetwork},
		{[]string{fail("[API Error: exception TypeError: fetch failed sending request]")}, 1, state.ClassNetwork},
		{[]string{fail(`[API Error: {"error":{"code":429}}]`)}, -1, state.ClassRateLimited},
		{[]string{fail("your prompt says: terminated")}, 1, state.ClassExit},
		{[]string{`{"type":"result","status":"error","error":"only text"}`}, 1, state.ClassExit},
		{[]string{`{"type":"error","message":"Maximum session turns exceeded"}`}, 53, state.ClassExit},
		{[]string{`{"type":"error","message":"Maximum session turns exceeded"}`, bare}, 0, state.ClassExit},
		{[]string{`{"type":"error","severity":"error","message":"Model stream ended without a finish reason."}`, bare}, 0, state.ClassNetwork},
		{[]string{`{"type":"error","severity":"error","message":"The model response was blocked due to safety settings."}`, bare}, 0, state.ClassExit},
		{[]string{bare}, 0, state.ClassExit},
	} {
		if _, v := play("gemini", c.exit, c.lines...); v.class != c.class || v.msg == "" && v.class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
	for msg, want := range map[string]time.Duration{
		"[API Error: x\nSuggested retry after 60s.]":  time.Minute,
		"[API Error: Please retry in 34.5s. y]":       34500 * time.Millisecond,
		"[API Error: Please retry in 250ms.]":         250 * time.Millisecond,
		"[API Error: You have exhausted your quota.]": 0,
	} {
		at := geminiVerdict(msg, 173, testNow).retryAt
		if got := at.Sub(testNow); got != want && (want != 0 || !at.IsZero()) {
			t.Errorf("%q: %v", msg, got)
		}
	}
}

// An agent that cannot fork a session resumes it, and tells when it went astray.
func TestGeminiDoesNotFork(t *testing.T) {
	b := newBench(t)
	g := &Gemini{Runner: b.demo.Runner}
	g.Bin = b.fakeProgram("gemini", `echo "$@" >args; cat >/dev/null; echo '{"type":"init","session_id":"`+someUUID+`"}'; echo '{"type":"message","role":"assistant","content":"x"}'; echo '{"type":"result","status":"success"}'`)
	turn := b.turn("p")
	turn.Session, turn.Fork = "01a1fbfd-004f-7b52-a66b-d51066fa7873", true
	out := g.Run(t.Context(), turn, quiet)
	args, err := os.ReadFile(filepath.Join(turn.Workspace, "args"))
	must(t, err)
	if out.Forked || out.Session != someUUID || !strings.Contains(out.Note, "was not resumed") || !strings.Contains(string(args), "--resume "+turn.Session) {
		t.Errorf("%+v\n%s", out, args)
	}
}

// When gemini's history has the prompt of a turn, and its session is one that can
// be resumed.
func TestGeminiKept(t *testing.T) {
	begin := `{"type":"init","session_id":"` + someUUID + `"}`
	said := `{"type":"message","role":"assistant","content":"hm"}`
	tool := `{"type":"tool_use","tool_name":"x"}`
	fail := `{"type":"result","status":"error","error":{"message":"x"}}`
	for i, c := range []struct {
		lines         []string
		session, kept bool
	}{
		{[]string{begin}, false, false},
		{[]string{begin, fail}, false, false},
		{[]string{begin, said, fail}, false, false},
		{[]string{begin, said}, true, true}, // killed
		{[]string{begin, tool}, true, true},
		{[]string{begin, tool, said, fail}, true, true},
	} {
		if h, _ := play("gemini", 1, c.lines...); h.kept != c.kept || (h.session != "") != c.session {
			t.Errorf("row %d: session %q, kept %v", i, h.session, h.kept)
		}
	}
}

func TestGeminiProbe(t *testing.T) {
	b := newBench(t)
	home := filepath.Join(b.dir, "home")
	must(t, os.MkdirAll(filepath.Join(home, ".gemini"), 0o700))
	g := &Gemini{Runner: b.demo.Runner, Bin: b.fakeProgram("gemini", "echo 0.61.0")}
	base := slices.Concat(g.Env, []string{"GEMINI_CLI_HOME=" + home, envGeminiDefaults + "=" + filepath.Join(b.dir, "none")})
	write := func(name, text string) {
		must(t, os.WriteFile(filepath.Join(home, ".gemini", name), []byte(text), 0o600))
	}
	probe := func(extra ...string) Probe {
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
	g.Bin = b.fakeProgram("gemini", "echo 0.9.3")
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
	if v, err := (&Gemini{}).version(t.Context(), link); err != nil || v != "0.61.0" {
		t.Errorf("%q, %v", v, err)
	}
}

// What the machine has as defaults stays, and ours are added to it. They are not
// written where gemini would refuse to read them.
func TestGeminiDefaults(t *testing.T) {
	dir := rootDir(t)
	machine := filepath.Join(dir, "machine.json")
	g := &Gemini{Runner: Runner{Env: []string{envGeminiDefaults + "=" + machine}}}
	ours := func(dir string) map[string]any {
		t.Helper()
		must(t, g.writeDefaults(dir))
		path := filepath.Join(dir, geminiDefaults)
		env := g.env(dir)
		if told := lookupEnv(env, envGeminiDefaults) == path; told != (exists(path) == nil) {
			t.Errorf("%q, and a file: %v", env, !told)
		}
		if exists(path) != nil {
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

func TestBlankComments(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": "//x\"/*"} // y`: `{"a": "//x\"/*"}`,
		`{/*"*/"a":1,//"`:       `{     "a":1,`,
		`/*/ 1 */2/**/3`:        `        2    3`,
		"//a\n//b\n/**/{}":      "            {}",
		`"open`:                 `"open`,
		`"\`:                    `"\`,
		`/* open`:               ``,
	} {
		got := string(blankComments([]byte(in)))
		if strings.TrimRight(got, " ") != want || len(got) != len(in) {
			t.Errorf("%q gives %q, not %q", in, got, want)
		}
	}
}

// Which of gemini's failed tools it was denied.
func TestGeminiDenials(t *testing.T) {
	use := func(tool, params string) string {
		return `{"type":"tool_use","tool_name":"` + tool + `","tool_id":"1","parameters":` + params + `}`
	}
	fail := func(kind, msg string) string {
		return `{"type":"tool_result","tool_id":"1","status":"error","output":"x","error":{"type":"` + kind + `","message":"` + msg + `"}}`
	}
	for _, c := range []struct{ use, result, want string }{
		{use("run_shell_command", `{"command":"ls"}`), fail("tool_not_registered", "Tool not found"), `run_shell_command "ls" was denied: gemini is not offered this tool; to allow it: gemini_approval_mode = "yolo" and allow_dangerous = true`},
		{use("write_file", `{"file_path":"x.txt"}`), fail("tool_not_registered", "Tool not found"), `write_file "x.txt" was denied: gemini is not offered this tool; to allow it: gemini_approval_mode = "auto_edit"`},
		{use("replace", `{"file_path":"x.txt"}`), fail("policy_violation", "You are in Plan Mode"), `replace "x.txt" was denied: You are in Plan Mode; to allow it: gemini_approval_mode = "auto_edit"`},
		{use("write_file", `{"file_path":"/etc/x"}`), fail("invalid_tool_params", "Path not in workspace: Attempted path"), `write_file "/etc/x" was denied: Path not in workspace: Attempted path; to allow it: a workspace (-C) that has this path`},
		{use("write_file", `{"file_path":"x"}`), fail("invalid_tool_params", "content is missing"), ""},
		{use("run_shell_comand", `{"command":"ls"}`), fail("tool_not_registered", "Tool not found"), ""}, // the model's own invention
		{use("run_shell_command", `{"command":"ls"}`), `{"type":"tool_result","tool_id":"1","status":"success","output":"policy_violation"}`, ""},
		{use("run_shell_command", `{"command":"ls"}`), fail("shell_execute_error", "exit 1"), ""},
	} {
		h, _ := play("gemini", 0, c.use, c.result)
		got := ""
		for _, f := range h.denied {
			got += f.Message
		}
		if got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestGeminiUnset: what a .env file says of gemini is empty for it, but its keys, and what
// the user passes; what is for the workspace's own programs is left to them.
func TestGeminiUnset(t *testing.T) {
	b := newBench(t)
	g := &Gemini{Runner: Runner{Env: []string{"HOME=" + b.dir, "GEMINI_MODEL=mine"}}}
	dir := filepath.Join(b.dir, "shop")
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
