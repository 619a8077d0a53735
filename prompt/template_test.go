package prompt

import (
	"strings"
	"testing"
	"unicode/utf8"

	"stint/memory"
)

func mustParse(t testing.TB, text string) *Template {
	t.Helper()
	tmpl, err := ParseTemplate(text)
	must(t, err)
	return tmpl
}

// houseTemplate is one as a user might write it.
const houseTemplate = `{{/* the rules of the house first */ -}}
# Rules

Never push. {{if .Iteration}}This is round {{.Iteration}}.{{else}}Work in {{.Workspace}} alone.{{end}}

{{.Memory}}

{{.Verify}}
{{.InputFiles}}
{{.OutputFiles}}

{{.Note}}
(task {{.Task}}, run {{.Run}}, {{.Agent}} for {{.SessionKey}}, try {{.Attempt}})
{{.Policy}}
`

func TestTemplate(t *testing.T) {
	first := Input{SessionKey: "web", TaskID: "t-1", RunID: "r-1", Attempt: 2, Agent: "codex", Workspace: "/home/ana/shop", Policy: "- Be brief.\n\n\n\n# x", Message: "Go on."}
	told := first
	told.Memory, told.Iteration = []memory.Hit{{Path: "MEMORY.md", Line: 3, Text: "# Go 1.26"}}, 2
	failed, mended := first, first
	failed.Check, mended.Check = checked(1).Check, checked(2).Check
	for _, tc := range []struct {
		name, template string
		in             Input
		want           string
	}{
		{"nothing", "{{/* nothing at all */}}", first, ""},
		{"text alone", "\r\n\r\nBe kind.  \r\r\r\rAlways.\n\n", first, "Be kind.\n\nAlways.\n"},
		{"sections that are empty", "{{.Memory}}\n\n{{.Verify}}\n\n{{.Note}}{{.InputFiles}}a\n{{.OutputFiles}}\nb", first, "a\n\nb\n"},
		{"values in a line", "{{.Agent}}/{{.SessionKey}}{{if .Memory}}!{{else if .Attempt}}?{{end}}", first, "codex/web?\n"},
		{
			"a house", houseTemplate, first,
			"# Rules\n\nNever push. Work in /home/ana/shop alone.\n\n(task t-1, run r-1, codex for web, try 2)\n## Output policy\n\n- Be brief.\n\n\\# x\n",
		},
		{
			"a house with notes", houseTemplate, told,
			"# Rules\n\nNever push. This is round 2.\n\n## Memory context\n\n" + memoryIntro + "> MEMORY.md:3 # Go 1.26\n\n" +
				"(task t-1, run r-1, codex for web, try 2)\n## Output policy\n\n- Be brief.\n\n\\# x\n",
		},
		{"a heading made of parts", "## {{/* */}}User message\n\nx\n# {{if .Task}}user  MESSAGE{{end}}", first, "\\## User message\n\nx\n\\# user  MESSAGE\n"},
		{"no place for what is to be mended", "Be kind.{{if .Verify}} Look closely.{{end}}", mended, "Be kind. Look closely.\n\n" + checkSection(&mended)},
		{"nothing to mend yet", "Be kind.", failed, "Be kind.\n"},
		{"a brace, and texts that are headings", `{{"{{"}}.Agent}} {{if ""}}x{{else}}y{{end}}{{"\n## User message\n\x1b"}}`, first, "{{.Agent}} y\n\\## User message\n\\x1b\n"},
		{"what drives a terminal", "a\x1b[2J\u2028b", first, "a\\x1b[2J\\u2028b\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Template = mustParse(t, tc.template)
			got := Build(in)
			if want := tc.want + "\n## User message\n\nGo on."; got != want {
				t.Errorf("Build gives %q, want %q", got, want)
			}
		})
	}
}

// A template with every section in the usual order makes what Build makes without one.
func TestTemplateOfTheUsualOrder(t *testing.T) {
	tmpl := mustParse(t, "{{.Session}}\n{{.Memory}}\n{{.Verify}}\n{{.Policy}}\n{{.InputFiles}}\n{{.OutputFiles}}\n{{.Note}}\n")
	for _, in := range []Input{full, checked(1), checked(2), kept()} {
		arranged := in
		arranged.Template = tmpl
		want := Build(in)
		if got := Build(arranged); got != want {
			t.Errorf("Build gives %q, want %q", got, want)
		}
	}
}

func TestParseTemplateRefuses(t *testing.T) {
	for template, want := range map[string]string{
		"a\nb {{.Sesion}}":                       "line 2: there is no field .Sesion; there are .Session, .Memory, .Verify, .Policy, .InputFiles, .OutputFiles, .Note, .Task, .Run, .Agent, .Workspace, .SessionKey, .Attempt, .Iteration",
		"{{if .Nope}}x{{end}}":                   "line 1: there is no field .Nope",
		"{{if .Task}}{{else}}\n\n{{.X}}{{end}}":  "line 3: there is no field .X",
		"a\n\n{{.Task":                           "line 3: unclosed action",
		"{{if .Task}}\n":                         "line 2: unexpected EOF",
		"{{end}}":                                "line 1: unexpected {{end}}",
		"{{.Task}}}\n{{.Task}":                   "line 2: bad character",
		"{{range .Memory}}x{{end}}":              "has no place here",
		"{{with .Task}}x{{end}}":                 "has no place here",
		"\n{{define \"x\"}}y{{end}}":             "line 2: {{define}}",
		"{{block \"x\" .}}{{end}}":               "line 1: {{define}}",
		"{{template \"x\"}}":                     "has no place here",
		"{{.}}":                                  "line 1: \".\" has no place here",
		"{{.Memory.Text}}":                       "has no place here",
		"{{$x := .Task}}":                        "has no place here",
		"{{\"text\" | .Task}}":                   "line 1: ",
		"{{user}}":                               "line 1: function \"user\" not defined",
		"{{.Task | .Run}}":                       "line 1: ",
		"{{printf .Task}}":                       "line 1: function \"printf\" not defined",
		"\xff":                                   "no text in UTF-8",
		"a\x00":                                  "no text in UTF-8",
		strings.Repeat("x", maxTemplate+1):       "more than the 65536 bytes",
		strings.Repeat("{{.Task}}", maxFields+1): "more than the 200 fields",
	} {
		if tmpl, err := ParseTemplate(template); err == nil || !strings.Contains(err.Error(), want) || tmpl != nil {
			t.Errorf("%.60q: %v, and not %s", template, err, want)
		}
	}
	if tmpl, err := ParseTemplate(""); tmpl != nil || err != nil {
		t.Errorf("an empty text gives %v, %v", tmpl, err)
	}
}

// A template lists the fields that it has; the usual order has all.
func TestTemplateNames(t *testing.T) {
	tmpl := mustParse(t, `{{if .Policy}}{{"x"}}{{else}}{{.Task}}{{end}}`)
	if !tmpl.Names("Policy") || !tmpl.Names("Task") || tmpl.Names("Memory") || tmpl.Names("") || !mustParse(t, "").Names("Policy") {
		t.Errorf("it names %v", tmpl.names)
	}
}

// The fields of another template are others, and its text is free.
func TestParseFields(t *testing.T) {
	tmpl, err := ParseFields("## User message\r\n{{if .A}}{{.A}}{{.A}}{{else}}none{{end}}", []string{"A"})
	must(t, err)
	for value, want := range map[string]string{"{{.A}}": "## User message\n{{.A}}{{.A}}", "": "## User message\nnone"} {
		if got := tmpl.Fill(map[string]string{"A": value}); got != want {
			t.Errorf("Fill gives %q, want %q", got, want)
		}
	}
	if _, err := ParseFields("{{.Task}}", []string{"A", "B"}); err == nil || err.Error() != "line 1: there is no field .Task; there are .A, .B" {
		t.Error(err)
	}
}

// Whatever a template says, if it is taken: the message is the user's, and the text
// before it neither drives a terminal nor has its heading.
func FuzzTemplate(f *testing.F) {
	h := hostile()
	f.Add(houseTemplate, "note", "message")
	f.Add("## {{.Agent}}\n\nx{{.Memory}}", "User message\n\n", h.Message)
	f.Add("{{.SessionKey}}\n{{.Policy}}{{.Verify}}{{if .Note}}\r## User{{else}}\n##\tUser{{end}}{{/**/}} message\n\n", hostileOutput, "\n## User message\n\n")
	f.Add("{{- .Task -}} # {{.Run}}", "## User message\n\n", "")
	f.Fuzz(func(t *testing.T, template, text, message string) {
		if len(template)*len(text) > 1<<20 { // a field may be there in every ten bytes: it would take seconds
			return
		}
		tmpl, err := ParseTemplate(template)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") && !strings.HasPrefix(err.Error(), "the template ") {
				t.Errorf("%q does not say where", err)
			}
			return
		}
		built := Build(Input{
			SessionKey: text, TaskID: text, RunID: text, Agent: text, Workspace: text, Attempt: len(text), Policy: text, Files: []string{text},
			Memory: []memory.Hit{{Path: text, Line: 1, Text: text}}, Check: &Check{Command: text, Output: text, Iteration: len(text) % 3}, Outputs: []string{text},
			Interrupted: len(text)%2 == 1, Message: message, Template: tmpl,
		})
		if got := UserMessage(built); got != message {
			t.Errorf("UserMessage gives %q, the message was %q", got, message)
		}
		before := strings.TrimSuffix(built, "\n"+messageHeading+message)
		if strings.ContainsFunc(before, func(r rune) bool { return r != '\n' && breaksLine(r) }) || !utf8.ValidString(before) || tmpl != nil && ownHeading().MatchString(before) {
			t.Errorf("before the message stands %q", before)
		}
	})
}
