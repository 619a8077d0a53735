package codex

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet(task.Event) {}

const someUUID = "01a1fbfd-004f-7b52-a66b-d51066fa7872"

var testNow = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

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
		{Agent{Sandbox: "danger-full-access"}, task.Turn{ReadOnly: true, Schema: "/runs/r/schema.json"}, begin + "-s read-only -C DIR --output-schema /runs/r/schema.json -"},
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

// The native binary of npm's package, in the two places where it may be.
func TestNativeCodex(t *testing.T) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	plat := "codex-" + runtime.GOOS + "-" + arch
	for _, place := range []string{
		"node_modules/@openai/" + plat + "/vendor/triple/bin/codex",
		"node_modules/@openai/codex/node_modules/@openai/" + plat + "/vendor/triple/bin/codex",
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

func TestCommands(t *testing.T) {
	if c := (&Agent{}).CLI(); c.Resume != "codex resume" || c.LogIn != "codex login" {
		t.Errorf("%s; %s", c.Resume, c.LogIn)
	}
}
