package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"unicode"

	"stint/ledger/lazy"
)

// This file finds lines that look like part of a record and cannot be read as one: what is left of a record that has lost a
// part, and what a person has mistyped. They are set aside with all that belongs to them, so that they change nothing else.

// telling are the keys by which a line gives itself away as a field, however it is
// written. They decide what is reported, never what is read.
const telling = "seq|status|prompt|result|error|reason|sessionKey|sessionId|workspace|agent|tool|model|account|" +
	"priority|order|after|hold|label|notBefore|timeout|resume|verifyCommand|verifyTimeout|maxAttempts|maxIterations|" +
	"onFailure|onIssue|idempotencyKey|runId|attempt|createdAt|updatedAt|paused|coolUntil|by|adopts|edits"

// nearField is a field that only a record would have, or nearly one.
const nearField = `[\s\p{Z}\p{Cf}]*([-*+–—−‐‑•·]|[0-9]{1,9}[.)][ \t])[\s\p{Z}\p{Cf}*+_` + "`" + `"'“”„‘’-]*(?i:` + telling + `)[\s\p{Z}\p{Cf}*+_` + "`" + `"'“”„‘’-]*[:：﹕=]`

// lineBreaks are the characters of which an editor may make the end of a line.
const lineBreaks = "\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

var (
	nearFieldExpr   = lazy.Regexp(`^` + nearField)
	hiddenExpr      = lazy.Regexp(`[` + lineBreaks + `](?:## |<!-- end |` + nearField + `)`)
	unplainExpr     = lazy.Regexp(`\x00+|[` + lineBreaks + `]`)
	noColonExpr     = lazy.Regexp(`^[-*+][ \t]+(` + telling + `)[ \t]+[^ \t]`)
	gluedHeading    = lazy.Regexp(`[^ \t]## (Task|Job|Control) [A-Za-z0-9._:-]+$`)
	nearHeadingExpr = lazy.Regexp(`^[\s\p{Z}\p{Cf}]{0,3}[#＃]+[\s\p{Z}\p{Cf}*` + "`" + `]*(?i:task|job|control)\b`)
)

// isNearField reports whether a line is a field that only a record would have, or nearly one.
func isNearField(line []byte) bool {
	line = line[:min(len(line), 80)] // a value may be long, and stand behind many breaks
	return bytes.ContainsAny(line, ":：﹕=") && nearFieldExpr().Match(line)
}

// isTellingField reports whether a line that is not indented as code is, or is nearly, a
// field that only a record would have.
func isTellingField(line []byte) bool { return indentOf(line) <= 3 && isNearField(line) }

// headless sets a section aside that has lost its heading, or whose heading is nearly one, and
// what follows a record and looks like more of it.
func (p *parser) headless(line []byte, start, next int) bool {
	_, value, _ := bytes.Cut(line, []byte(":"))
	_, isNumber := ParseUint(trimBoth(value))
	isFree := p.open == nil || p.sealed
	own := isFree && isNumber && isSeqLine(line)
	if !own && !(isFree && p.ended && (isTellingField(line) || isIndented(line))) {
		below := p.nextLine(next)
		if !bytes.ContainsAny(line, "#＃") || !nearHeadingExpr().Match(line) || !isTellingField(below) {
			return false
		}
		own = isSeqLine(below)
	}
	if p.blocks.inside(line) {
		return false
	}
	p.closeSection(start)
	p.blocks.afterRecord()
	p.begin("", nil, start, next)
	p.own, p.outer = own, p.blocks
	p.field(line, next)
	p.fail(line)
	return true
}

// goesOn returns the line at pos, directly below an end line, if it is a field or indented as a
// text is: then the end line may have been moved up, and nobody knows what the record has lost.
func (p *parser) goesOn(pos int) []byte {
	if pos == len(p.data) || p.data[pos] == '\n' || p.data[pos] == '#' {
		return nil
	}
	line, _ := lineAt(p.data, pos)
	if line = TrimRight(line); len(line) > 0 && (isIndented(line) || isTellingField(line) && !isSeqLine(line)) {
		return line
	}
	return nil
}

// conflictLine takes a mark of a merge conflict. A section that has one waits: nobody knows
// which side is meant.
func (p *parser) conflictLine(line []byte, start, next int) bool {
	switch mark, _, _ := bytes.Cut(line, []byte(" ")); string(mark) {
	case "=======":
		if p.blocks.leaf == leafParagraph && len(p.blocks.containers) == 0 { // it makes a heading of the lines above
			return false
		}
	case "<<<<<<<", "|||||||", ">>>>>>>":
	default:
		return false
	}
	if p.blocks.what != "" {
		return false
	}
	p.report(line, start, next)
	return true
}

// unreadable takes a line that cannot be what it looks like: what had NUL bytes in it is
// lost, perhaps in a power cut, and editors do not agree about where some lines end.
func (p *parser) unreadable(line []byte, start, next int) bool {
	hasNUL := bytes.IndexByte(line, 0) >= 0
	if !hasNUL && (p.inRecord() || !bytes.ContainsAny(line, lineBreaks) || !hiddenExpr().Match(line)) {
		return false
	}
	p.torn = p.torn || hasNUL
	p.report(line, start, next)
	return true
}

// report notes a finding about a line: the open section is set aside, or, where none is open, the line alone.
func (p *parser) report(line []byte, start, next int) {
	if p.open != nil && !p.sealed {
		p.fail(line)
		return
	}
	f := p.finding(line)
	p.doc.Findings = append(p.doc.Findings, f)
	p.doc.Damaged = append(p.doc.Damaged, Damage{Finding: f, From: start, To: next, IsLine: true})
}

// Harmless returns a line as text that means nothing to stint and can still be read. For
// Markdown it stays what it was, because of the lines below.
func Harmless(line []byte) []byte {
	n := max(0, bytes.IndexFunc(line, unicode.IsLetter))
	if line[0] == '<' || line[0] == '>' { // an end line, or the mark of a merge conflict
		n = min(len("<!-- "), len(line))
	}
	return slices.Concat(Plain(line[:n]), []byte(`\`), Plain(bytes.TrimRight(line[n:], "\r\n")), newline)
}

// Plain returns a line in which no editor sees the end of one, and with each run of NUL bytes
// as [12 NUL bytes].
func Plain(line []byte) []byte {
	return unplainExpr().ReplaceAllFunc(line, func(found []byte) []byte {
		if found[0] == 0 {
			return fmt.Appendf(nil, "[%d NUL bytes]", len(found))
		}
		return []byte(escape(string(found)))
	})
}

// endLine takes an end line. One that closes nothing shows that something above it is missing.
func (p *parser) endLine(line []byte, start, next int) bool {
	seq, _, ok := parseEnd(line)
	switch {
	case !ok:
		return false
	case p.open == nil || p.sealed:
		p.report(line, start, next)
		return true
	case !p.inRecord() || seq != p.open.Seq:
		p.fail(line)
	}
	if below := p.goesOn(next); below != nil && p.inRecord() {
		p.line++
		p.fail(below)
		p.line--
		return true
	}
	p.seal(next)
	return true
}
