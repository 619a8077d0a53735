package main

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// markdown reads the help topics: CommonMark and tables.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table))

// A textWriter prints Markdown for a terminal.
type textWriter struct {
	src   []byte
	width int  // columns of a line; code is never wrapped
	bold  bool // headings and code are bold, by SGR sequences; else they keep their # and backticks
	out   strings.Builder
}

// renderText returns Markdown as text of at most width columns, but at least 40.
func renderText(src []byte, width int, bold bool) string {
	w := &textWriter{src: src, width: max(width, 40), bold: bold}
	w.blocks(markdown.Parser().Parse(text.NewReader(src)), "", "", true)
	return w.out.String()
}

// blocks writes the blocks within n: the first line of them behind first, the others behind
// indent, with an empty line between two of them if they stand apart.
func (w *textWriter) blocks(n ast.Node, first, indent string, apart bool) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if c.PreviousSibling() != nil && apart {
			w.out.WriteByte('\n')
		}
		switch c := c.(type) {
		case *ast.Heading:
			mark := ""
			if !w.bold {
				mark = strings.Repeat("#", c.Level) + " "
			}
			for _, line := range wrap(mark+w.inline(c), w.width) {
				w.line(first, w.strong(line))
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock, *ast.HTMLBlock:
			for i := range c.Lines().Len() {
				line := c.Lines().At(i)
				w.line(first+"    ", strings.TrimRight(string(line.Value(w.src)), "\n"))
				first = indent
			}
		case *ast.List:
			number := c.Start
			for item := c.FirstChild(); item != nil; item = item.NextSibling() {
				if !c.IsTight && item != c.FirstChild() {
					w.out.WriteByte('\n')
				}
				mark := "- "
				if c.IsOrdered() {
					mark = strconv.Itoa(number) + ". "
					number++
				}
				w.blocks(item, first+mark, indent+strings.Repeat(" ", len(mark)), !c.IsTight)
				first = indent
			}
		case *east.Table:
			w.table(c, first, indent)
		case *ast.Blockquote:
			w.blocks(c, first+"  ", indent+"  ", true)
		default:
			for _, line := range wrap(w.inline(c), w.width-len(indent)) {
				w.line(first, line)
				first = indent
			}
		}
		first = indent
	}
}

func (w *textWriter) line(indent, text string) {
	w.out.WriteString(strings.TrimRight(indent+text, " ") + "\n")
}

// strong returns s in bold, where there is any.
func (w *textWriter) strong(s string) string {
	if !w.bold {
		return s
	}
	return "\x1b[1m" + strings.ReplaceAll(s, "\x1b[0m", "\x1b[0;1m") + "\x1b[0m"
}

// inline returns the text within n, in one line.
func (w *textWriter) inline(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Value(w.src))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(c.Value)
		case *ast.CodeSpan:
			if w.bold {
				b.WriteString(w.strong(w.inline(c)))
			} else {
				b.WriteString("`" + w.inline(c) + "`")
			}
		case *ast.Emphasis:
			b.WriteString(w.strong(w.inline(c)))
		case *ast.Link:
			b.WriteString(w.inline(c) + " (" + linkText(string(c.Destination)) + ")")
		case *ast.AutoLink:
			b.Write(c.URL(w.src))
		case *ast.RawHTML:
			b.Write(c.Segments.Value(w.src))
		default:
			b.WriteString(w.inline(c))
		}
	}
	return b.String()
}

// linkText returns what a terminal shows of a link: of one to another topic the command.
func linkText(to string) string {
	if name, ok := strings.CutSuffix(to, ".md"); ok && !strings.Contains(name, "/") {
		return "stint help " + name
	}
	return to
}

// table writes a table in columns. Where these would be too narrow for their words, it
// writes each row as a list.
func (w *textWriter) table(n *east.Table, first, indent string) {
	var rows [][]string
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, w.inline(cell))
		}
		rows = append(rows, cells)
	}
	width, fits := columns(rows, w.width-len(indent))
	for y, row := range rows {
		if !fits {
			for x, cell := range row {
				if y > 0 && cell != "" {
					for i, line := range wrap(rows[0][x]+": "+cell, w.width-len(indent)-2) {
						w.line(indent+map[bool]string{true: "- ", false: "  "}[x+i == 0], line)
					}
				}
			}
			continue
		}
		cells, most := make([][]string, len(row)), 0
		for x, cell := range row {
			cells[x] = wrap(cell, width[x])
			most = max(most, len(cells[x]))
		}
		for i := range most {
			line := ""
			for x := range row {
				part := ""
				if i < len(cells[x]) {
					part = cells[x][i]
				}
				if y == 0 {
					part = w.strong(part)
				}
				line += part + strings.Repeat(" ", max(0, width[x]-columnsOf(part))+2)
			}
			w.line(first, line)
			first = indent
		}
	}
}

// columns returns the widths of a table's columns, two blanks apart, and whether each is
// wide enough for its longest word.
func columns(rows [][]string, width int) (columns []int, fits bool) {
	columns = make([]int, len(rows[0]))
	word := make([]int, len(columns))
	for _, row := range rows {
		for x, cell := range row {
			columns[x] = max(columns[x], columnsOf(cell))
			for f := range strings.FieldsSeq(cell) {
				word[x] = max(word[x], columnsOf(f))
			}
		}
	}
	for {
		sum, widest := 2*(len(columns)-1), -1
		for x, c := range columns {
			sum += c
			if c > word[x] && (widest < 0 || c > columns[widest]) {
				widest = x
			}
		}
		if sum <= width || widest < 0 {
			return columns, sum <= width
		}
		columns[widest]--
	}
}

// wrap breaks text at blanks into lines of at most width columns; a longer word has a line
// of its own.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case columnsOf(line)+1+columnsOf(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

var sgrSequence = regexp.MustCompile("\x1b\\[[0-9;]*m")

// columnsOf returns how many columns text takes, without its SGR sequences.
func columnsOf(text string) int {
	return textWidth(sgrSequence.ReplaceAllString(text, ""))
}
