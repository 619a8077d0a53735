package ledger

import (
	"bytes"
	"fmt"
	"strconv"
)

// A Document is a whole ledger file as a person may have left it.
type Document struct {
	Sections []Section      // the good records, in file order
	Findings []*SyntaxError // what is wrong, in file order
	Version  int            // of the version line; 0 without one
	data     []byte
}

var (
	bom         = []byte("\ufeff")
	versionOpen = []byte("<!-- stint ledger ")
)

// VersionLine is the first line of a ledger of this format.
const VersionLine = "<!-- stint ledger 1 -->"

// Parse reads a ledger. It never fails: what is wrong is in the findings, and
// only the section concerned is left out. The sections are views into data.
func Parse(data []byte) *Document {
	p := parser{doc: &Document{data: data}, data: data, line: 1}
	if bytes.HasPrefix(data, bom) {
		p.pos = len(bom)
	}
	p.doc.Version = versionOf(data[p.pos:])
	for p.pos < len(data) {
		p.step()
	}
	p.closeSection(len(data))
	p.reportOpen(0)
	return p.doc
}

// versionOf reads the version line, which is the first line of a file.
func versionOf(data []byte) int {
	rest, ok := bytes.CutPrefix(data, versionOpen)
	if !ok {
		return 0
	}
	word, _, _ := bytes.Cut(rest, []byte(" "))
	v, err := strconv.Atoi(string(word))
	if err != nil {
		return 0
	}
	return v
}

// A parser walks the lines of a file. At most one section is open: one that
// stands there not just as stint wrote it.
type parser struct {
	doc    *Document
	data   []byte
	pos    int
	line   int
	blocks blockState

	open    *Section // a section being read by lines, or nil
	body    bool     // the last field of open takes indented lines
	from    int      // where that body begins
	bad     *SyntaxError
	sealed  bool // open had its end line: only text may follow
	lastEnd int  // end of the last line that belongs to open
}

// step takes one line, or one whole record that is just as stint wrote it.
func (p *parser) step() {
	if p.data[p.pos] == '#' && p.strict() {
		return
	}
	start, next := p.pos, len(p.data)
	if i := bytes.IndexByte(p.data[p.pos:], '\n'); i >= 0 {
		next = p.pos + i + 1
	}
	line := trimRight(p.data[start : next-newlineLen(p.data[start:next])])
	p.takeLine(line, start, next)
	p.pos = next
	p.line++
}

func newlineLen(line []byte) int {
	if len(line) > 0 && line[len(line)-1] == '\n' {
		return 1
	}
	return 0
}

// strict takes a whole record the fast way.
func (p *parser) strict() bool {
	var s Section
	n, _, err := scanStrict(p.data[p.pos:], &s)
	if err != nil {
		return false
	}
	p.closeSection(p.pos)
	p.reportOpen(p.line)
	p.blocks.afterRecord()
	s.Off, s.Line = int64(p.pos), p.line
	p.doc.Sections = append(p.doc.Sections, s)
	p.pos += n
	p.line += s.lines
	return true
}

// takeLine does what one line asks for: begin a section, add to it, close it,
// or nothing, when it is a person's text.
func (p *parser) takeLine(line []byte, start, next int) {
	if p.inBody() && (len(line) == 0 || isIndented(line)) {
		p.extend(line, next)
		return
	}
	if kind, id, ok := recordHeading(line); ok {
		hasSeq := line[0] == '#' && isSeqLine(p.nextLine(next))
		if hasSeq || !p.blocks.inside(line) {
			p.closeSection(start)
			if hasSeq {
				p.reportOpen(p.line)
				p.blocks.afterRecord()
			} else {
				p.blocks.feed(line, p.line)
			}
			p.begin(kind, id, start, next)
			return
		}
		p.blocks.hide(p.line)
	}
	if p.continues(line, start) {
		p.fail("%q continues the line above; write the value as | and lines indented by two blanks", shorten(bytes.TrimSpace(line)))
		return
	}
	if p.open != nil && p.open.Seq > 0 && !p.sealed {
		p.ownLine(line, start, next)
		return
	}
	heading := !p.blocks.inside(line) && isHeading(line)
	if heading {
		p.closeSection(start)
	}
	wasInside := p.blocks.inside(line)
	p.blocks.feed(line, p.line)
	if p.open != nil && !p.sealed && !wasInside && !heading {
		p.personsLine(line, next)
	}
}

func (p *parser) inBody() bool { return p.open != nil && p.body }

func isIndented(line []byte) bool {
	return line[0] == '\t' || len(line) > 1 && line[0] == ' ' && line[1] == ' '
}

// nextLine gives the next line from pos on that is not blank.
func (p *parser) nextLine(pos int) []byte {
	for pos < len(p.data) {
		line, next, ok := cutLine(p.data, pos)
		if !ok {
			return p.data[pos:]
		}
		if len(trimRight(line)) > 0 {
			return line
		}
		pos = next
	}
	return nil
}

func (p *parser) begin(kind Kind, id []byte, start, next int) {
	p.open = &Section{Kind: kind, ID: id, Off: int64(start), Line: p.line}
	p.body, p.sealed, p.bad, p.lastEnd = false, false, nil, next
	if !validID(id) {
		p.fail("%q cannot be an id: 1 to %d of A-Z a-z 0-9 . _ : -", id, maxID)
	}
}

// fail sets the open section aside. The first reason counts.
func (p *parser) fail(format string, args ...any) {
	if p.bad == nil {
		p.bad = &SyntaxError{Line: p.line, Msg: fmt.Sprintf(format, args...)}
	}
}

// extend adds a line to the body of the last field.
func (p *parser) extend(line []byte, next int) {
	if len(line) > 0 {
		p.open.Fields[len(p.open.Fields)-1].raw = p.data[p.from:next]
		p.lastEnd = next
	}
}

// ownLine takes a line of a section that has a seq: fields, then the end line.
func (p *parser) ownLine(line []byte, start, next int) {
	if seq, _, ok := parseEnd(line); ok {
		if seq != p.open.Seq {
			p.fail("end line of record %d in record %d: a line in between is missing", seq, p.open.Seq)
		}
		p.sealed, p.body, p.lastEnd = true, false, next
		p.blocks.afterRecord()
		return
	}
	switch {
	case len(line) == 0:
	case p.field(line, next):
	case isHeading(line):
		p.closeSection(start)
		p.blocks.feed(line, p.line)
	default:
		p.fail("%q is no field of record %d; write - key: value, or put your text behind its end line", shorten(line), p.open.Seq)
	}
}

// personsLine takes a line of a section without seq: a field, or text that is kept.
func (p *parser) personsLine(line []byte, next int) {
	if len(line) > 0 && !p.field(line, next) {
		p.body = false
	}
}

// continues reports whether the line directly below a field is indented without
// being a body: Markdown reads it as part of the value, so it must not be lost.
func (p *parser) continues(line []byte, start int) bool {
	if p.open == nil || p.sealed || p.lastEnd != start || len(p.open.Fields) == 0 || len(line) == 0 || line[0] != ' ' && line[0] != '\t' {
		return false
	}
	text := bytes.TrimLeft(line, " \t")
	return !(isBullet(text[0]) && len(text) > 1 && text[1] == ' ')
}

// isSeqLine reports whether the line is a record's "- seq:".
func isSeqLine(line []byte) bool {
	return len(line) > 1 && isBullet(line[0]) && bytes.HasPrefix(bytes.TrimLeft(line[1:], " "), []byte("seq:"))
}

// field reads "- key: value" and reports whether the line is one.
func (p *parser) field(line []byte, next int) bool {
	text := bytes.TrimLeft(line, " ")
	if len(line)-len(text) > 3 || len(text) < 2 || !isBullet(text[0]) || text[1] != ' ' && text[1] != '\t' {
		return false
	}
	key, value, ok := bytes.Cut(bytes.TrimLeft(text[2:], " \t"), []byte(":"))
	if !ok || !validKey(key) {
		return false
	}
	value = bytes.Trim(value, " \t")
	p.body, p.lastEnd = false, next
	if string(key) == KeySeq {
		p.seqField(value)
		return true
	}
	f := Field{Key: key, raw: value, line: p.line - p.open.Line}
	if string(value) == markBlock || string(value) == markEscaped {
		f.raw, f.form, p.body, p.from = nil, formBlock, true, next
		if string(value) == markEscaped {
			f.form = formEscaped
		}
	}
	p.open.Fields = append(p.open.Fields, f)
	return true
}

func (p *parser) seqField(value []byte) {
	seq, ok := parseUint(value)
	switch {
	case !ok || seq == 0 || seq > maxSeq:
		seq = 1 // whatever it is, it makes no section of a person's
		p.fail("seq %q is no number; stint writes it, leave it out of what you add", value)
	case len(p.open.Fields) > 0 || p.open.Seq > 0:
		p.fail("seq must be the first field")
	}
	p.open.Seq = seq
}

// closeSection ends the open section before offset end.
func (p *parser) closeSection(end int) {
	s := p.open
	if s == nil {
		return
	}
	p.open = nil
	if s.Seq > 0 && !p.sealed && p.bad == nil {
		p.bad = &SyntaxError{
			Line: s.Line, Torn: end == len(p.data),
			Msg: fmt.Sprintf("record %d has no end line <!-- end %d -->", s.Seq, s.Seq),
		}
	}
	if p.bad == nil && bytes.IndexByte(p.data[s.Off:p.lastEnd], 0) >= 0 {
		p.bad = &SyntaxError{Line: s.Line, Msg: "NUL bytes in this section"}
	}
	if p.bad != nil {
		p.doc.Findings = append(p.doc.Findings, p.bad)
		return
	}
	s.Raw = p.data[s.Off:p.lastEnd]
	p.doc.Sections = append(p.doc.Sections, *s)
}

// reportOpen reports a fence, comment or HTML block that is open where a record
// begins (in line at), or that hides a heading up to the end of the file (at 0).
func (p *parser) reportOpen(at int) {
	b := &p.blocks
	if at == 0 {
		at = b.hidden
	}
	if b.what == "" || b.reported || at == 0 {
		return
	}
	b.reported = true
	p.doc.Findings = append(p.doc.Findings, &SyntaxError{
		Line: b.line, Msg: fmt.Sprintf("this %s is still open at the record in line %d; close it", b.what, at),
	})
}

// recordHeading reads "## Task id", as CommonMark allows it to be written.
func recordHeading(line []byte) (Kind, []byte, bool) {
	level, text := headingText(line)
	if level != 2 {
		return "", nil, false
	}
	word, id := text, []byte(nil)
	if i := bytes.IndexAny(text, " \t"); i >= 0 {
		word, id = text[:i], bytes.Trim(text[i:], " \t")
	}
	kind, ok := kindOf(word)
	return kind, id, ok
}

// headingText gives the level and text of an ATX heading; level 0 if it is none.
func headingText(line []byte) (int, []byte) {
	text := bytes.TrimLeft(line, " ")
	if len(line)-len(text) > 3 {
		return 0, nil
	}
	level := 0
	for level < len(text) && text[level] == '#' {
		level++
	}
	text = text[level:]
	if level == 0 || level > 6 || len(text) > 0 && text[0] != ' ' && text[0] != '\t' {
		return 0, nil
	}
	text = bytes.Trim(text, " \t")
	if cut := bytes.TrimRight(text, "#"); len(cut) == 0 || len(cut) < len(text) && (cut[len(cut)-1] == ' ' || cut[len(cut)-1] == '\t') {
		text = bytes.TrimRight(cut, " \t")
	}
	return level, text
}

func isHeading(line []byte) bool {
	level, _ := headingText(line)
	return level == 1 || level == 2
}

func isBullet(c byte) bool { return c == '-' || c == '*' || c == '+' }

func shorten(line []byte) []byte {
	if len(line) > 40 {
		return append(bytes.Clone(line[:40]), "…"...)
	}
	return line
}
