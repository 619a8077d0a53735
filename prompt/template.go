package prompt

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
	"unicode/utf8"
)

// A Template is text, fields such as {{.Memory}}, texts in quotes such as {{"{{"}},
// and {{if .Memory}}…{{else}}…{{end}}. It has no loops and calls nothing, so that its
// work is bounded by its length. One of [ParseTemplate] arranges what stands before
// the user's message: it cannot put anything behind the message or in its place.
type Template struct {
	root  *parse.ListNode
	names map[string]bool // the fields in it
}

const (
	maxTemplate = 64 << 10 // bytes
	maxFields   = 200      // fields of one template: each may be a whole section
	maxComplain = 400      // bytes of an error about a template
)

// A field is what a template can name. Sections come whole, with their headings, or
// are empty; values are one line.
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

// positive gives a number, "" where there is none.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// TemplateFields gives the names of the fields that a template may have.
func TemplateFields() []string {
	names := make([]string, len(templateFields))
	for i, f := range templateFields {
		names[i] = f.name
	}
	return names
}

// ParseTemplate reads a template of a prompt. The error begins with the line:
// "line 3: …". An empty text gives nil, with which Build arranges the prompt itself.
func ParseTemplate(text string) (*Template, error) {
	switch {
	case text == "":
		return nil, nil
	case len(text) > maxTemplate:
		return nil, fmt.Errorf("the template has more than the %d bytes that are taken", maxTemplate)
	}
	return parseTemplate(text, TemplateFields(), noHeading)
}

// ParseFields reads a template with other fields than those of a prompt, which
// [Template.Fill] fills in. Its errors are like those of ParseTemplate.
func ParseFields(text string, fields []string) (*Template, error) {
	return parseTemplate(text, fields, func(string) (int, string) { return 0, "" })
}

// parseTemplate reads a template that may have these fields. wrong says what is wrong
// with a piece of its text, and where; "" if nothing is.
func parseTemplate(text string, fields []string, wrong func(text string) (at int, what string)) (*Template, error) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, errors.New("the template is no text in UTF-8")
	}
	p := &templateParser{text: newlines.Replace(text), known: fields, wrong: wrong, names: map[string]bool{}}
	trees := map[string]*parse.Tree{}
	tree, err := parse.New("").Parse(p.text, "", "", trees)
	if err != nil {
		return nil, fmt.Errorf("line %.*s", maxComplain, strings.TrimPrefix(err.Error(), "template: :"))
	}
	for name, t := range trees {
		if name != "" {
			return nil, p.fail(int(t.Root.Position()), "{{define}} and {{block}} have no place here; "+tame)
		}
	}
	if err := p.list(tree.Root); err != nil {
		return nil, err
	}
	return &Template{tree.Root, p.names}, nil
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// tame is what a template may have.
const tame = `a template has text, {{.Field}}, {{if .Field}}, {{else}}, {{end}}, {{"text"}} and {{/* comments */}}`

// Names reports whether a template has a field; the arrangement of Build itself, nil,
// has all.
func (t *Template) Names(field string) bool { return t == nil || t.names[field] }

// A templateParser checks what the parser of text/template has read.
type templateParser struct {
	text   string
	known  []string
	wrong  func(text string) (at int, what string)
	fields int
	names  map[string]bool
}

func (p *templateParser) fail(pos int, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", 1+strings.Count(p.text[:pos], "\n"), fmt.Sprintf(format, args...))
}

func (p *templateParser) list(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := p.node(n); err != nil {
			return err
		}
	}
	return nil
}

func (p *templateParser) node(n parse.Node) error {
	switch n := n.(type) {
	case *parse.TextNode:
		if at, what := p.wrong(string(n.Text)); what != "" {
			return p.fail(int(n.Position())+at, "%s", what)
		}
		return nil
	case *parse.ActionNode:
		return p.pipe(n.Pipe)
	case *parse.IfNode:
		if err := p.pipe(n.Pipe); err != nil {
			return err
		}
		if err := p.list(n.List); err != nil {
			return err
		}
		return p.list(n.ElseList)
	}
	return p.fail(int(n.Position()), "%.40q has no place here; %s", n.String(), tame)
}

// pipe checks that there is nothing but one field, or a text in quotes.
func (p *templateParser) pipe(pipe *parse.PipeNode) error {
	at := int(pipe.Position())
	name, _, ok := operand(pipe)
	switch {
	case !ok:
		return p.fail(at, "%.40q is more than the name of a field; %s", pipe.String(), tame)
	case name == "":
		return nil
	case !slices.Contains(p.known, name):
		return p.fail(at, "there is no field .%.40s; there are .%s", name, strings.Join(p.known, ", ."))
	}
	p.names[name] = true
	if p.fields++; p.fields > maxFields {
		return p.fail(at, "it has more than the %d fields that are taken", maxFields)
	}
	return nil
}

// operand gives the field that a pipeline consists of, or the text.
func operand(pipe *parse.PipeNode) (name, text string, ok bool) {
	if len(pipe.Decl) > 0 || len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return "", "", false
	}
	switch arg := pipe.Cmds[0].Args[0].(type) {
	case *parse.StringNode:
		return "", arg.Text, true
	case *parse.FieldNode:
		return arg.Ident[0], "", len(arg.Ident) == 1
	}
	return "", "", false
}

// arrange gives what stands before the message. What the verify command has said of
// the answer before is there also where the template has no place for it: the turn is
// to mend that.
func (t *Template) arrange(in *Input) string {
	values := map[string]string{}
	for _, f := range templateFields {
		values[f.name] = f.value(in)
	}
	text := t.Fill(values)
	if check := checkSection(in); in.mends() && !strings.Contains(text, check) {
		text += "\n\n" + check
	}
	return tidy(text)
}

// Fill gives the text of a template whose fields have these values.
func (t *Template) Fill(values map[string]string) string {
	var b strings.Builder
	fill(&b, t.root, values)
	return b.String()
}

func fill(b *strings.Builder, l *parse.ListNode, values map[string]string) {
	if l == nil {
		return
	}
	value := func(pipe *parse.PipeNode) string {
		name, text, _ := operand(pipe) // the parser has seen to it
		return text + values[name]
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			b.Write(n.Text)
		case *parse.ActionNode:
			b.WriteString(value(n.Pipe))
		case *parse.IfNode:
			if value(n.Pipe) != "" {
				fill(b, n.List, values)
			} else {
				fill(b, n.ElseList, values)
			}
		}
	}
}

// ownHeading is a line that could be taken for the heading of the message.
var ownHeading = regexp.MustCompile(`(?im)^[ \t]*#+[ \t]*user[ \t]+message`)

// noHeading finds the heading of the message in a template's text.
func noHeading(text string) (at int, what string) {
	if at := ownHeading.FindStringIndex(text); at != nil {
		return at[0], "the heading \"## User message\" is written by stint itself, with the message behind it; take it out"
	}
	return 0, ""
}

// tidy makes lines of the text that a template gives: none that drives a terminal or
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
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") && ownHeading.MatchString(line) {
			line = strings.Replace(line, "#", `\#`, 1)
		}
		b.WriteString(line + "\n")
		blank = false
	}
	return b.String()
}
