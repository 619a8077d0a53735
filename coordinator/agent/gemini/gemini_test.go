package gemini

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent"
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
	dir := rootDir(t)
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
	home := t.TempDir()
	g := &Agent{Runner: agent.Runner{Env: []string{"HOME=" + home, "GEMINI_MODEL=mine"}}}
	dir := filepath.Join(home, "shop")
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

func TestCommands(t *testing.T) {
	if c := (&Agent{Bin: "/opt/my gemini"}).CLI(); c.Resume != "'/opt/my gemini' --resume" || c.LogIn != "export GEMINI_API_KEY=..." {
		t.Errorf("%s; %s", c.Resume, c.LogIn)
	}
}

// rootDir makes a directory that only root can change, as all above it.
func rootDir(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	must(t, err)
	dir, err := os.MkdirTemp(home, "stint-test-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	if !agent.RootOwned(dir) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s can be changed by others than root", dir)
		}
		t.Skip("others than root can change " + dir)
	}
	return dir
}
