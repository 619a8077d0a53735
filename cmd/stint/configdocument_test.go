package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/prompt"
)

func TestDocument(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct{ value, text, wrong string }{
		{"default", prompt.DefaultPolicy, ""},
		{"none", "", ""},
		{"Be kind.", "Be kind.", ""},
		{"@" + write("policy.md", "\xef\xbb\xbfBe brief.\n"), "Be brief.\n", ""},
		{"@policy.md", "", "is not an absolute path"},
		{"@" + dir + "/none.md", "", "no such file"},
		{"@" + dir, "", "is not a file"},
		{"@" + write("large", strings.Repeat("x", maxDocument+1)), "", "it has more than 65536 bytes"},
		{"@" + write("binary", "\x00\x01"), "", "no text in UTF-8"},
	} {
		t.Run(tc.value, func(t *testing.T) {
			var c Config
			err := findKey("output_policy").set(&c, tc.value)
			switch {
			case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
				t.Errorf("%v, and not %s", err, tc.wrong)
			case tc.wrong == "" && (err != nil || c.OutputPolicy != document{tc.value, tc.text}):
				t.Errorf("%+v, %v", c.OutputPolicy, err)
			}
		})
	}
}

// A template is checked when the configuration is read: what is wrong is named with
// the file that it stands in, and with its line there.
func TestPromptTemplate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.tmpl", "Be kind.\n{{.Memory}}\n"), write("bad.tmpl", "Be kind.\n{{.Memry}}\n")
	set := func(value string) string { return "# x\nprompt_template = " + tomlString(value) + "\n" }
	for _, tc := range []struct{ name, file, want string }{
		{"field", set("{{.Memry}}"), "config.toml:2: prompt_template: line 1: there is no field .Memry; there are .Session, .Memory"},
		{"field in a file", set("@" + bad), "config.toml:2: prompt_template: " + bad + ": line 2: there is no field .Memry; there are "},
		{"syntax", set("a\n{{if .Task}}"), "config.toml:2: prompt_template: line 2: unexpected EOF"},
		{"heading", set("## User message\nDo that."), "config.toml:2: prompt_template: line 1: the heading "},
		{"no file", set("@" + dir + "/none"), "config.toml:2: prompt_template: open " + dir + "/none: no such file"},
		{"binary", set("@" + write("binary", "\x00")), "config.toml:2: prompt_template: " + dir + "/binary is no text in UTF-8"},
		{"too long", set("@" + write("long", strings.Repeat("x", maxDocument+1))), "config.toml:2: prompt_template: " + "read " + dir + "/long: it has more than 65536 bytes"},
		{"too long here", set(strings.Repeat("x", maxDocument+1)), "config.toml:2: prompt_template: the template has more than the 65536 bytes"},
		{"of a workspace", "[workspace.\"/w\"]\n" + set("{{.X}}"), "config.toml:3: prompt_template: line 1: there is no field .X"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := load(t, tc.file, nil, nil); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%v, and not %s", err, tc.want)
			}
		})
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

// The template in the README is one.
func TestTemplateOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "\n    {{.Session}}\n")
	text, _, found := strings.Cut(text, "\n\n")
	if tmpl, err := prompt.ParseTemplate(text); tmpl == nil || err != nil || !found {
		t.Errorf("%q: %v", text, err)
	}
	for _, name := range prompt.TemplateFields() {
		if !strings.Contains(string(readme), "{{."+name+"}}") {
			t.Errorf("the README does not name .%s", name)
		}
	}
}
