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

// A Template arranges what stands before the user's message: text, fields such as
// {{.Memory}}, and {{if .Memory}}…{{else}}…{{end}}. It has no loops and calls
// nothing, so that its work is bounded by its length, and it cannot put anything
// behind the message or in its place.
type Template struct{ root *parse.ListNode }

const (
	maxTemplate = 64 << 10 // bytes
	maxFields   = 200      // fields of one template: each may be a whole section
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

// ParseTemplate reads a template. The error begins with the line: "line 3: …". An
// empty text gives nil, with which Build arranges the prompt itself.
func ParseTemplate(text string) (*Template, error) {
	switch {
	case text == "":
		return nil, nil
	case len(text) > maxTemplate:
		return nil, fmt.Errorf("the template has more than the %d bytes that are taken", maxTemplate)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return nil, errors.New("the template is no text in UTF-8")
	}
	p := &templateParser{text: newlines.Replace(text)}
	trees := map[string]*parse.Tree{}
	tree, err := parse.New("").Parse(p.text, "", "", trees)
	if err != nil {
		return nil, errors.New("line " + strings.TrimPrefix(err.Error(), "template: :"))
	}
	for name, t := range trees {
		if name != "" {
			return nil, p.fail(t.Root, "{{define}} and {{block}} have no place here; "+tame)
		}
	}
	if err := p.list(tree.Root); err != nil {
		return nil, err
	}
	return &Template{tree.Root}, nil
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// tame is what a template may have.
const tame = "a template has text, {{.Field}}, {{if .Field}}, {{else}}, {{end}} and {{/* comments */}}"

// A templateParser checks what the parser of text/template has read.
type templateParser struct {
	text   string
	fields int
}

func (p *templateParser) fail(at parse.Node, format string, args ...any) error {
	return p.failAt(int(at.Position()), format, args...)
}

func (p *templateParser) failAt(pos int, format string, args ...any) error {
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
		if at := ownHeading.FindIndex(n.Text); at != nil {
			return p.failAt(int(n.Position())+at[0], "the heading \"## User message\" is written by stint itself, with the message behind it; take it out")
		}
		return nil
	case *parse.ActionNode:
		return p.pipe(n.Pipe)
	case *parse.IfNode:
		return errors.Join(p.pipe(n.Pipe), p.list(n.List), p.list(n.ElseList))
	}
	return p.fail(n, "%.40q has no place here; %s", n.String(), tame)
}

// pipe checks that there is nothing but one field.
func (p *templateParser) pipe(pipe *parse.PipeNode) error {
	name, ok := fieldOf(pipe)
	switch {
	case !ok:
		return p.fail(pipe, "%.40q is more than the name of a field; %s", pipe.String(), tame)
	case !slices.Contains(TemplateFields(), name):
		return p.fail(pipe, "there is no field .%.40s; there are .%s", name, strings.Join(TemplateFields(), ", ."))
	}
	if p.fields++; p.fields > maxFields {
		return p.fail(pipe, "it has more than the %d fields that are taken", maxFields)
	}
	return nil
}

// fieldOf gives the field that a pipeline consists of.
func fieldOf(pipe *parse.PipeNode) (name string, ok bool) {
	if len(pipe.Decl) > 0 || len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return "", false
	}
	f, ok := pipe.Cmds[0].Args[0].(*parse.FieldNode)
	if !ok || len(f.Ident) != 1 {
		return "", false
	}
	return f.Ident[0], true
}

// arrange gives what stands before the message.
func (t *Template) arrange(in *Input) string {
	a := arrangement{values: map[string]string{}}
	for _, f := range templateFields {
		a.values[f.name] = f.value(in)
	}
	a.write(t.root)
	return tidy(a.String())
}

// An arrangement is a template that is being carried out.
type arrangement struct {
	strings.Builder
	values map[string]string
}

func (a *arrangement) write(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			a.Write(n.Text)
		case *parse.ActionNode:
			a.WriteString(a.value(n.Pipe))
		case *parse.IfNode:
			if a.value(n.Pipe) != "" {
				a.write(n.List)
			} else {
				a.write(n.ElseList)
			}
		}
	}
}

func (a *arrangement) value(pipe *parse.PipeNode) string {
	name, _ := fieldOf(pipe) // ParseTemplate has seen to it
	return a.values[name]
}

// ownHeading is a line that could be taken for the heading of the message.
var ownHeading = regexp.MustCompile(`(?im)^[ \t]*#+[ \t]*user[ \t]+message`)

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
		if ownHeading.MatchString(line) {
			line = strings.Replace(line, "#", `\#`, 1)
		}
		b.WriteString(line + "\n")
		blank = false
	}
	return b.String()
}
