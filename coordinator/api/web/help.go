package web

import (
	"bytes"
	"html/template"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// A pageHelp is the manual, or one topic of it.
type pageHelp struct {
	Topics []wire.Topic
	HTML   template.HTML // of the topic; "" for the list
}

// fillHelp puts a topic into the page, or for "" the list of topics.
func (s *Site) fillHelp(p *page, name string) error {
	p.Title, p.Help = "Help", &pageHelp{Topics: s.Topics}
	if name == "" {
		return nil
	}
	i := slices.IndexFunc(s.Topics, func(t wire.Topic) bool { return t.Name == name })
	if i < 0 {
		return &task.Error{Code: task.CodeNotFound, Message: "the manual has no topic " + wire.Clip(name), Hint: "stint help"}
	}
	p.Title = "Help: " + name
	var err error
	p.Help.HTML, err = renderHTML(s.Topics[i].Markdown)
	return err
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table))

// renderHTML returns Markdown as HTML for below a heading of level 2, without any HTML that is
// in it. Links to other files of the manual lead to their topics.
func renderHTML(src []byte) (template.HTML, error) {
	doc := markdown.Parser().Parse(text.NewReader(src))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if h, ok := n.(*ast.Heading); ok && entering {
			h.Level = min(h.Level+2, 6)
		}
		if l, ok := n.(*ast.Link); ok {
			if name, ok := strings.CutSuffix(string(l.Destination), ".md"); ok {
				l.Destination = []byte("/?help=" + name)
			}
		}
		return ast.WalkContinue, nil
	}) // the function has no errors
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, src, doc)
	return template.HTML(b.String()), err
}
