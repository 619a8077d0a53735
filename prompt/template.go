package prompt

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"stint/ledger/lazy"
)

// A Template is text, fields such as {{.Memory}}, texts in quotes such as {{"{{"}}, and
// {{if .Memory}}…{{else}}…{{end}}. It has no loops and calls nothing, so that its work is bounded by its
// length. What is filled in is inserted as it is: it is never read as a template. One of [ParseTemplate]
// arranges what stands before the user's message: it cannot put anything behind the message or in its place.
type Template struct {
	text  *template.Template
	names map[string]bool // the fields in it
}

const (
	maxTemplate = 64 << 10 // bytes
	maxFields   = 200      // fields of one template: each may be a whole section
	maxComplain = 400      // bytes of an error about a template
)

// A field is what a template can name. The sections come first, whole, with their headings, or empty; values are one line.
type field struct {
	name  string
	value func(*Input) string
}

var templateFields = []field{
	{"Session", sessionSection},
	{"Memory", memorySection},
	{"Verify", checkSection},
	{"Policy", policySection},
	{"InputFiles", inputsSection},
	{"OutputFiles", outputsSection},
	{"Note", noteSection},
	{"Task", func(in *Input) string { return oneLine(in.TaskID) }},
	{"Run", func(in *Input) string { return oneLine(in.RunID) }},
	{"Agent", func(in *Input) string { return oneLine(in.Agent) }},
	{"Workspace", func(in *Input) string { return oneLine(in.Workspace) }},
	{"SessionKey", func(in *Input) string { return oneLine(in.SessionKey) }},
	{"Attempt", func(in *Input) string { return positive(in.Attempt) }},
	{"Iteration", func(in *Input) string { return positive(in.Iteration) }},
}

// positive returns a number, "" where there is none.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// TemplateFields returns the names of the fields that a template may have.
func TemplateFields() []string {
	names := make([]string, len(templateFields))
	for i, f := range templateFields {
		names[i] = f.name
	}
	return names
}

// ParseTemplate reads a template of a prompt. The error begins with the line:
// "line 3: …". For an empty text it returns nil, with which Build arranges the prompt itself.
func ParseTemplate(text string) (*Template, error) {
	switch {
	case text == "":
		return nil, nil
	case len(text) > maxTemplate:
		return nil, fmt.Errorf("the template has more than the %d bytes that are taken", maxTemplate)
	}
	return ParseFields(text, TemplateFields())
}

// ParseFields reads a template that may have these fields, which [Template.Fill] fills
// in. Its errors are like those of ParseTemplate.
func ParseFields(text string, fields []string) (*Template, error) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, errors.New("the template is no text in UTF-8")
	}
	p := &templateParser{text: newlines.Replace(text), known: fields, names: map[string]bool{}}
	trees := map[string]*parse.Tree{}
	tree, err := parse.New("").Parse(p.text, "", "", trees)
	if err != nil {
		return nil, fmt.Errorf("line %.*s", maxComplain, strings.TrimPrefix(err.Error(), "template: :"))
	}
	for name, t := range trees {
		if name != "" {
			return nil, p.fail(t.Root, "{{define}} and {{block}} have no place here; "+tame)
		}
	}
	if err := p.check(tree.Root); err != nil {
		return nil, err
	}
	parsed, err := template.New("").Option("missingkey=zero").AddParseTree("", tree)
	return &Template{parsed, p.names}, err
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// tame is what a template may have.
const tame = `a template has text, {{.Field}}, {{if .Field}}, {{else}}, {{end}}, {{"text"}} and {{/* comments */}}`

// Names reports whether a template has a field; the arrangement of Build itself, nil, has all.
func (t *Template) Names(field string) bool { return t == nil || t.names[field] }

// A templateParser checks what the parser of text/template has read.
type templateParser struct {
	text   string
	known  []string
	fields int
	names  map[string]bool
}

func (p *templateParser) fail(n parse.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", 1+strings.Count(p.text[:n.Position()], "\n"), fmt.Sprintf(format, args...))
}

// check refuses all but what [tame] names.
func (p *templateParser) check(n parse.Node) error {
	switch n := n.(type) {
	case *parse.TextNode, *parse.StringNode:
		return nil
	case *parse.ActionNode:
		return p.check(n.Pipe)
	case *parse.IfNode:
		return cmp.Or(p.check(n.Pipe), p.check(n.List), p.check(n.ElseList))
	case *parse.ListNode:
		for i := 0; n != nil && i < len(n.Nodes); i++ {
			if err := p.check(n.Nodes[i]); err != nil {
				return err
			}
		}
		return nil
	case *parse.PipeNode:
		if len(n.Decl) == 0 && len(n.Cmds) == 1 && len(n.Cmds[0].Args) == 1 {
			return p.check(n.Cmds[0].Args[0])
		}
	case *parse.FieldNode:
		if name := n.Ident[0]; len(n.Ident) == 1 {
			p.names[name] = true
			p.fields++
			switch {
			case !slices.Contains(p.known, name):
				return p.fail(n, "there is no field .%.40s; there are .%s", name, strings.Join(p.known, ", ."))
			case p.fields > maxFields:
				return p.fail(n, "it has more than the %d fields that are taken", maxFields)
			}
			return nil
		}
	}
	return p.fail(n, "%.40q has no place here; %s", n.String(), tame)
}

// arrange returns what stands before the message. What the verify command has said of the answer before is
// there also where the template has no place for it: the turn is to fix that.
func (t *Template) arrange(in *Input) string {
	values := map[string]string{}
	for _, f := range templateFields {
		values[f.name] = f.value(in)
	}
	text := t.Fill(values)
	if check := checkSection(in); in.isFix() && !strings.Contains(text, check) {
		text += "\n\n" + check
	}
	return tidy(text)
}

// Fill returns the text of a template whose fields have these values.
func (t *Template) Fill(values map[string]string) string {
	var b strings.Builder
	_ = t.text.Execute(&b, values) // fields and texts alone cannot fail, nor can the builder
	return b.String()
}

// ownHeading is a line that could be taken for the heading of the message.
var ownHeading = lazy.Regexp(`(?im)^[ \t]*#+[ \t]*user[ \t]+message`)

// tidy makes lines of the text that a template makes: none that drives a terminal or
// poses as the heading of the message, no two blank ones together, none at the ends.
func tidy(text string) string {
	var b strings.Builder
	blank := false
	for line := range strings.SplitSeq(text, "\n") {
		if line = oneLine(strings.TrimRight(line, " \t")); line == "" {
			blank = b.Len() > 0
			continue
		}
		if blank {
			b.WriteByte('\n')
		}
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") && ownHeading().MatchString(line) {
			line = strings.Replace(line, "#", `\#`, 1)
		}
		b.WriteString(line + "\n")
		blank = false
	}
	return b.String()
}
