package ledger

import (
	"bytes"
	"regexp"
	"sync"
)

// blockState follows, line by line, the few blocks of CommonMark (version 0.31,
// chapters 4.5, 4.6 and 5.2) that can hide a heading: fenced code, HTML blocks and list
// items. It only knows the top level; what is inside a list item stays there.
type blockState struct {
	what     string // "code fence", "comment" or "HTML block" that is open; "" if none
	line     int    // where it was opened
	reported bool   // it was reported as open before a record
	hidden   int    // line of the first record heading in it

	fence    byte   // ` or ~
	fenceLen int    // length of the opening fence
	htmlEnd  string // what closes the HTML block; "" is an empty line

	item      int  // columns that a line must be indented by to be in the open list item; 0 without one
	paragraph bool // the line before was text of a paragraph
	blank     bool // the line before was blank
}

// inside reports whether a line is in a block that can hold no top-level heading.
func (b *blockState) inside(line []byte) bool {
	if b.what != "" {
		return true
	}
	return b.item > 0 && len(line) > 0 && indentOf(line) >= b.item
}

// hide notes that a record heading is hidden by the open block.
func (b *blockState) hide(line int) {
	if b.what != "" && b.hidden == 0 {
		b.hidden = line
	}
}

// afterRecord is the state behind the end line of a record: no list and no
// paragraph is open there. A fence or comment stays open, as Markdown has it.
func (b *blockState) afterRecord() {
	b.item, b.paragraph, b.blank = 0, false, false
	if b.what == "HTML block" && b.htmlEnd == "" {
		b.close()
	}
}

func (b *blockState) open(what string, line int) {
	b.what, b.line, b.reported, b.hidden = what, line, false, 0
	b.item, b.paragraph = 0, false
}

func (b *blockState) close() { b.what, b.reported, b.hidden, b.paragraph = "", false, 0, false }

// feed moves the state over one line, without its newline.
func (b *blockState) feed(line []byte, number int) {
	wasBlank := b.blank
	b.blank = len(trimRight(line)) == 0
	switch {
	case b.what == "code fence":
		if b.closesFence(line) {
			b.close()
		}
	case b.what != "":
		if b.htmlEnd == "" && b.blank || b.htmlEnd != "" && bytes.Contains(bytes.ToLower(line), []byte(b.htmlEnd)) {
			b.close()
		}
	case b.blank:
		b.paragraph = false
	case b.item > 0 && indentOf(line) >= b.item:
		b.paragraph = true
	case indentOf(line) > 3:
		// indented code, or the paragraph goes on
	default:
		b.topLevel(line, number, wasBlank)
	}
}

// topLevel takes a line that is in no open block and indented by three at most.
func (b *blockState) topLevel(line []byte, number int, wasBlank bool) {
	text := bytes.TrimLeft(line, " ")
	if c, n := fenceOf(text); n > 0 {
		b.open("code fence", number)
		b.fence, b.fenceLen = c, n
		return
	}
	if end, what := htmlOf(text, b.paragraph); what != "" {
		if end != "" && bytes.Contains(bytes.ToLower(text[2:]), []byte(end)) {
			b.item, b.paragraph = 0, false
			return
		}
		b.open(what, number)
		b.htmlEnd = end
		return
	}
	level, _ := headingText(line)
	switch offset := itemOf(line); {
	case level > 0 || isThematicBreak(text):
		b.item, b.paragraph = 0, false
	case offset > 0:
		b.item, b.paragraph = offset, true
	case text[0] == '>':
		b.item, b.paragraph = 0, false
	default:
		if wasBlank {
			b.item = 0 // else the line lazily continues the item's paragraph
		}
		b.paragraph = true
	}
}

func indentOf(line []byte) int {
	col := 0
	for _, c := range line {
		switch c {
		case ' ':
			col++
		case '\t':
			col += 4 - col%4
		default:
			return col
		}
	}
	return col
}

// fenceOf gives the character and length of an opening code fence; length 0 if it is none.
func fenceOf(text []byte) (byte, int) {
	n := 0
	for n < len(text) && text[n] == text[0] {
		n++
	}
	if n < 3 || text[0] != '`' && text[0] != '~' || text[0] == '`' && bytes.IndexByte(text[n:], '`') >= 0 {
		return 0, 0
	}
	return text[0], n
}

func (b *blockState) closesFence(line []byte) bool {
	text := bytes.TrimLeft(line, " ")
	if len(line)-len(text) > 3 || len(text) == 0 {
		return false
	}
	rest := bytes.TrimLeft(text, string(b.fence))
	return len(text)-len(rest) >= b.fenceLen && len(trimRight(rest)) == 0
}

// Compiled when first needed: most processes of stint never parse a file.
var (
	htmlRaw   = lazily(`(?i)^<(script|pre|style|textarea)([ \t>]|$)`)
	htmlBlock = lazily(`(?i)^</?(address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul)([ \t]|/?>|$)`)
	htmlAny   = lazily(`^<(/[A-Za-z][A-Za-z0-9-]*[ \t]*|[A-Za-z][A-Za-z0-9-]*([ \t]+[A-Za-z_:][A-Za-z0-9_.:-]*([ \t]*=[ \t]*([^ \t"'=<>` + "`" + `]+|'[^']*'|"[^"]*"))?)*[ \t]*/?)>[ \t]*$`)
)

func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// htmlOf gives what ends the HTML block that the line begins ("" is an empty
// line) and what to call it; "" if it begins none.
func htmlOf(text []byte, paragraph bool) (end, what string) {
	if text[0] != '<' || len(text) < 2 {
		return "", ""
	}
	switch {
	case bytes.HasPrefix(text, []byte("<!--")):
		return "-->", "comment"
	case text[1] == '?':
		return "?>", "HTML block"
	case bytes.HasPrefix(text, []byte("<![CDATA[")):
		return "]]>", "HTML block"
	case len(text) > 2 && text[1] == '!' && (text[2]|0x20 >= 'a' && text[2]|0x20 <= 'z'):
		return ">", "HTML block"
	case htmlBlock().Match(text):
		return "", "HTML block"
	case !paragraph && htmlAny().Match(text) && !htmlRaw().Match(text):
		return "", "HTML block"
	}
	if m := htmlRaw().FindSubmatch(text); m != nil {
		return "</" + string(bytes.ToLower(m[1])) + ">", "HTML block"
	}
	return "", ""
}

// itemOf gives how far a line must be indented to stand in the list item that
// this line begins; 0 if it begins none.
func itemOf(line []byte) int {
	text := bytes.TrimLeft(line, " ")
	marker := 0
	if isBullet(text[0]) {
		marker = 1
	} else {
		for marker < len(text) && marker < 10 && text[marker] >= '0' && text[marker] <= '9' {
			marker++
		}
		if marker == 0 || marker == len(text) || text[marker] != '.' && text[marker] != ')' {
			return 0
		}
		marker++
	}
	rest := text[marker:]
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return 0
	}
	blanks := indentOf(rest)
	if blanks == 0 || blanks > 4 || len(trimRight(rest)) == 0 {
		blanks = 1
	}
	return len(line) - len(text) + marker + blanks
}

func isThematicBreak(text []byte) bool {
	n := 0
	for _, c := range text {
		switch {
		case c == ' ' || c == '\t':
		case c == text[0] && (c == '-' || c == '*' || c == '_'):
			n++
		default:
			return false
		}
	}
	return n >= 3
}
