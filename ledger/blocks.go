package ledger

import (
	"bytes"
	"regexp"

	"stint/ledger/lazy"
)

// A blockState follows, line by line, the blocks of CommonMark (version 0.31, chapters 4 and 5) as far as
// they decide what is a heading at the top level: code, HTML blocks, paragraphs, list items and block quotes.
type blockState struct {
	what     string // "code fence", "comment" or "HTML block" that is open at the top level; "" if none
	line     int    // where it was opened
	from     int    // the offset of that line
	reported bool   // it was reported as open before a record
	hidden   int    // line of the first record heading in it

	containers []container           // open list items and block quotes, the outermost first
	leaf       leaf                  // what is open in the innermost of them
	fence      byte                  // ` or ~
	fenceLen   int                   // length of the opening fence
	htmlEnd    func() *regexp.Regexp // what closes the HTML block; nil is an empty line
	setext     bool                  // the line before made a top-level heading of the lines above it
	lazy       bool                  // the line before went on with a paragraph of containers that it was not in
}

// A container is an open list item or block quote.
type container struct {
	item  int  // columns that the content of a list item is indented by; 0: a block quote
	empty bool // the item has nothing in it yet: a blank line ends it
}

// leaf is the kind of the innermost open block.
type leaf uint8

const (
	leafNone leaf = iota
	leafParagraph
	leafFence
	leafHTML
	leafCode // indented code
)

// inside reports whether a line is in a block that can hold no top-level heading.
func (b *blockState) inside(line []byte) bool {
	if b.what != "" {
		return true
	}
	return len(b.containers) > 0 && b.containers[0].item > 0 && len(line) > 0 && indentOf(line) >= b.containers[0].item
}

// afterRecord is the state behind the end line of a record: no list and no
// paragraph is open there. A fence stays open, as Markdown has it.
func (b *blockState) afterRecord() {
	if b.what == "" || b.leaf == leafHTML && (b.htmlEnd == nil || endsHTML([]byte("<!-- end 1 -->"), b.htmlEnd)) { // an empty line or the end line closes it
		b.closeTo(0)
	}
}

// closeTo closes all but the n outermost containers, and the leaf.
func (b *blockState) closeTo(n int) {
	b.containers = b.containers[:n]
	b.leaf, b.what, b.reported, b.hidden = leafNone, "", false, 0
}

// open begins a leaf in the innermost container.
func (b *blockState) open(kind leaf, what string, line int) {
	b.leaf = kind
	if len(b.containers) == 0 {
		b.what, b.line, b.reported, b.hidden = what, line, false, 0
	}
}

// A cursor is what is left of a line behind the marks of its containers.
type cursor struct {
	text   []byte // from the first character that is no blank
	indent int    // columns of blanks before it
	col    int    // its column in the line
}

// skip moves the cursor to the first character of rest that is no blank.
func (c *cursor) skip(rest []byte) {
	c.text, c.indent = bytes.TrimLeft(rest, " \t"), 0
	for _, b := range rest[:len(rest)-len(c.text)] {
		n := 1
		if b == '\t' {
			n = 4 - c.col%4
		}
		c.indent += n
		c.col += n
	}
}

// past moves the cursor over n bytes of text and the blanks behind them.
func (c *cursor) past(n int) {
	c.col += n
	c.skip(c.text[n:])
}

// feed moves the state over one line, without its newline and trailing blanks.
func (b *blockState) feed(line []byte, number int) {
	var c cursor
	c.skip(line)
	b.setext, b.lazy = false, false
	n := b.matching(&c)
	if n == len(b.containers) && b.continues(&c) {
		return
	}
	if len(c.text) == 0 {
		b.closeTo(n)
		return
	}
	paragraph := b.leaf == leafParagraph // that may go on lazily
	for {
		isContainer, isLeaf := b.begin(&c, n, paragraph, number)
		if isLeaf || isContainer && len(c.text) == 0 {
			return
		}
		if !isContainer {
			break
		}
		n, paragraph = len(b.containers), false
	}
	b.lazy = paragraph && n < len(b.containers)
	if !paragraph {
		b.closeTo(n)
		b.leaf = leafParagraph
	}
}

// matching returns how many of the open containers go on in this line.
func (b *blockState) matching(c *cursor) int {
	for i := range b.containers {
		k := &b.containers[i]
		switch {
		case k.item == 0:
			if c.indent > 3 || len(c.text) == 0 || c.text[0] != '>' {
				return i
			}
			c.quote()
		case len(c.text) == 0:
			if k.empty {
				return i
			}
		case c.indent < k.item:
			return i
		default:
			k.empty = false
			c.indent -= k.item
		}
	}
	return len(b.containers)
}

// quote moves the cursor behind the > of a block quote.
func (c *cursor) quote() {
	c.past(1)
	c.indent = max(0, c.indent-1)
}

// continues reports whether the open leaf takes the whole line.
func (b *blockState) continues(c *cursor) bool {
	blank := len(c.text) == 0
	switch b.leaf {
	case leafFence:
		marks := len(c.text) - len(bytes.TrimLeft(c.text, string(b.fence)))
		if c.indent <= 3 && marks >= b.fenceLen && marks == len(c.text) {
			b.closeTo(len(b.containers))
		}
	case leafHTML:
		if endsHTML(c.text, b.htmlEnd) {
			b.closeTo(len(b.containers))
		}
	case leafCode:
		if !blank && c.indent < 4 {
			b.leaf = leafNone
			return false
		}
	default:
		return false
	}
	return true
}

// maxDepth bounds how many containers are followed: what is deeper is text. No
// heading at the top level depends on it, and a blank line costs a step for each.
const maxDepth = 64

// begin looks whether a container or a leaf begins at the cursor, inside the n outermost
// containers. paragraph says that a paragraph is open, in them or deeper.
func (b *blockState) begin(c *cursor, n int, paragraph bool, number int) (isContainer, isLeaf bool) {
	text := c.text
	if c.indent > 3 {
		if paragraph {
			return false, false
		}
		b.closeTo(n)
		b.leaf = leafCode
		return false, true
	}
	direct := paragraph && n == len(b.containers)
	deep := n >= maxDepth
	if text[0] == '>' && !deep {
		b.closeTo(n)
		c.quote()
		b.containers = append(b.containers, container{})
		return true, false
	}
	if b.beginLeaf(text, n, paragraph, number) {
		return false, true
	}
	if isThematicBreak(text) || direct && isUnderline(text) {
		b.setext = n == 0 && direct && isUnderline(text)
		b.closeTo(n)
		return false, true
	}
	if width := markerOf(text, direct); width > 0 && !deep {
		b.closeTo(n)
		before := c.indent
		c.past(width)
		padding := width + c.indent
		if c.indent > 4 || len(c.text) == 0 {
			padding = width + 1
		}
		c.indent = max(0, c.indent+width-padding)
		b.containers = append(b.containers, container{item: before + padding, empty: len(c.text) == 0})
		return true, false
	}
	return false, false
}

// beginLeaf begins a heading, a code fence or an HTML block.
func (b *blockState) beginLeaf(text []byte, n int, paragraph bool, number int) bool {
	if level, _ := HeadingText(text); level > 0 {
		b.closeTo(n)
		return true
	}
	if char, length := fenceOf(text); length > 0 {
		b.closeTo(n)
		b.fence, b.fenceLen = char, length
		b.open(leafFence, "code fence", number)
		return true
	}
	end, what := htmlOf(text, paragraph)
	if what == "" {
		return false
	}
	b.closeTo(n)
	if !endsHTML(text, end) {
		b.htmlEnd = end
		b.open(leafHTML, what, number)
	}
	return true
}

func indentOf(line []byte) int {
	var c cursor
	c.skip(line)
	return c.indent
}

// fenceOf returns the character and length of an opening code fence; length 0 if it is none.
func fenceOf(text []byte) (byte, int) {
	n := len(text) - len(bytes.TrimLeft(text, string(text[:1])))
	if n < 3 || text[0] != '`' && text[0] != '~' || text[0] == '`' && bytes.IndexByte(text[n:], '`') >= 0 {
		return 0, 0
	}
	return text[0], n
}

// htmlKinds are the kinds of HTML blocks, by what begins one and what ends it; nil is an empty line. Compiled when first needed:
// most processes of stint never parse a file.
var htmlKinds = [...]struct {
	what       string
	begin, end func() *regexp.Regexp
}{
	{"comment", lazy.Regexp(`^<!--`), lazy.Regexp(`-->`)},
	{"HTML block", lazy.Regexp(`^<\?`), lazy.Regexp(`\?>`)},
	{"HTML block", lazy.Regexp(`^<!\[CDATA\[`), lazy.Regexp(`\]\]>`)},
	{"HTML block", lazy.Regexp(`^<![A-Za-z]`), lazy.Regexp(`>`)},
	{"HTML block", lazy.Regexp(`(?i)^<(script|pre|style|textarea)([ \t>]|$)`), lazy.Regexp(`(?i)</(script|pre|style|textarea)>`)}, // not always the tag that began it
	{"HTML block", lazy.Regexp(`(?i)^</?(address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|ul)([ \t]|/?>|$)`), nil},
	{"HTML block", lazy.Regexp(`^<(/[A-Za-z][A-Za-z0-9-]*[ \t]*|[A-Za-z][A-Za-z0-9-]*([ \t]+[A-Za-z_:][A-Za-z0-9_.:-]*([ \t]*=[ \t]*([^ \t"'=<>` + "`" + `]+|'[^']*'|"[^"]*"))?)*[ \t]*/?)>[ \t]*$`), nil}, // that is none of these
}

var htmlRawTag = lazy.Regexp(`(?i)^</?(script|pre|style|textarea)([ \t/>]|$)`)

// htmlOf returns what ends the HTML block that the line begins, and what to call it; "" if it begins none.
func htmlOf(text []byte, paragraph bool) (end func() *regexp.Regexp, what string) {
	for i := 0; i < len(htmlKinds) && text[0] == '<'; i++ {
		isAny := i == len(htmlKinds)-1
		if k := &htmlKinds[i]; k.begin().Match(text) && !(isAny && (paragraph || htmlRawTag().Match(text))) {
			return k.end, k.what
		}
	}
	return nil, ""
}

// endsHTML reports whether the line has what ends an HTML block.
func endsHTML(line []byte, end func() *regexp.Regexp) bool {
	if end == nil {
		return len(line) == 0
	}
	return end().Match(line)
}

// markerOf returns the width of the marker of the list item that text begins; 0 if
// it begins none. Only some can end a paragraph without a blank line.
func markerOf(text []byte, paragraph bool) int {
	width := 1
	if !isBullet(text[0]) {
		width = len(text) - len(bytes.TrimLeft(text, "0123456789"))
		if width == 0 || width > 9 || width == len(text) || text[width] != '.' && text[width] != ')' {
			return 0
		}
		if first, _ := ParseUint(text[:width]); paragraph && first != 1 {
			return 0
		}
		width++
	}
	rest := text[width:]
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' || paragraph && len(rest) == 0 {
		return 0
	}
	return width
}

// isUnderline reports whether text makes a heading of the paragraph above it.
func isUnderline(text []byte) bool {
	return (text[0] == '=' || text[0] == '-') && len(bytes.Trim(text, string(text[:1]))) == 0
}

func isThematicBreak(text []byte) bool {
	isMark := text[0] == '-' || text[0] == '*' || text[0] == '_'
	return isMark && bytes.Count(text, text[:1]) >= 3 && len(bytes.Trim(text, string(text[:1])+" \t")) == 0
}
