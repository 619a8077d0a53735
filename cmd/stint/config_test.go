package main

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"stint/prompt"
)

// load reads a configuration from the text of a file, an environment and options.
func load(t *testing.T, file string, env, flags map[string]string) (*Config, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.toml")
	put(t, name, file)
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	return loadConfig(configSource{file: name, required: true, lookup: lookup, flags: flags})
}

func mustLoad(t *testing.T, file string, env, flags map[string]string) *Config {
	t.Helper()
	c, err := load(t, file, env, flags)
	must(t, err)
	return c
}

// TestNoTriggerSession: the three keys of follow-ups are turned off by the same words.
func TestNoTriggerSession(t *testing.T) {
	for value, want := range map[string]string{"off": "", "none": "", "": "", "mender": "mender"} {
		c := mustLoad(t, "trigger_session_key = \""+value+"\"\n", nil, nil)
		if got := workspaceSettings(c)("/").TriggerSession; got != want {
			t.Errorf("%q: the session is %q, want %q", value, got, want)
		}
		if shown := findKey("trigger_session_key").get(c); shown != cmp.Or(want, "off") {
			t.Errorf("%q is shown as %q", value, shown)
		}
	}
}

func TestConfigLayers(t *testing.T) {
	const file = `max_workers = 2
timeout = "1h"
[workspace."/srv"]
timeout = "2h"
max_attempts = 7
[workspace."/srv/deep"]
timeout = "3h"
`
	env := map[string]string{"STINT_MAX_WORKERS": "5", "STINT_MAX_ATTEMPTS": "6"}
	c := mustLoad(t, file, env, map[string]string{"max_workers": "8"})
	for _, want := range []struct {
		dir, key string
		value    any
		origin   string
	}{
		{"/", "max_workers", 8, "--max-workers"},
		{"/", "timeout", "1h", "config.toml:2"},
		{"/srv", "timeout", "2h", "config.toml:4"},
		{"/srv/sub", "timeout", "2h", "config.toml:4"},
		{"/srv/deep/er", "timeout", "3h", "config.toml:7"},
		{"/srvshop", "timeout", "1h", "config.toml:2"},
		{"/srv", "max_attempts", 6, "STINT_MAX_ATTEMPTS"},
		{"/srv", "grace", "5s", "default"},
	} {
		w := c.forWorkspace(want.dir)
		if got := findKey(want.key).get(w); got != want.value || w.origins[want.key].where != want.origin {
			t.Errorf("%s in %s: %v from %s, want %v from %s", want.key, want.dir, got, w.origins[want.key].where, want.value, want.origin)
		}
	}
}

// TestWorkspaceSettings: they are all that holds in the workspace, but for models, of
// which only those of its section are for its tasks.
func TestWorkspaceSettings(t *testing.T) {
	c := mustLoad(t, "timeout = \"1h\"\nclaude_model = \"a\"\n[workspace.\"/w\"]\nmax_attempts = 9\noutput_policy = \"none\"\nverify_timeout = \"0\"\ncodex_model = \"b\"\n", nil, nil)
	s := workspaceSettings(c)("/w/x")
	if s.MaxAttempts != 9 || s.OutputPolicy != "" || s.VerifyTimeout != 0 || s.Timeout != time.Hour || s.ResumePolicy != "auto" || len(s.Models) != 1 || s.Models["codex"] != "b" {
		t.Errorf("in the workspace: %+v", s)
	}
	if s := workspaceSettings(c)("/elsewhere"); s.MaxAttempts != 3 || len(s.Models) != 0 {
		t.Errorf("elsewhere: %+v", s)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"unknown key", "\n\nmax_worker = 3\n", `config.toml:3: unknown key "max_worker"; did you mean max_workers?`},
		{"nothing like it", "zzzzzzzz = 1\n", `config.toml:1: unknown key "zzzzzzzz"`},
		{"unknown section", "[memory]\npaths = 1\n", `config.toml:1: unknown key "memory"`},
		{"the first of two", "# x\nworkers_max = 1\nfoo = 1\n", `config.toml:2: `},
		{"text for a number", "max_workers = \"3\"\n", `config.toml:1: max_workers must be a whole number`},
		{"bad duration", "timeout = \"soon\"\n", `config.toml:1: timeout: "soon" is not a duration such as 90s, 10m, 2h or 3d`},
		{"out of range", "max_workers = 0\n", `config.toml:1: max_workers: "0" is not a whole number from 1 to 256`},
		{"bad choice", "\n\ncodex_sandbox = \"open\"\n", `config.toml:3: codex_sandbox: "open" is not one of read-only, workspace-write, danger-full-access, inherit`},
		{"a value in env", "env = [\"A=b\"]\n", `config.toml:1: env: "A=b" is not the name of an environment variable; values are taken from the master's environment`},
		{"relative path", "workspace_root = \"x\"\n", `config.toml:1: workspace_root: "x" is not an absolute path`},
		{"not for one workspace", "[workspace.\"/w\"]\nmax_workers = 1\n", `config.toml:2: max_workers cannot be set for one workspace; move it above the first section`},
		{"relative workspace", "[workspace.w]\ntimeout = \"1s\"\n", `config.toml:1: "w" is not an absolute path; write [workspace."/path"]`},
		{"workspace is a value", "workspace = 1\n", `config.toml:1: workspace is not a section; write [workspace."/path"]`},
		{"no TOML", "a = \n", "config.toml:1: "},
		{"twice", "max_workers = 1\nmax_workers = 2\n", "config.toml:2: "},
		{"a danger", "# x\ncodex_sandbox = \"danger-full-access\"\n", `config.toml:2: codex_sandbox is danger-full-access, with which the agent can do whatever you can; use workspace-write, or permit it with allow_dangerous = true`},
		{"unknown agent", "agent = \"gpt\"\n", `config.toml:1: agent: "gpt" is not one of codex, claude, gemini, demo`},
		{"half a rule", "claude_allowed_tools = [\"Bash(git log\"]\n", `config.toml:1: claude_allowed_tools: the parentheses of "Bash(git log" do not match; write a rule as "Bash(go test *)", and `},
		{"contradiction", "backoff_base = \"10m\"\n", "backoff_base (10m) is longer than backoff_max (5m)"},
		{"notify is one block", "[notify]\ncommand = \"x\"\n", "config.toml:1: notify is not a list of blocks; write [[notify]]"},
		{"a destination that is none", "[[notify]]\ndesktop = true\n[[notify]]\nwebhok = \"x\"\n", `config.toml:4: unknown key "notify.webhok"; did you mean notify.webhook?`},
		{"a key of the top level in a block", "[[notify]]\ndesktop = true\ntimeout = \"1h\"\n", `config.toml:3: unknown key "notify.timeout"; to set timeout for all tasks, move it above the first section`},
		{"no destination", "[[notify]]\non = [\"done\"]\n[[notify]]\ndesktop = true\n", "config.toml:1: a [[notify]] block needs one of command,"},
		{"an unknown event", "[[notify]]\non = [\"fail\"]\n", `config.toml:2: notify.on: "fail" is not one of done, failed,`},
		{"a destination that is a list", "[[notify]]\ncommand = [\"a\", \"b\"]\n", "config.toml:2: notify.command has a value of another type; write command = \"…\", one string"},
		{"a bad URL, which may be a secret", "[[notify]]\nntfy = \"ftp://secret\"\n", "config.toml:2: notify.ntfy: this is not a URL such as"},
		{"a chat that is none", "[[notify]]\ntelegram = \"a/b\"\n", `config.toml:2: notify.telegram: "a/b" is not the id of a chat`},
		{"a chat without a bot", "[[notify]]\ntelegram = \"42\"\n", "config.toml:2: notify.telegram: the bot's token is missing"},
		{"governed is one block", "[governed]\npath = \"x\"\n", "config.toml:1: governed is not a list of blocks; write [[governed]]"},
		{"no workspace to govern in", "\n[[governed]]\npath = \"a.md\"\nkind = \"memory\"\n", `config.toml:2: governed.workspace: "" is not an absolute path; name one here, or in workspace_root`},
		{"an unknown kind", "workspace_root = \"/w\"\n[[governed]]\npath = \"a.md\"\nkind = \"lesson\"\n", `config.toml:4: governed.kind: "lesson" is not one of memory, experience, cognition`},
		{"no kind", "workspace_root = \"/w\"\n[[governed]]\npath = \"a.md\"\n", `config.toml:2: governed.kind: "" is not one of`},
		{"an absolute file to govern", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \"/etc/a.md\"\n", `config.toml:4: governed.path: "/etc/a.md" is not the path of a note below the workspace`},
		{"a file to govern outside", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \"a/../../b.md\"\n", `config.toml:4: governed.path: "a/../../b.md" is not the path of a note below the workspace`},
		{"a file of git", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \".git/config\"\n", `config.toml:4: governed.path: `},
		{"the archive to govern", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \"memory/archive/a.md\"\n", `config.toml:4: governed.path: "memory/archive/a.md" cannot be governed`},
		{"a name that no object may have", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \"a:b#c.md\"\n", `config.toml:4: governed.path: "a:b#c.md" cannot be governed`},
		{"a gate that agents may open", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \"a.md\"\ngate = \"/w/a.md\"\n", `config.toml:5: governed.gate: /w/a.md lies in the workspace`},
		{"a gate somewhere", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \"a.md\"\ngate = \"../a.md\"\n", `config.toml:5: governed.gate: "../a.md" is not an absolute path`},
		{"a file that is governed twice", "[[governed]]\nkind = \"memory\"\nworkspace = \"/w\"\npath = \"a/b.md\"\n[[governed]]\nkind = \"memory\"\nworkspace = \"/w/a/../a\"\npath = \"./b.md\"\n", `config.toml:8: governed.path: another [[governed]] block has /w/a/b.md already; take one of them out`},
		{"an unknown key of a file to govern", "[[governed]]\nfile = \"a.md\"\n", `config.toml:2: unknown key "governed.file"; did you mean governed.`},
		{"an empty address", "http = \"\"\n", "config.toml:1: http: "},
		{"of a layer that another one overrules", "idle_timeout = \"x\"", "config.toml:1: idle_timeout: "},
	} {
		_, err := load(t, c.file, map[string]string{"STINT_IDLE_TIMEOUT": "1s"}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) && !(filepath.IsAbs(err.Error()) && strings.Contains(err.Error(), "/"+c.want)) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if exitCode(err) != exitUsage {
			t.Errorf("%s: exit code %d, want %d", c.name, exitCode(err), exitUsage)
		}
	}
}

// A workspace may be a link: a file is governed once by either name.
func TestGovernedTwiceByALink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	block := func(dir string) string {
		return "[[governed]]\nkind = \"memory\"\nworkspace = \"" + dir + "\"\npath = \"a.md\"\n"
	}
	if _, err := load(t, block(dir)+block(dir+"/link"), nil, nil); err == nil || !strings.Contains(err.Error(), "config.toml:8: governed.path: another [[governed]] block has ") {
		t.Errorf("%v", err)
	}
	if c := mustLoad(t, block(dir)+block(dir+"/other"), nil, nil); len(c.Governed) != 2 {
		t.Errorf("%+v", c.Governed)
	}
}

// What lets an agent do anything has to be permitted, wherever it is set.
func TestDangerousSettings(t *testing.T) {
	for _, d := range dangers() {
		if _, err := load(t, "", map[string]string{findKey(d.key).env(): d.value}, nil); err == nil || !strings.HasPrefix(err.Error(), findKey(d.key).env()+": "+d.key+" is "+d.value) {
			t.Errorf("%s in the environment: %v", d.key, err)
		}
		c := mustLoad(t, "allow_dangerous = true\n"+d.key+" = \""+d.value+"\"\n", nil, nil)
		if c.agents[d.key] != d.value {
			t.Errorf("%s is %q", d.key, c.agents[d.key])
		}
		if mustLoad(t, "", nil, nil).agents[d.key] != d.instead {
			t.Errorf("%s is not %s by default", d.key, d.instead)
		}
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string // nil: refused
	}{
		{"", []string{}},
		{" , ", []string{}},
		{"[]", []string{}},
		{"Edit", []string{"Edit"}},
		{"Edit, Bash(git log:*) ,Write", []string{"Edit", "Bash(git log:*)", "Write"}},
		{`["Edit", " Bash(git log:*, x)", "A(b(c,d),e)"]`, []string{"Edit", "Bash(git log:*, x)", "A(b(c,d),e)"}},
		{`['Bash(echo \),x)', ""]`, []string{`Bash(echo \),x)`}},
		{`Edit\`, []string{`Edit\`}},
		{"Bash(a, b)", nil},
		{"Bash(x", nil},
		{"x)", nil},
		{")(", nil},
		{"a\nb", nil},
		{"a\x00", nil},
		{"[", nil},
		{"[Edit]", nil},
		{"[1]", nil},
	} {
		got, err := readList(c.text, checkRule)
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v, want %q", c.text, got, err, c.want)
		}
	}
}

func FuzzReadList(f *testing.F) {
	f.Add("Edit, Bash(git log:*)")
	f.Add(`["a,b", 'c\']`)
	f.Fuzz(func(t *testing.T, s string) {
		rules, err := readList(s, checkRule)
		if err != nil || !utf8.ValidString(s) {
			return
		}
		again, err := readList(tomlText(rules), checkRule)
		if err != nil || !slices.Equal(rules, again) {
			t.Errorf("%q: %q, read again %q, %v", s, rules, again, err)
		}
	})
}

// What `config show` prints is a configuration file with the same meaning.
func TestConfigShowRoundTrip(t *testing.T) {
	c := mustLoad(t, "output_policy = \"a \\\"b\\\"\\n\\tc\\u0001\\U0001F600\"\nenv = [\"A\", \"B\"]\nagent = \"demo\"\nfallback = [\"claude\", \"gemini\"]\nclaude_allowed_tools = [\"Edit\", \"Bash(a, \\\"b c\\\")\"]\nlimit_memory = \"64GiB\"\n", nil, nil)
	var b strings.Builder
	for _, k := range c.shown() {
		b.WriteString(k.Key + " = " + tomlText(k.Value) + "\n")
	}
	again := mustLoad(t, b.String(), nil, nil)
	for i := range keys {
		if a, b := keys[i].get(c), keys[i].get(again); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %v, read again %v", keys[i].name, a, b)
		}
	}
}

func FuzzTomlString(f *testing.F) {
	f.Add("a\"b\\c\nd\x7f\u2028é")
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "")
		var got struct{ V string }
		if _, err := toml.Decode("V = "+tomlText(s), &got); err != nil {
			t.Fatal(err)
		}
		if got.V != s {
			t.Errorf("%q became %q", s, got.V)
		}
	})
}

func TestDocument(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ value, text, wrong string }{
		{"default", prompt.DefaultPolicy, ""},
		{"none", "", ""},
		{"Be kind.", "Be kind.", ""},
		{"@" + put(t, dir+"/policy.md", "\xef\xbb\xbfBe brief.\n"), "Be brief.\n", ""},
		{"breif", "", "there is no output policy"},
		{"@policy.md", "", "is not an absolute path"},
		{"@" + dir + "/none.md", "", "no such file"},
		{"@" + dir, "", "is not a file"},
		{"@" + put(t, dir+"/large", strings.Repeat("x", maxDocument+1)), "", "it has more than 65536 bytes"},
		{"@" + put(t, dir+"/binary", "\x00\x01"), "", "no text in UTF-8"},
	} {
		var c Config
		err := findKey("output_policy").set(&c, tc.value)
		switch {
		case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
			t.Errorf("%s: %v, and not %s", tc.value, err, tc.wrong)
		case tc.wrong == "" && (err != nil || c.OutputPolicy != tc.text):
			t.Errorf("%s: %+v, %v", tc.value, c.OutputPolicy, err)
		}
	}
}

// A template is checked when the configuration is read: what is wrong is named with
// the file that it stands in, and with its line there.
func TestPromptTemplate(t *testing.T) {
	dir := t.TempDir()
	good, bad := put(t, dir+"/good.tmpl", "Be kind.\n{{.Memory}}\n"), put(t, dir+"/bad.tmpl", "Be kind.\n{{.Memry}}\n")
	set := func(value string) string { return "# x\nprompt_template = " + tomlText(value) + "\n" }
	for name, tc := range map[string]struct{ file, want string }{
		"field":           {set("{{.Memry}}"), "config.toml:2: prompt_template: line 1: there is no field .Memry; there are .Session, .Memory"},
		"field in a file": {set("@" + bad), "config.toml:2: prompt_template: " + bad + ": line 2: there is no field .Memry; there are "},
		"syntax":          {set("a\n{{if .Task}}"), "config.toml:2: prompt_template: line 2: unexpected EOF"},
		"too long":        {set(strings.Repeat("x", maxDocument+1)), "config.toml:2: prompt_template: the template has more than the 65536 bytes"},
		"of a workspace":  {"[workspace.\"/w\"]\n" + set("{{.X}}"), "config.toml:3: prompt_template: line 1: there is no field .X"},
	} {
		if _, err := load(t, tc.file, nil, nil); err == nil || !strings.Contains(err.Error(), "/"+tc.want) {
			t.Errorf("%s: %v, and not %s", name, err, tc.want)
		}
	}
	c := mustLoad(t, set("Hello.")+"[workspace.\"/w\"]\nprompt_template = \"@"+good+"\"\n[workspace.\"/d\"]\nprompt_template = \"default\"\n", nil, nil)
	if err := os.Remove(good); err != nil { // it was read with the configuration
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"/": "Hello.\n", "/w/x": "Be kind.\n", "/d": "## Session\n\n"} {
		got := prompt.Build(prompt.Input{Message: "m", Template: workspaceSettings(c)(dir).PromptTemplate})
		if got != want+"\n## User message\n\nm" {
			t.Errorf("in %s: %q", dir, got)
		}
	}
}

// The template in the manual is one.
func TestTemplateOfTheManual(t *testing.T) {
	manual, text := get(t, "help/prompts.md"), ""
	for _, b := range codeBlocks(manual) {
		if b.language == "template" {
			text = b.text
		}
	}
	if tmpl, err := prompt.ParseTemplate(text); tmpl == nil || err != nil {
		t.Errorf("%q: %v", text, err)
	}
	for _, name := range prompt.TemplateFields() {
		if !strings.Contains(string(manual), "{{."+name+"}}") {
			t.Errorf("the manual does not name .%s", name)
		}
	}
}

// FuzzSetKey: whatever the file is, a key is set with all other settings as they were and each
// whole line of comment kept, or it is refused.
func FuzzSetKey(f *testing.F) {
	for _, seed := range []string{"", "max_workers = 4 # x", "# a\n[workspace.\"/w\"]\n# b\nmax_attempts = 2\n", "output_policy = \"\"\"\n[x]\n# y\n\"\"\"\nmax_workers = 5\n"} {
		f.Add(seed)
	}
	k := findKey("max_workers")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "@") {
			return // it may name a file
		}
		was, err := readConfig("config.toml", []byte(text))
		if err != nil {
			return
		}
		now, err := setKey("config.toml", []byte(text), k, "7")
		if err != nil {
			return
		}
		c, err := readConfig("config.toml", now)
		must(t, err)
		if c.MaxWorkers != 7 || c.MaxAttempts != was.MaxAttempts || c.OutputPolicy != was.OutputPolicy {
			t.Errorf("%q becomes %q", text, now)
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "#") && !strings.Contains(string(now), line) && strings.HasSuffix(line, "\n") {
				t.Errorf("%q lost %q: %q", text, line, now)
			}
		}
	})
}

// TestReadRef: what is no reference may be the secret itself, and is shown nowhere.
func TestReadRef(t *testing.T) {
	for _, ref := range []string{"123456:ABC-DEF", "keys/bot", "env:1=2"} {
		if _, err := readRef(ref); err == nil || strings.Contains(err.Error(), ref) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}
