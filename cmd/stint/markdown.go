package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// markdown reads the help topics: CommonMark and tables.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table))

// A textWriter writes Markdown as lines for a terminal.
type textWriter struct {
	src   []byte
	width int  // columns of a line, at least 40; code is never wrapped
	plain bool // tables become lists too, so that it is Markdown still
	bold  bool // headings and code are bold, by SGR sequences; else they keep their # and backticks
	lines []string
}

// text returns the Markdown as text.
func (w *textWriter) text() string {
	w.width = max(w.width, 40)
	w.blocks(markdown.Parser().Parse(text.NewReader(w.src)), "")
	return strings.Join(w.lines, "\n") + "\n"
}

// blocks writes the blocks within n, with an empty line between two of them unless n is an
// item of a list.
func (w *textWriter) blocks(n ast.Node, indent string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if c != n.FirstChild() && n.Kind() != ast.KindListItem {
			w.lines = append(w.lines, "")
		}
		switch c := c.(type) {
		case *ast.Heading:
			if w.bold {
				w.wrapped(indent, "", strong(w.inline(c)))
			} else {
				w.wrapped(indent, strings.Repeat("#", c.Level)+" ", w.inline(c))
			}
		case *ast.FencedCodeBlock:
			for line := range strings.Lines(string(c.Lines().Value(w.src))) {
				w.line(indent+"    ", strings.TrimSuffix(line, "\n"))
			}
		case *ast.List:
			number := c.Start
			for item := c.FirstChild(); item != nil; item = item.NextSibling() {
				mark, first := "- ", len(w.lines)
				if c.IsOrdered() {
					mark = fmt.Sprintf("%d. ", number)
					number++
				}
				w.blocks(item, indent+strings.Repeat(" ", len(mark)))
				w.lines[first] = indent + mark + w.lines[first][len(indent+mark):]
			}
		case *east.Table:
			w.table(c, indent)
		default:
			w.wrapped(indent, "", w.inline(c))
		}
	}
}

func (w *textWriter) line(indent, text string) {
	w.lines = append(w.lines, strings.TrimRight(indent+text, " "))
}

// wrapped writes text in lines, the first one behind a mark.
func (w *textWriter) wrapped(indent, mark, text string) {
	for _, line := range wrap(text, w.width-len(indent+mark)) {
		w.line(indent+mark, line)
		mark = strings.Repeat(" ", len(mark))
	}
}

// inline returns the text within n, in one line.
func (w *textWriter) inline(n ast.Node) (s string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch text := w.inline(c); c := c.(type) {
		case *ast.Text:
			s += string(c.Value(w.src))
			if c.SoftLineBreak() {
				s += " "
			}
		case *ast.CodeSpan:
			if w.bold {
				s += strong(text)
			} else {
				s += "`" + text + "`"
			}
		case *ast.Link:
			to, isTopic := strings.CutSuffix(string(c.Destination), ".md")
			if isTopic {
				to = "stint help " + to
			}
			s += text + " (" + to + ")"
		default:
			s += text
		}
	}
	return s
}

// table writes a table in columns, or each row as an item of a list if it is too wide.
func (w *textWriter) table(n ast.Node, indent string) {
	var rows [][]string
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, w.inline(cell))
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	_ = writeTable(&b, rows, func(row, _ int, cell string) string {
		if row == 0 && w.bold {
			return strong(cell)
		}
		return cell
	}) // the builder has no errors
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if !w.plain && !slices.ContainsFunc(lines, func(l string) bool { return textWidth(strings.TrimRight(l, " ")) > w.width-len(indent) }) {
		for _, line := range lines {
			w.line(indent, line)
		}
		return
	}
	for _, row := range rows[1:] {
		if len(row) == 2 {
			w.wrapped(indent, "- ", row[0]+": "+row[1])
			continue
		}
		w.wrapped(indent, "- ", row[0])
		for x, cell := range row[1:] {
			if cell != "" {
				w.wrapped(indent+"  ", "- ", rows[0][x+1]+": "+cell)
			}
		}
	}
}

// wrap breaks text at blanks into lines of at most width columns.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case textWidth(line)+1+textWidth(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

var (
	sgrSequence = regexp.MustCompile("\x1b\\[[0-9;]*m")
	anyWord     = regexp.MustCompile(`\S+`)
)

// strong returns each word of s in bold, so that lines and cells can end behind any of them.
func strong(s string) string {
	return anyWord.ReplaceAllString(sgrSequence.ReplaceAllString(s, ""), "\x1b[1m$0\x1b[0m")
}
