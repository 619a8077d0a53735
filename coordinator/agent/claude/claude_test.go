package claude

import (
	"os"
	"path/filepath"
	"runtime"
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
	c.Bin = filepath.Join(t.TempDir(), "claude")
	must(t, os.WriteFile(c.Bin, []byte("#!/bin/sh\nexit 1\n"), 0o700))
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

func TestCommands(t *testing.T) {
	if c := (&Agent{}).CLI(); c.Resume != "claude --resume" || c.LogIn != "claude auth login" {
		t.Errorf("%s; %s", c.Resume, c.LogIn)
	}
}
