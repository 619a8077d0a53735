package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is about lines that a good ledger does not have: what is left of a
// record that has lost a part, and what cannot be read as text.

// astray looks for what can only come from a record that lost a part: such lines
// are set aside with all that belongs to them, so that they change nothing else.
func (p *parser) astray(line []byte, start, next int) bool {
	if len(line) == 0 {
		return false
	}
	switch c := line[0]; {
	case c == '<' || c == '>':
		return p.endLine(line, start, next) || p.conflictLine(line, start, next)
	case isBullet(c):
		return p.headless(line, start, next) || p.belowEnd(line, start, next)
	case c == '#' || c == ' ' || c == '\t' || c >= utf8.RuneSelf:
		return p.mistyped(line, start, next) || p.belowEnd(line, start, next)
	}
	return p.belowEnd(line, start, next)
}

// mistyped sets a section aside whose heading is nearly that of a record.
func (p *parser) mistyped(line []byte, start, next int) bool {
	h, ok := nearHeadingOf(line)
	if !ok {
		return false
	}
	below := p.nextLine(next)
	hasSeq := isSeqLine(below) && (h.kind != "" || isNumbered(below))
	inside := p.blocks.inside(line)
	near := h.kind != "" && !inside && h.id != nil && isTellingField(below)
	if !near && (!hasSeq || inside && (h.kind == "" || h.id == nil)) {
		return false
	}
	if h.id == nil && p.continues(line, start) {
		return false
	}
	p.closeSection(start)
	if h.id == nil {
		return true // text, above a record without heading
	}
	if hasSeq {
		p.reportOpen(p.line)
		p.blocks.afterRecord()
	}
	p.begin(h.kind, h.id, start, next)
	p.own, p.outer = hasSeq, p.blocks
	if h.kind == "" {
		p.fail("%q is followed by a record's seq, but is no heading of a record; put ## Task ID between them", shorten(line))
	} else {
		p.fail("%s", h.complaint(line))
	}
	return true
}

// headless sets a record aside that has lost its heading.
func (p *parser) headless(line []byte, start, next int) bool {
	if p.open != nil && !p.sealed || !isSeqLine(line) || !isNumbered(line) || p.blocks.inside(line) {
		return false
	}
	p.closeSection(start)
	p.blocks.afterRecord()
	p.begin("", nil, start, next)
	p.own, p.outer = true, p.blocks
	p.field(line, next)
	p.fail("record %d has lost its heading; put the line ## Task ID back above it, or delete what is left of it", p.open.Seq)
	return true
}

// belowEnd takes a line that belongs above an end line: a field with nothing but
// empty lines and such fields between, or an indented line, the rest of a prompt, with
// the empty line between that stint writes behind a record, or without. If it is
// directly below, and the record has no such field, the end line may have been moved
// up: then nobody knows what the record has lost by it. What may be the end of an id,
// directly below it and above a field, is the rest of a heading whose writer has paused within it.
func (p *parser) belowEnd(line []byte, start, next int) bool {
	if p.ended.seq == 0 || p.open != nil && !p.sealed {
		return false
	}
	first, directly := p.ended.finding == nil, p.ended.to == start
	mended, isRest := spoiled(p.data[start:next]), false
	switch {
	case isTellingField(line):
	case first && directly && validID(line) && isTellingField(p.nextLine(next)):
		mended, isRest = p.data[start:next], true
	case first && isIndented(line) && bytes.Count(p.data[p.ended.to:start], newline) <= 1:
		mended = slices.Concat(newline, newline, p.data[start:next])
	default:
		return false
	}
	if first {
		why := "and belongs to nothing; put it above that line"
		if isRest {
			why = "and above a field: put it back at the end of its heading, or an empty line above it if it is a note"
		}
		f := &SyntaxError{Line: p.line, Msg: fmt.Sprintf("%q stands below the end line of record %d, %s", shorten(bytes.TrimSpace(line)), p.ended.seq, why)}
		p.doc.Findings = append(p.doc.Findings, f)
		p.ended.finding = f
		if directly && !isRest {
			p.setLastAside(nearField(line))
		}
	}
	p.doc.damaged = append(p.doc.damaged, damage{finding: p.ended.finding, from: start, to: next, mended: mended})
	return true
}

// spoiled gives a field as what is none; Markdown sees the same list in it.
func spoiled(line []byte) []byte {
	i := max(0, bytes.IndexFunc(line, unicode.IsLetter))
	return slices.Concat(line[:i], []byte(`\`), line[i:])
}

// setLastAside sets the record aside that was read last, unless it has the key of
// the field below it: then somebody meant to add to it, and it lacks nothing.
func (p *parser) setLastAside(key string) {
	p.closeSection(p.pos)
	n := len(p.doc.Sections) - 1
	if n < 0 || int(p.doc.Sections[n].Off)+len(p.doc.Sections[n].Raw) != p.ended.to {
		return // it was set aside before
	}
	s := p.doc.Sections[n]
	if s.Get(key) != nil {
		return
	}
	p.doc.Sections = p.doc.Sections[:n]
	p.doc.damaged = append(p.doc.damaged, damage{finding: p.ended.finding, name: nameOf(&s), seq: s.Seq, from: int(s.Off), to: p.ended.to})
}

// conflictLine takes the first or last line of a merge conflict. What people wrote
// between them waits: nobody knows which side is meant.
func (p *parser) conflictLine(line []byte, start, next int) bool {
	begins, ends := isConflict(line, conflictBegin), isConflict(line, conflictEnd)
	if !begins && !ends || p.blocks.what != "" && !(ends && p.conflict > 0) {
		return false
	}
	inSection := p.open != nil && !p.sealed
	switch {
	case ends && p.conflict > 0 && inSection && p.open.Line > p.conflict && !p.inRecord():
		p.failAt(p.open.Line, inConflict, p.conflict)
	case begins || inSection || p.conflict == 0:
		mended := append([]byte(`\`), p.data[start:next]...)
		if ends {
			mended = append([]byte("> "), p.data[start+1:next]...)
		}
		p.report(start, next, mended, "a merge conflict; keep one side of it and delete the lines <<<<<<<, ======= and >>>>>>>")
	}
	if ends && p.conflict > 0 {
		p.setConflictAside()
	}
	p.conflict = 0
	if begins {
		p.conflict, p.before = p.line, len(p.doc.Sections)
	}
	return true
}

const inConflict = "this stands in the merge conflict that begins in line %d; it is taken over when that is settled"

// setConflictAside sets aside what people wrote in the conflict that ends here.
func (p *parser) setConflictAside() {
	kept := p.doc.Sections[:p.before]
	for _, s := range p.doc.Sections[p.before:] {
		if s.Seq > 0 {
			kept = append(kept, s)
			continue
		}
		f := &SyntaxError{Line: s.Line, Msg: fmt.Sprintf(inConflict, p.conflict)}
		p.doc.Findings = append(p.doc.Findings, f)
		p.doc.damaged = append(p.doc.damaged, damage{finding: f, name: nameOf(&s), from: int(s.Off), to: int(s.Off) + len(s.Raw)})
	}
	p.doc.Sections = kept
}

// unreadable takes a line that cannot be what it looks like.
func (p *parser) unreadable(line []byte, start, next int) bool {
	switch {
	case bytes.IndexByte(line, 0) >= 0:
		p.nulBytes(start, next)
		return true
	case !p.inRecord() && hidesRecord(line):
		p.report(start, next, visible(p.data[start:next]), "a CR, or another character that some editors take for a line break, stands before what would be a line of a record; put a line break or a blank in its place")
		return true
	}
	return false
}

// nulBytes reports a line with NUL bytes, once for all of a section or of the text
// between two.
func (p *parser) nulBytes(start, next int) {
	const lost = "NUL bytes%s: what stood here is lost, perhaps in a power cut; "
	if p.blocks.what == "" && isSeqLine(p.nextLine(next)) { // where a heading should be
		p.closeSection(start)
		p.begin("", nil, start, next)
		p.own, p.outer = true, p.blocks
	}
	if p.open != nil && !p.sealed {
		p.fail(lost+"take them out, or put the section back from a copy, such as stint fsck --repair makes", " in this section")
		return
	}
	mended := spellNULs(p.data[start:next])
	if p.nul == nil {
		p.report(start, next, mended, fmt.Sprintf(lost+"take them out (if the file is in UTF-16: save it as UTF-8)", ""))
		p.nul = p.doc.damaged[len(p.doc.damaged)-1].finding
		return
	}
	p.doc.damaged = append(p.doc.damaged, damage{finding: p.nul, from: start, to: next, mended: mended})
}

// visible writes what breaks lines as escapes.
func visible(line []byte) []byte {
	var b strings.Builder
	for _, r := range string(line) {
		if breaksLine(r) {
			writeEscaped(&b, r)
		} else {
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}

// utf16File reports a file that an editor has saved in UTF-16, and reads none of it.
func (p *parser) utf16File() bool {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case bytes.HasPrefix(p.data, []byte("\xfe\xff")):
		order = binary.BigEndian
	case !bytes.HasPrefix(p.data, []byte("\xff\xfe")):
		return false
	}
	units := make([]uint16, len(p.data)/2)
	for i := range units {
		units[i] = order.Uint16(p.data[2*i:])
	}
	text := strings.TrimPrefix(string(utf16.Decode(units)), "\ufeff")
	p.report(0, len(p.data), []byte(text), "the file is in UTF-16; save it as UTF-8")
	return true
}

// report notes a finding about a line: the open section is set aside, or, where
// none is open, the line alone. mended is what it would do no harm as.
func (p *parser) report(start, next int, mended []byte, msg string) {
	if p.open != nil && !p.sealed {
		p.fail("%s", msg)
		return
	}
	f := &SyntaxError{Line: p.line, Msg: msg}
	p.doc.Findings = append(p.doc.Findings, f)
	p.doc.damaged = append(p.doc.damaged, damage{finding: f, from: start, to: next, mended: mended})
}

// endLine takes an end line. One that closes nothing shows that something above
// it is missing.
func (p *parser) endLine(line []byte, start, next int) bool {
	seq, _, ok := parseEnd(line)
	switch {
	case !ok:
		return false
	case p.open == nil || p.sealed:
		was := fmt.Appendf(nil, "<!-- was: end %d -->\n", seq)
		p.report(start, next, was, fmt.Sprintf("end line of record %d without the record; put the lines above it back, or delete this line", seq))
		return true
	case !p.inRecord():
		p.fail("end line of record %d in a section without seq; put - seq: %d back below its heading, or take out what belongs to that record", seq, seq)
	case seq != p.open.Seq:
		p.fail("end line of record %d in record %d: lines between are missing; put them back, or write <!-- end %d --> if none are", seq, p.open.Seq, p.open.Seq)
	}
	p.seal(next)
	return true
}
