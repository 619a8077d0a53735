package codex

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

func TestCodexArgs(t *testing.T) {
	dir := "/home/ana/shop"
	const begin = `exec --json --skip-git-repo-check -c shell_environment_policy.set.CODEX_API_KEY="" -c shell_environment_policy.set.OPENAI_API_KEY="" `
	for _, c := range []struct {
		codex Agent
		turn  task.Turn
		want  string
	}{
		{Agent{}, task.Turn{}, begin + "-s workspace-write -C DIR -"},
		{Agent{}, task.Turn{Session: someUUID}, begin + "-s workspace-write -C DIR resume UUID -"},
		{Agent{}, task.Turn{Session: someUUID, Fork: true}, begin + "-s workspace-write -C DIR fork UUID -"},
		{Agent{Model: "gpt-5.5", Profile: "work"}, task.Turn{Session: someUUID}, begin + "-s workspace-write -C DIR -m gpt-5.5 -p work resume UUID -"},
		{Agent{Model: "gpt-5.5"}, task.Turn{Model: "gpt-6-sol"}, begin + "-s workspace-write -C DIR -m gpt-6-sol -"},
		{Agent{Sandbox: "read-only"}, task.Turn{}, begin + "-s read-only -C DIR -"},
		{Agent{Sandbox: "inherit"}, task.Turn{}, begin + "-C DIR -"},
		{Agent{Sandbox: "inherit", FullAuto: true}, task.Turn{}, begin + "-s workspace-write -c approval_policy=never -C DIR -"},
		{Agent{Sandbox: "danger-full-access"}, task.Turn{ReadOnly: true, Schema: "/runs/r/schema.json"}, begin + "-s read-only -C DIR --output-schema /runs/r/schema.json -"},
		{Agent{FullAuto: true}, task.Turn{ReadOnly: true}, begin + "-s read-only -C DIR -"},
	} {
		c.turn.Workspace = dir
		got := strings.NewReplacer(dir, "DIR", someUUID, "UUID").Replace(strings.Join(c.codex.args(c.turn), " "))
		if got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// TestKeepKeys: the model's shell has no key of codex, its account and its providers; nothing else of the
// user's own policy is set.
func TestKeepKeys(t *testing.T) {
	home := t.TempDir()
	must(t, os.WriteFile(filepath.Join(home, "config.toml"), []byte("[model_providers.one]\nenv_key = \"ONE_KEY\"\n[model_providers.two]\n"), 0o600))
	c := Agent{}
	c.Env, c.Account = []string{"CODEX_HOME=" + home, "GH_TOKEN=mine"}, []string{"A_TOKEN=x", "GREETING=hello"}
	var want []string
	for _, name := range []string{"A_TOKEN", "CODEX_API_KEY", "ONE_KEY", "OPENAI_API_KEY"} {
		want = append(want, "-c", "shell_environment_policy.set."+name+`=""`)
	}
	if got := c.keepKeys(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestCodexPromptOnStdin(t *testing.T) {
	b := agenttest.NewBench(t)
	c := fakeCodex(b, `echo "$@" >args; cat >prompt; echo '{"type":"thread.started","thread_id":"`+someUUID+`"}'
		echo '{"type":"item.completed","item":{"type":"agent_message","text":"42"}}'; echo '{"type":"turn.completed"}'`)
	turn := b.Turn("--dangerous; $(rm -rf /)")
	turn.Session = "01a1fbfd-004f-7b52-a66b-d51066fa7873"
	out := c.Run(t.Context(), turn, quiet)
	if out.Class != "" || out.Result != "42" || out.Session != someUUID || !strings.Contains(out.Note, "was not resumed") {
		t.Errorf("outcome: %+v", out)
	}
	sent := gatetest.Read(t, turn.Workspace, "prompt")
	if want, err := os.ReadFile(turn.Prompt); err != nil || sent != string(want) {
		t.Errorf("sent %q, %v", sent, err)
	}
	args := gatetest.Read(t, turn.Workspace, "args")
	if strings.Contains(args, "dangerous") {
		t.Errorf("arguments: %s", args)
	}
}

// The native binary of npm's package, in the three places where it may be.
func TestNativeCodex(t *testing.T) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	plat := "codex-" + runtime.GOOS + "-" + arch
	for _, place := range []string{
		"node_modules/@openai/" + plat + "/vendor/triple/bin/codex",
		"node_modules/@openai/codex/node_modules/@openai/" + plat + "/vendor/triple/bin/codex",
		"node_modules/@openai/codex/vendor/x-" + runtime.GOOS + "-y/bin/codex",
	} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		must(t, err)
		dir = filepath.Join(dir, "[odd] dir*")
		native := filepath.Join(dir, place)
		wrapper := filepath.Join(dir, "node_modules/@openai/codex/bin/codex.js")
		link := filepath.Join(dir, "node_modules/.bin/codex")
		for _, f := range []string{native, wrapper} {
			must(t, os.MkdirAll(filepath.Dir(f), 0o700))
			must(t, os.WriteFile(f, nil, 0o700))
		}
		must(t, os.MkdirAll(filepath.Dir(link), 0o700))
		must(t, os.Symlink(wrapper, link))
		if got := nativeBinary(link); got != native {
			t.Errorf("%s: %s", place, got)
		}
		must(t, os.Remove(native))
		if got := nativeBinary(link); got != link {
			t.Errorf("without a native binary: %s", got)
		}
	}
	if got := nativeBinary("/bin/true"); got != "/bin/true" {
		t.Error(got)
	}
}

func TestProbe(t *testing.T) {
	b := agenttest.NewBench(t)
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
		if p := c.Probe(t.Context()); !p.Found || p.Version != "codex-cli 1.2.3" || p.LoggedIn != r.in || !strings.Contains(p.Detail, r.detail) || p.Fix != r.fix || strings.Contains(p.Detail, "secret") {
			t.Errorf("%s: %+v", r.name, p)
		}
	}
	c.Bin = "no-such-codex"
	if p := c.Probe(t.Context()); p.Found || p.Fix == "" {
		t.Errorf("missing: %+v", p)
	}
}

func TestCodexExamine(t *testing.T) {
	b := agenttest.NewBench(t)
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
		found := c.Examine(t.Context())
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
	if found := (&Agent{Bin: "no-such-codex"}).Examine(t.Context()); len(found) != 1 || !found[0].Fatal {
		t.Errorf("missing: %+v", found)
	}
}

// Which of codex's failed commands its sandbox has denied.
func TestCodexDenials(t *testing.T) {
	item := func(status, output string) string {
		text, err := json.Marshal(output)
		must(t, err)
		return `{"type":"item.completed","item":{"type":"command_execution","command":"/bin/bash -lc 'make x'","aggregated_output":` + string(text) + `,"exit_code":1,"status":"` + status + `"}}`
	}
	const fs = `codex_sandbox = "danger-full-access" and`
	for _, c := range []struct{ sandbox, line, want string }{
		{"", item("declined", ""), fs},
		{"", item("failed", "bwrap: Creating new namespace failed\n"), "see stint doctor"},
		{"", item("failed", "--- FAIL: TestSandbox\nbwrap: Creating new namespace failed\n"), ""},
		{"", item("failed", "test_chown: Operation not permitted\nFAIL\n"), ""},
		{"", item("failed", "open /root/x: read-only file system"), ""},
		{"", item("failed", "curl: (6) Could not resolve host: example.com\n"), ""},
		{"", `{"type":"item.completed","item":{"type":"agent_message","text":"x: Read-only file system","status":"failed"}}`, ""},
		{"", `{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"/w/.git/x"}],"status":"failed"}}`, `apply_patch(/w/.git/x)`},
		{"", `{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"/w/x"}],"status":"completed"}}`, ""},
		{"read-only", item("declined", ""), `codex_sandbox = "workspace-write"`},
		{"inherit", item("declined", ""), "sandbox_mode in codex's config.toml"},
		{"danger-full-access", item("declined", ""), ""},
	} {
		d := NewDecoder(task.Turn{}, quiet).(*decoder)
		d.sandbox = c.sandbox
		d.Line([]byte(c.line))
		d.Line([]byte(c.line)) // once is enough
		got := ""
		for _, f := range d.Denied {
			got += f.Message + "\n"
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s %s\ngave %q, want %q", c.sandbox, c.line, got, c.want)
		}
	}
}

// An agent of a version that stint does not know may end in another way than it expects:
// then the error names the version and the events that were not understood.
func TestTurnWithoutItsEnd(t *testing.T) {
	b := agenttest.NewBench(t)
	begin := `{"type":"thread.started","thread_id":"` + someUUID + `"}`
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
func fakeCodex(b *agenttest.Bench, script string) *Agent {
	return &Agent{Bin: b.Program("codex", script), Runner: b.Runner}
}

// No text becomes an option.
func TestPromise6NoTextBecomesAnOption(t *testing.T) {
	b := agenttest.NewBench(t)
	of := func(a Agent) *Agent { a.Runner = b.Runner; return &a }
	agenttest.CheckRefusals(t, b, []agenttest.Refusal{
		{Agent: of(Agent{}), Turn: task.Turn{Session: "--last"}, Class: state.ClassSessionLost},
		{Agent: of(Agent{}), Turn: task.Turn{Session: "urn:uuid:" + someUUID}, Class: state.ClassSessionLost},
		{Agent: of(Agent{}), Turn: task.Turn{Model: "--dangerously-bypass-approvals-and-sandbox"}, Class: state.ClassExit},
		{Agent: of(Agent{Profile: "-x"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(Agent{Sandbox: "-x"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassExit},
		{Agent: of(Agent{Bin: "no-such-codex"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
		{Agent: of(Agent{Bin: "/no/such/codex"}), Turn: task.Turn{RunDir: b.Dir}, Class: state.ClassAgentMissing},
	})
}

func TestPlan(t *testing.T) {
	b := agenttest.NewBench(t)
	a := fakeCodex(b, `[ "$1" = --version ] || touch started`)
	a.Profile = "work"
	agenttest.CheckPlan(t, b, a)
}

func TestCommands(t *testing.T) {
	a := &Agent{}
	if got := a.ResumeCommand(someUUID, "/w"); got != "cd /w && codex resume "+someUUID || a.LoginCommand() != "codex login" {
		t.Errorf("%s; %s", got, a.LoginCommand())
	}
}
