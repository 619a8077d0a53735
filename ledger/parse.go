package ledger

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
)

// A Document is a whole ledger file as a person may have left it.
type Document struct {
	Sections []Section      // the good records, in file order
	Findings []*SyntaxError // what is wrong, in file order
	Version  int            // of the version line; 0 without one
	End      int            // the line behind the last one
	Data     []byte

	Damaged []Damage // the sections that were set aside, in file order
	Opens   []Damage // the fences, comments and HTML blocks that are open at a record, or behind a damaged section, in file order
}

// Damage is what was set aside, a section or a line of text, or a block: data[from:to].
type Damage struct {
	Finding  *SyntaxError
	Name     string // kind and id of a section, as far as they can be told
	Seq      uint64
	From, To int
	IsLine   bool // a line that belongs to no section
}

var (
	bom         = []byte("\ufeff")
	ledgerOpen  = []byte("<!-- stint ledger ")
	journalOpen = []byte("<!-- stint journal ")
)

// The first lines of the two files say which is which, so that one in the place of the
// other is noticed. A journal may begin like a ledger: those of before do.
const (
	VersionLine = "<!-- stint ledger 1 -->"
	JournalLine = "<!-- stint journal 1 -->"
)

// Parse reads a ledger. It never fails: what is wrong is in the findings, and
// only the section concerned is left out. The sections are views into data.
func Parse(data []byte) *Document {
	doc, _ := ParseContext(context.Background(), data) // which never ends
	return doc
}

// A Gap is whole records and empty lines that were left out of a file: so many lines before an offset.
type Gap struct{ Off, Lines int }

// ParseContext is Parse until ctx ends; the error is its cause then. The lines are those of the file without gaps.
func ParseContext(ctx context.Context, data []byte, gaps ...Gap) (*Document, error) {
	p := parser{doc: &Document{Data: data}, data: data, line: 1}
	if bytes.HasPrefix(data, bom) {
		p.pos = len(bom)
	}
	p.doc.Version = VersionOf(data[p.pos:])
	for p.pos < len(data) {
		for range 1000 {
			for len(gaps) > 0 && p.pos >= gaps[0].Off {
				p.line += gaps[0].Lines
				gaps = gaps[1:]
			}
			if p.pos < len(data) {
				p.step()
				p.endOpen(p.pos)
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	p.doc.End = p.line
	p.closeSection(len(data))
	p.reportOpen(0)
	p.blocks.closeTo(0)
	p.endOpen(len(data))
	slices.SortStableFunc(p.doc.Findings, func(a, b *SyntaxError) int { return cmp.Compare(a.Line, b.Line) })
	return p.doc, nil
}

// VersionOf reads the version line, which is the first line of a file.
func VersionOf(data []byte) int {
	rest, ok := bytes.CutPrefix(data, ledgerOpen)
	if !ok {
		rest, ok = bytes.CutPrefix(data, journalOpen)
	}
	if !ok {
		return 0
	}
	word, _, _ := bytes.Cut(rest, []byte(" "))
	v, _ := strconv.Atoi(string(word)) // 0 if it is no number
	return v
}

// A parser walks the lines of a file. At most one section is open: one that stands there not just as stint wrote it.
type parser struct {
	doc    *Document
	data   []byte
	pos    int
	line   int
	blocks blockState

	spare []Field // memory for the fields of one record

	open    *Section // a section being read by lines, or nil
	body    bool     // the last field of open takes indented lines
	from    int      // where that body begins
	bad     *SyntaxError
	own     bool // open begins with a seq: nothing around it matters
	sealed  bool // open had its end line: only text may follow
	text    bool // open has a line that is no field
	lastEnd int  // end of the last line that belongs to open

	outer blockState // the blocks around the open record of stint's own; none outlives it that began in it
	ended bool       // nothing but empty lines stands between the last record's end line and here
	torn  bool       // NUL bytes stand above, and below them no heading at the margin
}

// step takes one line, or one whole record that is just as stint wrote it.
func (p *parser) step() {
	if p.data[p.pos] == '#' && p.strict() {
		return
	}
	start := p.pos
	line, next := lineAt(p.data, start)
	was := p.inRecord()
	p.takeLine(TrimRight(line), start, next)
	if isGood := p.inRecord() && p.bad == nil; !isGood && !(was && p.sealed) { // else Markdown's blocks do not matter
		p.feed(line, start, next)
	}
	p.pos = next
	p.line++
}

// feed tells the blocks of a line. A heading that is made by the line below it ends a section as any other heading does.
func (p *parser) feed(line []byte, start, next int) {
	p.blocks.feed(bytes.TrimRight(line, " \t\r"), p.line)
	if p.blocks.line == p.line {
		p.blocks.from = start
	}
	switch {
	case p.open == nil || p.sealed || p.inRecord():
	case p.blocks.setext:
		p.closeSection(next) // what is set aside takes the line along that made the heading
	case p.blocks.lazy && p.lastEnd == start && p.mayGoOn(start):
		p.fail(line) // Markdown reads it as a part of the value above it
	}
}

// mayGoOn reports whether the line above offset end is a prompt, or so long that an editor may
// have wrapped it, or is indented, as a text below a | is. Below another short one, people write notes.
func (p *parser) mayGoOn(end int) bool {
	above := bytes.TrimRight(p.data[p.open.Off:end], "\r\n")
	above = above[bytes.LastIndexByte(above, '\n')+1:]
	return len(above) >= 60 || isIndented(above) || bytes.HasPrefix(bytes.TrimLeft(above, "-*+ "), []byte("prompt:"))
}

// strict takes a whole record the fast way.
func (p *parser) strict() bool {
	s := Section{Fields: p.spare}
	n, _, err := Scan(p.data[p.pos:], &s)
	if err != nil || p.goesOn(p.pos+n) != nil {
		return false
	}
	p.spare, s.Fields = s.Fields[:0], slices.Clone(s.Fields)
	p.closeSection(p.pos)
	p.reportOpen(p.line)
	p.blocks.afterRecord()
	s.Off, s.Line = int64(p.pos), p.line
	p.doc.Sections = append(p.doc.Sections, s)
	p.pos += n
	p.line += s.lines
	p.ended, p.torn = true, false
	return true
}

// takeLine does what one line asks for: begin a section, add to it, close it, or nothing, when it is a person's text.
func (p *parser) takeLine(line []byte, start, next int) {
	if p.unreadable(line, start, next) {
		return
	}
	if p.open != nil && p.body && (len(line) == 0 || isIndented(line)) {
		p.extend(line, next)
		return
	}
	if len(line) > 0 {
		if p.heading(line, start, next) || p.endLine(line, start, next) || p.conflictLine(line, start, next) || p.headless(line, start, next) {
			return
		}
		p.ended = false
	}
	if p.continues(line, start) {
		p.fail(line)
		return
	}
	if p.inRecord() {
		p.ownLine(line, start, next)
		return
	}
	switch inside := p.blocks.inside(line); {
	case !inside && isHeading(line):
		p.closeSection(start)
	case p.open != nil && !p.sealed:
		p.personsLine(line, next, inside)
	}
}

// inRecord reports whether a record of stint's own is open.
func (p *parser) inRecord() bool {
	return p.open != nil && !p.sealed && (p.open.Seq > 0 || p.own)
}

// heading begins a section if the line is the heading of a record.
func (p *parser) heading(line []byte, start, next int) bool {
	if line[0] != '#' && line[0] != ' ' {
		return false
	}
	kind, id, ok := recordHeading(line)
	if !ok {
		return false
	}
	p.torn = p.torn && line[0] == ' '
	below := p.nextLine(next)
	hasSeq := line[0] == '#' && isSeqLine(below)
	switch {
	case hasSeq:
		p.closeSection(start)
		p.reportOpen(p.line)
		p.blocks.afterRecord()
	case p.blocks.inside(line) || p.inRecord() && p.outer.what != "":
		if b := &p.blocks; b.what != "" && b.hidden == 0 {
			b.hidden = p.line
		}
		return false
	case !ValidID(id) && !isTellingField(below) && !bytes.Contains(id, []byte("seq:")):
		return false // ## Task force meets today
	default:
		p.closeSection(start)
		p.blocks.closeTo(0)
	}
	p.begin(kind, id, start, next)
	p.own, p.outer = hasSeq, p.blocks
	if !ValidID(id) || p.torn { // what is indented may be of a text whose record's beginning is lost
		p.fail(line)
	}
	return true
}

func isIndented(line []byte) bool {
	return line[0] == '\t' || len(line) > 1 && line[0] == ' ' && line[1] == ' '
}

// nextLine returns the next line from pos on that is not blank.
func (p *parser) nextLine(pos int) []byte {
	for pos < len(p.data) {
		line, next := lineAt(p.data, pos)
		if len(TrimRight(line)) > 0 {
			return line
		}
		pos = next
	}
	return nil
}

func (p *parser) begin(kind Kind, id []byte, start, next int) {
	p.open = &Section{Kind: kind, ID: id, Off: int64(start), Line: p.line}
	p.body, p.sealed, p.bad, p.own, p.text, p.lastEnd = false, false, nil, false, false, next
	p.ended = false
}

// fail sets the open section aside because of a line. The first one counts. From here on it
// is text, and the blocks are told of all of it.
func (p *parser) fail(line []byte) {
	if p.bad != nil {
		return
	}
	p.bad = p.finding(line)
	if !p.inRecord() {
		return
	}
	for line := range bytes.Lines(p.data[p.open.Off:max(int(p.open.Off), p.pos)]) {
		p.blocks.feed(bytes.TrimRight(line, " \t\r\n"), p.open.Line)
	}
}

// finding returns the one finding for all that is wrong with a line.
func (p *parser) finding(line []byte) *SyntaxError {
	how := "write ## Task ID, below it lines - key: value, and a longer value as | with its lines indented by two blanks below; an ID is 1 to 128 of A-Z a-z 0-9 . _ : -"
	if p.inRecord() || p.open == nil || p.sealed {
		how = "undo the change here, or delete what is left of a record (stint fsck --repair writes a copy with the records as they were)"
	}
	if line = bytes.TrimSpace(line); len(line) > 40 {
		line = append(bytes.Clone(line[:40]), "…"...)
	}
	return &SyntaxError{Line: p.line, Msg: fmt.Sprintf("%q cannot be read as a part of a record; %s", line, how)}
}

// extend adds a line to the body of the last field.
func (p *parser) extend(line []byte, next int) {
	if _, _, isHead := recordHeading(line); isHead && !p.inRecord() && !p.blocks.inside(line) {
		p.fail(line) // for Markdown
	}
	if len(line) > 0 {
		p.open.Fields[len(p.open.Fields)-1].raw = p.data[p.from:next]
		p.lastEnd = next
	}
}

// seal ends the open section behind its end line. No block outlives a record that began in it.
func (p *parser) seal(next int) {
	if p.inRecord() {
		p.blocks = p.outer
		p.blocks.afterRecord()
		p.ended = true
	} else if p.blocks.what != "" {
		p.beginOpen(p.bad)
	}
	p.sealed, p.body, p.lastEnd = true, false, next
}

// ownLine takes a line of a section that has a seq: a field, or one too many.
func (p *parser) ownLine(line []byte, start, next int) {
	switch {
	case len(line) == 0:
	case p.field(line, next):
	case isHeading(line) && !p.blocks.inside(line):
		p.closeSection(start)
		p.unreadable(line, start, next) // which it was not in the record
	default:
		p.fail(line)
		if line[0] == '<' { // what is left of its end line
			p.seal(next)
		}
	}
}

// personsLine takes a line of a section without seq: a field, or text that is
// kept. inside says that Markdown has it in another block.
func (p *parser) personsLine(line []byte, next int, inside bool) {
	if len(line) == 0 {
		return
	}
	if bytes.Contains(line, hashes) && gluedHeading().Match(line) && isTellingField(p.nextLine(next)) {
		p.fail(line) // the fields below are another record's
	}
	if !inside && p.field(line, next) {
		return
	}
	noColon := p.lastEnd == p.pos && noColonExpr().Match(line[:min(len(line), 80)]) // below a field, where a field is expected
	noBody := p.body && p.open.Fields[len(p.open.Fields)-1].raw == nil              // below a | at the end
	if p.blocks.what == "" && (noColon || isNearField(line)) || noBody {
		p.fail(line)
	}
	p.body, p.text = false, true
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
	return len(line) > 1 && isBullet(line[0]) && bytes.HasPrefix(bytes.TrimLeft(line[1:], " \t"), []byte("seq:"))
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
	value = trimBoth(value)
	p.body, p.lastEnd = false, next
	if string(key) == KeySeq {
		seq, ok := ParseUint(value)
		ok = ok && seq > 0 && seq <= MaxSeq
		if !ok {
			seq = 1 // whatever it is, it makes no section of a person's
		}
		if !ok || p.open.Seq > 0 || p.text || len(p.open.Fields) > 0 {
			p.fail(line)
		}
		p.open.Seq = seq
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

// closeSection ends the open section before offset end.
func (p *parser) closeSection(end int) {
	s := p.open
	if s == nil {
		return
	}
	if p.inRecord() {
		p.blocks = p.outer
	}
	p.open = nil
	if s.Seq > 0 && !p.sealed && p.bad == nil {
		p.bad = &SyntaxError{
			Line: s.Line,
			Msg:  fmt.Sprintf("record %d has no end line <!-- end %d -->; write it below the last field", s.Seq, s.Seq),
		}
	}
	if p.bad != nil {
		if p.sealed {
			end = p.lastEnd
		}
		p.doc.Findings = append(p.doc.Findings, p.bad)
		p.doc.Damaged = append(p.doc.Damaged, Damage{Finding: p.bad, Name: s.Name(), Seq: s.Seq, From: int(s.Off), To: end})
		return
	}
	s.Raw = p.data[s.Off:p.lastEnd]
	p.doc.Sections = append(p.doc.Sections, *s)
}

// reportOpen reports a fence, comment or HTML block that is open where a record
// begins (in line at), or that hides a heading up to the end of the file (at 0).
func (p *parser) reportOpen(at int) {
	b := &p.blocks
	at = cmp.Or(at, b.hidden)
	if b.what == "" || at == 0 || b.reported {
		return
	}
	b.reported = true
	f := &SyntaxError{Line: b.line, Msg: fmt.Sprintf("this %s is still open at the record in line %d; close it above that, with an empty line behind it", b.what, at)}
	p.doc.Findings = append(p.doc.Findings, f)
	p.beginOpen(f)
}

// beginOpen notes that the open block does not end where it should.
func (p *parser) beginOpen(f *SyntaxError) {
	if n := len(p.doc.Opens); n == 0 || p.doc.Opens[n-1].From != p.blocks.from {
		p.doc.Opens = append(p.doc.Opens, Damage{Finding: f, From: p.blocks.from})
	}
}

// endOpen notes where it does.
func (p *parser) endOpen(pos int) {
	if n := len(p.doc.Opens); n > 0 && p.doc.Opens[n-1].To == 0 && !p.inRecord() && (p.blocks.what == "" || p.blocks.from != p.doc.Opens[n-1].From) {
		p.doc.Opens[n-1].To = pos
	}
}

// recordHeading reads "## Task id", as CommonMark allows it to be written.
func recordHeading(line []byte) (Kind, []byte, bool) {
	level, text := HeadingText(line)
	if level != 2 {
		return "", nil, false
	}
	word, id := text, []byte(nil)
	if i := bytes.IndexAny(text, " \t"); i >= 0 {
		word, id = text[:i], trimBoth(text[i:])
	}
	kind, ok := kindOf(word)
	return kind, id, ok
}

// HeadingText returns the level and text of an ATX heading; level 0 if it is none.
func HeadingText(line []byte) (int, []byte) {
	text := bytes.TrimLeft(line, " ")
	if len(line)-len(text) > 3 {
		return 0, nil
	}
	level := len(text) - len(bytes.TrimLeft(text, "#"))
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
	level, _ := HeadingText(line)
	return level == 1 || level == 2
}

func isBullet(c byte) bool { return c == '-' || c == '*' || c == '+' }
