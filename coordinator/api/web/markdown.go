package web

import (
	"bytes"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Markdown is what the manual is written in: CommonMark, and tables whose rows begin and end with a |. Those of
// goldmark's extensions would cost each process of stint half a millisecond before main.
var Markdown = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(goldmark.WithParserOptions(parser.WithParagraphTransformers(util.Prioritized(tables{}, 200))),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(tables{}, 500))))
})

type tables struct{}

// Transform makes a table of a paragraph that is one.
func (tables) Transform(p *ast.Paragraph, r text.Reader, _ parser.Context) {
	src, table := r.Source(), east.NewTable()
	for i, line := range p.Lines().Sliced(0, p.Lines().Len()) {
		line = line.TrimLeftSpace(src)
		line = line.TrimRightSpace(src)
		cells := line.Value(src)
		if len(cells) < 2 || cells[0] != '|' || cells[len(cells)-1] != '|' || i == 1 && len(bytes.Trim(cells, "|- ")) > 0 {
			return
		}
		row := east.NewTableRow(nil)
		for at := line.Start + 1; at < line.Stop && i != 1; {
			end, cell := at+bytes.IndexByte(src[at:], '|'), east.NewTableCell()
			in := text.NewSegment(at, end)
			in = in.TrimLeftSpace(src)
			cell.Lines().Append(in.TrimRightSpace(src))
			row.AppendChild(row, cell)
			at = end + 1
		}
		switch i {
		case 0:
			table.AppendChild(table, east.NewTableHeader(row))
		case 1:
		default:
			table.AppendChild(table, row)
		}
	}
	if p.Lines().Len() > 1 {
		p.Parent().ReplaceChild(p.Parent(), p, table)
	}
}

// RegisterFuncs lets a renderer write tables as HTML.
func (tables) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	for kind, tags := range map[ast.NodeKind][2]string{
		east.KindTable: {"<table>\n", "</tbody></table>\n"}, east.KindTableHeader: {"<thead><tr>", "</tr></thead><tbody>\n"},
		east.KindTableRow: {"<tr>", "</tr>\n"}, east.KindTableCell: {"<td>", "</td>"},
	} {
		r.Register(kind, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
			tag := tags[1]
			if entering {
				tag = tags[0]
			}
			if n.Parent().Kind() == east.KindTableHeader {
				tag = strings.Replace(tag, "td", "th", 1)
			}
			_, err := w.WriteString(tag)
			return ast.WalkContinue, err
		})
	}
}
