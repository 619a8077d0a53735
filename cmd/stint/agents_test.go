package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/claude"
	"stint/coordinator/agent/codex"
	"stint/coordinator/agent/demo"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/agent/gemini"
)

func TestAgentEnv(t *testing.T) {
	common := []string{
		"PATH=/bin", "HOME=/h", "LC_ALL=C", "LANG=C", "XDG_CONFIG_HOME=/c", "HTTPS_PROXY=p", "https_proxy=p", "NO_PROXY=n",
		"GOFLAGS=-v", "SSH_AUTH_SOCK=/s", "MY_TOKEN=t", "EMPTY=", "STINT_STATE_DIR=/s",
	}
	own := map[string][]string{
		"codex":  {"OPENAI_API_KEY=k", "CODEX_HOME=/x"},
		"claude": {"ANTHROPIC_API_KEY=k", "CLAUDE_CONFIG_DIR=/c", "CLAUDE_CODE_OAUTH_TOKEN=t", "ANTHROPIC_DEFAULT_OPUS_MODEL=m", "DISABLE_TELEMETRY=1", "API_TIMEOUT_MS=1"},
		"gemini": {"GEMINI_API_KEY=k", "GEMINI_CLI_HOME=/g", "GOOGLE_CLOUD_PROJECT=p", "GOOGLE_GEMINI_BASE_URL=u"},
		"demo":   nil,
	}
	nobodys := []string{
		"AWS_SECRET_ACCESS_KEY=s", "GITHUB_TOKEN=t", "STINT_CONFIG=/s", "LD_PRELOAD=/x", "PATHX=1", "XPATH=1",
		"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=x", "CLAUDE_PID=1", "ANTHROPIC_SESSION_ID=x", "GEMINI_CLI=1", "GEMINI_SESSION_ID=x", "CLAUDE_CODE_SSE_PORT=1",
	}
	environ := slices.Concat(common, nobodys)
	for _, name := range agentNames {
		environ = append(environ, own[name]...)
	}
	for name, list := range own {
		got := agentEnv(environ, name, []string{"MY_TOKEN", "EMPTY", "NOT_SET"})
		if want := slices.Concat(common, list); !slices.Equal(got, want) {
			t.Errorf("%s gets %q, want %q", name, got, want)
		}
	}
	// What belongs to a cloud goes with the switch that tells claude to use it, or not at all.
	clouds := []string{
		"AWS_REGION=r", "AWS_SECRET_ACCESS_KEY=s", "ANTHROPIC_BEDROCK_BASE_URL=u", "CLAUDE_CODE_SKIP_BEDROCK_AUTH=1",
		"GOOGLE_APPLICATION_CREDENTIALS=/g", "GOOGLE_CLOUD_PROJECT=p", "VERTEX_REGION_CLAUDE_4=e", "CLOUD_ML_REGION=r", "ANTHROPIC_VERTEX_PROJECT_ID=p", "CLAUDE_CODE_SKIP_VERTEX_AUTH=1",
		"AZURE_CLIENT_SECRET=z", "ANTHROPIC_FOUNDRY_RESOURCE=x", "CLAUDE_CODE_SKIP_FOUNDRY_AUTH=1",
	}
	for switched, want := range map[string][]string{
		"CLAUDE_CODE_USE_BEDROCK=1":       clouds[:4],
		"CLAUDE_CODE_USE_BEDROCK=True":    clouds[:4],
		"CLAUDE_CODE_USE_BEDROCK=0":       nil,
		"CLAUDE_CODE_USE_BEDROCK=off":     nil,
		"CLAUDE_CODE_USE_BEDROCK=":        nil,
		"CLAUDE_CODE_USE_VERTEX=1":        clouds[4:10],
		"CLAUDE_CODE_USE_FOUNDRY=1":       clouds[10:],
		"CLAUDE_CODE_USE_SOMETHING_NEW=1": nil,
	} {
		if want != nil {
			want = append([]string{switched}, want...)
		}
		if got := agentEnv(append([]string{switched}, clouds...), "claude", nil); !slices.Equal(got, want) {
			t.Errorf("with %s claude gets %q", switched, got)
		}
		if got := agentEnv(append([]string{switched}, clouds...), "codex", nil); len(got) != 0 {
			t.Errorf("with %s codex gets %q", switched, got)
		}
	}
	// A name that is a pattern gone wrong lets nothing through.
	if got := agentEnv([]string{"[=x", "A=1"}, "codex", []string{"["}); len(got) != 0 {
		t.Errorf("agents get %q", got)
	}
}

// TestAgentsFromConfig: each adapter has the settings of its agent, and all have the limits.
func TestAgentsFromConfig(t *testing.T) {
	c := mustLoad(t, `codex_full_auto = true
codex_sandbox = "read-only"
claude_bin = "/opt/claude"
claude_allowed_tools = ["Edit", "Bash(git log:*, x)"]
claude_max_turns = 7
gemini_approval_mode = "inherit"
limit_cpu = "1h"
limit_memory = "64GiB"
nice = 6
`, nil, nil)
	codex, claude, gemini := adapterOf(c, "codex", "").(*codex.Agent), adapterOf(c, "claude", "").(*claude.Agent), adapterOf(c, "gemini", "").(*gemini.Agent)
	if codex.Sandbox != "workspace-write" || gemini.ApprovalMode != "inherit" ||
		claude.Bin != "/opt/claude" || claude.MaxTurns != 7 || !slices.Equal(claude.AllowedTools, []string{"Edit", "Bash(git log:*, x)"}) {
		t.Errorf("%+v, %+v, %+v", codex, claude, gemini)
	}
	want, demo := hold.Resources{CPU: time.Hour, Files: 4096, Memory: 64 << 30, Nice: 6}, adapterOf(c, "demo", "/s").(*demo.Agent)
	for name, got := range map[string]hold.Resources{"codex": codex.Resources, "claude": claude.Resources, "gemini": gemini.Resources, "demo": demo.Resources} {
		if got != want {
			t.Errorf("%s has the limits %+v, want %+v", name, got, want)
		}
	}
}

// Every name that the configuration takes for an agent has an adapter, and every CLI says how to log in.
func TestEveryAgentHasAnAdapter(t *testing.T) {
	all := agents(mustLoad(t, "", nil, nil), t.TempDir())
	for _, name := range agentNames {
		if _, ok := all[name].(agent.Adapter); !ok {
			t.Errorf("%s has no adapter that stint can ask", name)
		}
		if (loginCommand(name) == "") != (name == "demo") {
			t.Errorf("the login command of %s is %q", name, loginCommand(name))
		}
	}
	if session, kept := findSession("nobody", t.TempDir()); session != "" || kept {
		t.Error("an unknown agent has a session")
	}
}

// fakeCLIs returns a configuration whose CLIs are scripts that count their starts in
// a file. Codex is logged in if the file "login" is beside them.
func fakeCLIs(t *testing.T, settings string) (c *Config, dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\necho x >>" + dir + "/starts\ncase $1 in --version) echo codex-cli 0.169.0;; *) test -e " + dir + "/login;; esac\n"
	must(t, os.WriteFile(filepath.Join(dir, "codex"), []byte(script), 0o700))
	t.Setenv("CODEX_HOME", dir)
	t.Setenv("CODEX_API_KEY", "")
	return mustLoad(t, "codex_bin = \""+dir+"/codex\"\nclaude_bin = \"/does/not/exist\"\ngemini_bin = \"/does/not/exist\"\n"+settings, nil, nil), dir
}

func TestDefaultAgent(t *testing.T) {
	c := mustLoad(t, "codex_bin = \"/none\"\nclaude_bin = \"/none\"\ngemini_bin = \"/none\"\n", nil, nil)
	if got := newReadiness(t.Context(), c, newAccountsFile(t.TempDir())).defaultAgent(nil); got != "demo" {
		t.Errorf("without any CLI: %q", got)
	}
	c, dir := fakeCLIs(t, "agent = \"gemini\"\n")
	if got := newReadiness(t.Context(), c, newAccountsFile(t.TempDir())).defaultAgent(nil); got != "gemini" {
		t.Errorf("as configured: %q", got)
	}
	c.Agent = ""
	r := newReadiness(t.Context(), c, newAccountsFile(t.TempDir()))
	if got := r.defaultAgent(nil); got != "demo" || r.ready("codex", nil) || !r.ready("demo", nil) || r.ready("nobody", nil) {
		t.Errorf("codex is not logged in: %q", got)
	}
	other := newAccountsFile(t.TempDir())
	put(t, other.path, "[account.two]\ntool = \"codex\"\nenv = { A = \"b\" }\n")
	if got := newReadiness(t.Context(), c, other).defaultAgent(nil); got != "codex" {
		t.Errorf("codex has another account: %q", got)
	}
	put(t, filepath.Join(dir, "login"), "")
	if got := r.defaultAgent(nil); got != "demo" {
		t.Errorf("it looked again at once: %q", got)
	}
	r.seen["codex "] = seen{at: time.Now().Add(-missingFor)}
	if got := r.defaultAgent(nil); got != "codex" || !r.ready("codex", nil) {
		t.Errorf("codex is logged in: %q", got)
	}
	before := starts(t, dir)
	if r.defaultAgent(nil) != "codex" || !r.ready("codex", nil) || starts(t, dir) != before {
		t.Error("codex is looked at for every task")
	}
	// A logout shows, but tasks without an agent stay with theirs.
	must(t, os.Remove(filepath.Join(dir, "login")))
	r.seen["codex "] = seen{ready: true, at: time.Now().Add(-readyFor)}
	if got := r.defaultAgent(nil); got != "codex" || r.ready("codex", nil) {
		t.Errorf("after a logout: %q", got)
	}
}

func starts(t *testing.T, dir string) int {
	t.Helper()
	data := get(t, filepath.Join(dir, "starts"))
	return strings.Count(string(data), "\n")
}

// The first CLI that is ready is the default, in the order codex, claude, gemini.
func TestOrderOfAgents(t *testing.T) {
	c := mustLoad(t, "", nil, nil)
	for _, test := range []struct {
		ready []string
		want  string
	}{
		{nil, "demo"},
		{[]string{"gemini"}, "gemini"},
		{[]string{"gemini", "claude"}, "claude"},
		{[]string{"gemini", "claude", "codex"}, "codex"},
	} {
		r := newReadiness(t.Context(), c, newAccountsFile(t.TempDir()))
		for _, name := range cliNames {
			r.seen[name+" "] = seen{ready: slices.Contains(test.ready, name), at: time.Now()}
		}
		if got := r.defaultAgent(nil); got != test.want {
			t.Errorf("with %q ready it is %s, want %s", test.ready, got, test.want)
		}
	}
}

// TestDoctorOnAgents: a CLI that is missing is a problem where it is chosen; a program that
// is configured and missing is told in any case. agent_choice.txtar has the rest.
func TestDoctorOnAgents(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for settings, want := range map[string]finding{
		"":                         {Check: "agents", Status: healthWarn},
		"fallback = [\"codex\"]\n": {Check: "codex", Status: healthFail},
		"[workspace.\"/w\"]\nagent = \"codex\"\n": {Check: "codex", Status: healthFail},
		"claude_bin = \"/none\"\n":                {Check: "claude", Status: healthWarn},
	} {
		cfg := mustLoad(t, settings, nil, nil)
		got := examineAgents(cfg, lookAtCLIs(t.Context(), cfg))
		if len(got) == 0 || got[0].Check != want.Check || got[0].Status != want.Status || got[0].Try == "" {
			t.Errorf("with %q: %+v", settings, got)
		}
	}
}

// What stops an agent is a problem where it is needed, else a warning.
func TestFatalFindings(t *testing.T) {
	l := &look{
		name: "claude", probe: agent.Probe{Found: true, LoggedIn: true, Path: "/c", Version: "1"},
		problems: []agent.Problem{{Text: "home is read-only", Fix: "chmod", Fatal: true}, {Text: "old", Fix: "npm"}},
	}
	for needed, want := range map[bool]string{true: healthFail, false: healthWarn} {
		got := l.findings(needed)
		if len(got) != 3 || got[0].Status != healthOK || got[1] != (finding{"claude", want, "home is read-only", "chmod"}) || got[2].Status != healthWarn {
			t.Errorf("needed %v: %+v", needed, got)
		}
	}
}

// The versions that CI runs are no newer than the newest ones that doctor calls tested.
func TestNewestTested(t *testing.T) {
	text := get(t, "../../.ci/run")
	for _, name := range cliNames {
		m := regexp.MustCompile(`(?m)^` + name + `_version=(\d+\.\d+\.\d+)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("no version of %s", name)
		}
		if tested := findKind(name).Tested; tested.IsNewer(string(m[1])) || tested.IsOlder(string(m[1])) {
			t.Errorf("%s %s is not between %s and %s", name, m[1], tested.Oldest, tested.Newest)
		}
	}
}
