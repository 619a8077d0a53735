package main

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"stint/state/jobs"
)

// Each file of the manual is a topic, has a title and no HTML, which the page leaves out, and
// fits a terminal: only code and what has no blank may be wider.
func TestTopics(t *testing.T) {
	files, err := fs.Glob(topicFiles, "help/*.md")
	must(t, err)
	if len(files) != len(topicNames) {
		t.Errorf("%d files, but %d topics", len(files), len(topicNames))
	}
	for _, topic := range topics() {
		name := topic.Name
		if topic.Title == "" {
			t.Errorf("%s does not begin with a heading such as # Name: what it is about", name)
		}
		_ = ast.Walk(goldmark.DefaultParser().Parse(text.NewReader(topic.Markdown)), func(n ast.Node, _ bool) (ast.WalkStatus, error) {
			if k := n.Kind(); k == ast.KindHTMLBlock || k == ast.KindRawHTML {
				t.Errorf("%s has HTML", name)
			} else if k == ast.KindParagraph && strings.HasPrefix(string(n.Lines().Value(topic.Markdown)), "|") {
				t.Errorf("%s has a table, which costs each command a parser: %s", name, n.Lines().Value(topic.Markdown))
			}
			return ast.WalkContinue, nil
		}) // the function has no errors
		for line := range strings.Lines(plainText(topic.Markdown)) {
			line = strings.TrimRight(line, "\n")
			if textWidth(line) > 80 && !strings.HasPrefix(line, "    ") && strings.Contains(strings.TrimLeft(line, "- #"), " ") {
				t.Errorf("%s: %q", name, line)
			}
		}
	}
}

func TestRenderText(t *testing.T) {
	const doc = "# A `b` c\n\nOne *two* [three\nmore](http.md) four\n[five](https://example.com) six\n\n- x y\n  z\n\n```\ncode   stays\n\n# as it is\n```\n"
	const want = "# A `b` c\n\nOne *two* three\nmore (stint help http) four\n[five](https://example.com) six\n\n- x y\n  z\n\n    code   stays\n\n    # as it is\n"
	if got := plainText([]byte(doc)); got != want {
		t.Errorf("%q, want\n%q", got, want)
	}
}

func TestHelpNamesJobs(t *testing.T) {
	for _, names := range [][]string{jobs.ObjectTypes, jobs.Actions} {
		if !strings.Contains(strings.ReplaceAll(commandTexts, "\n", " "), "is one of "+strings.Join(names, ", ")) {
			t.Errorf("stint job add does not name %v", names)
		}
	}
}
