package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file finds lines that look like part of a record and cannot be read as one:
// what is left of a record that has lost a part, and what a person has mistyped. They
// are set aside with all that belongs to them, so that they change nothing else.

const strayLine = "%q cannot be read as a part of a record; write ## Task ID, and below it lines - key: value"

// telling are the keys by which a line gives itself away as a field, however it is
// written. They decide what is reported, never what is read.
var telling = func() string {
	return strings.Join([]string{
		KeySeq, "status", "prompt", "result", "error", "reason", "sessionKey", "sessionId", "workspace", "agent", "tool", "model", "account",
		"priority", "order", "after", "hold", "label", "notBefore", "timeout", "resume", "verifyCommand", "verifyTimeout", "maxAttempts", "maxIterations",
		"onFailure", "onIssue", "idempotencyKey", "runId", "attempt", "createdAt", "updatedAt", "paused", "coolUntil", KeyBy, KeyAdopts, KeyEdits,
	}, "|")
}()

var (
	nearFieldExpr   = lazily(`^[\s\p{Z}\p{Cf}]*([-*+–—−‐‑•·]|[0-9]{1,9}[.)][ \t])[\s\p{Z}\p{Cf}*+_` + "`" + `"'“”„‘’-]*(?i:` + telling + `)[\s\p{Z}\p{Cf}*+_` + "`" + `"'“”„‘’-]*[:：﹕=]`)
	gluedHeading    = lazily(`[^ \t]## (Task|Job|Control) [A-Za-z0-9._:-]+$`)
	nearHeadingExpr = lazily(`^[\s\p{Z}\p{Cf}]{0,3}[#＃]+[\s\p{Z}\p{Cf}*` + "`" + `]*(?i:task|job|control)\b`)
)

// isNearField reports whether a line is a field that only a record would have, or nearly one.
func isNearField(line []byte) bool {
	line = line[:min(len(line), 80)] // a value may be long, and stand behind many breaks
	return bytes.ContainsAny(line, ":：﹕=") && nearFieldExpr().Match(line)
}

// isTellingField reports whether a line that is not indented as code is, or is nearly, a
// field that only a record would have.
func isTellingField(line []byte) bool { return indentOf(line) <= 3 && isNearField(line) }

// stray takes a line that can only come from a record that lost a part, or that was
// probably meant for a part of one.
func (p *parser) stray(line []byte, start, next int) bool {
	if len(line) == 0 {
		return false
	}
	switch c := line[0]; {
	case c == '<' || c == '>':
		return p.endLine(line, start, next) || p.conflictLine(line, start, next)
	case isBullet(c) && p.headless(line, start, next):
		return true
	case (c == '#' || c == ' ' || c >= utf8.RuneSelf) && p.nearHeading(line, start, next):
		return true
	}
	return p.belowEnd(line, start, next)
}

// nearHeading sets a section aside whose heading is nearly that of a record.
func (p *parser) nearHeading(line []byte, start, next int) bool {
	if !bytes.ContainsAny(line, "#＃") || !nearHeadingExpr().Match(line) {
		return false
	}
	below := p.nextLine(next)
	if !isTellingField(below) || p.blocks.inside(line) {
		return false
	}
	p.closeSection(start)
	p.begin("", nil, start, next)
	p.own, p.outer = isSeqLine(below), p.blocks
	p.fail(strayLine, shorten(line))
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

// belowEnd takes a line that belongs above an end line: a field with nothing but empty
// lines and such fields between, or an indented line, the rest of a prompt. If it is
// directly below, and the record has no such field, the end line may have been moved up:
// then nobody knows what the record has lost by it, and it is set aside too.
func (p *parser) belowEnd(line []byte, start, next int) bool {
	if p.ended.Seq == 0 || p.open != nil && !p.sealed {
		return false
	}
	isField, first := isTellingField(line), p.ended.Finding == nil
	if !isField && !(first && isIndented(line) && bytes.Count(p.data[p.ended.To:start], newline) <= 1) {
		return false
	}
	mended := spoiled(p.data[start:next])
	if !isField {
		mended = slices.Concat(newline, newline, p.data[start:next])
	}
	if first {
		p.ended.Finding = &SyntaxError{Line: p.line, Msg: fmt.Sprintf("%q stands below the end line of record %d, and belongs to nothing; put it above that line", shorten(bytes.TrimSpace(line)), p.ended.Seq)}
		p.doc.Findings = append(p.doc.Findings, p.ended.Finding)
		if p.ended.To == start {
			p.setLastAside(line)
		}
	}
	p.doc.Damaged = append(p.doc.Damaged, Damage{Finding: p.ended.Finding, From: start, To: next, Mended: mended})
	return true
}

// spoiled returns a field as what is none; Markdown sees the same list in it.
func spoiled(line []byte) []byte {
	i := max(0, bytes.IndexFunc(line, unicode.IsLetter))
	return slices.Concat(line[:i], []byte(`\`), line[i:])
}

// setLastAside sets the record aside that was read last, unless it has the field that
// stands below it: then somebody meant to add to it, and it lacks nothing.
func (p *parser) setLastAside(line []byte) {
	p.closeSection(p.pos)
	n := len(p.doc.Sections) - 1
	if n < 0 || int(p.doc.Sections[n].Off)+len(p.doc.Sections[n].Raw) != p.ended.To {
		return // it was set aside before
	}
	s := p.doc.Sections[n]
	key, _, _ := bytes.Cut(bytes.TrimLeft(line, "-*+ \t"), []byte(":"))
	if s.Get(string(key)) != nil {
		return
	}
	p.doc.Sections = p.doc.Sections[:n]
	p.doc.Damaged = append(p.doc.Damaged, Damage{Finding: p.ended.Finding, Name: s.Name(), Seq: s.Seq, From: int(s.Off), To: p.ended.To})
}

// conflictLine takes the first or last line of a merge conflict. What people wrote
// between them waits ([parser.closeSection]): nobody knows which side is meant.
func (p *parser) conflictLine(line []byte, start, next int) bool {
	mark := string(bytes.TrimRight(line[:min(len(line), 8)], " "))
	if begins := mark == "<<<<<<<"; p.blocks.What != "" || !begins && mark != ">>>>>>>" {
		return false
	} else if !begins && p.open != nil && !p.inRecord() {
		p.closeSection(start)
	}
	mended := append([]byte(`\`), p.data[start:next]...)
	p.report(start, next, mended, inConflict)
	p.conflict = line[0] == '<'
	return true
}

const inConflict = "a merge conflict; keep one side of it and delete the lines <<<<<<<, ======= and >>>>>>>"

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
	if p.open != nil && !p.sealed {
		p.fail(lost+"take them out, or put the section back from a copy, such as stint fsck --repair makes", " in this section")
		return
	}
	mended := SpellNULs(p.data[start:next])
	if p.nul == nil {
		p.report(start, next, mended, fmt.Sprintf(lost+"take them out (if the file is in UTF-16: save it as UTF-8)", ""))
		p.nul = p.doc.Damaged[len(p.doc.Damaged)-1].Finding
		return
	}
	p.doc.Damaged = append(p.doc.Damaged, Damage{Finding: p.nul, From: start, To: next, Mended: mended})
}

// hidesRecord reports whether a line has a character that some editor takes for a
// line break, with what would be a line of a record behind it.
func hidesRecord(line []byte) bool {
	for i, r := range string(line) {
		if r == 0 || !breaksLine(r) {
			continue
		}
		rest := line[i+utf8.RuneLen(r):]
		if bytes.HasPrefix(rest, hashes) || bytes.HasPrefix(rest, endOpen) || isNearField(rest) {
			return true
		}
	}
	return false
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

// report notes a finding about a line: the open section is set aside, or, where
// none is open, the line alone. mended is what it would do no harm as.
func (p *parser) report(start, next int, mended []byte, msg string) {
	if p.open != nil && !p.sealed {
		p.fail("%s", msg)
		return
	}
	f := &SyntaxError{Line: p.line, Msg: msg}
	p.doc.Findings = append(p.doc.Findings, f)
	p.doc.Damaged = append(p.doc.Damaged, Damage{Finding: f, From: start, To: next, Mended: mended})
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

// SpellNULs writes each run of NUL bytes as [12 NUL bytes].
func SpellNULs(line []byte) []byte {
	var out []byte
	for len(line) > 0 {
		rest := bytes.TrimLeft(line, "\x00")
		if n := len(line) - len(rest); n > 0 {
			out = fmt.Appendf(out, "[%d NUL bytes]", n)
		}
		n := bytes.IndexByte(rest, 0)
		if n < 0 {
			n = len(rest)
		}
		out, line = append(out, rest[:n]...), rest[n:]
	}
	return out
}
