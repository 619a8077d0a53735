package ledger

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The marks after "- key: " of a value that does not stand on the key's line.
const (
	markBlock   = "|"
	markEscaped = "|escaped"
)

// breaksLine reports whether some line editor takes r for a line break, or cannot keep it.
func breaksLine(r rune) bool {
	switch r {
	case '\r', '\v', '\f', 0, 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// formOf chooses how a value that is not empty is written.
func formOf(v string) form {
	if v == markBlock || v == markEscaped {
		return formBlock
	}
	f := formLine
	if r, _ := utf8.DecodeRuneInString(v); unicode.IsSpace(r) || r == '\ufeff' {
		f = formBlock
	}
	prev := ' ' // the rune before; a text or line that is only blanks has a trailing blank
	for i := 0; i < len(v); {
		r, n := rune(v[i]), 1
		if r >= utf8.RuneSelf {
			if r, n = utf8.DecodeRuneInString(v[i:]); r == utf8.RuneError && n == 1 {
				return formEscaped
			}
		}
		if breaksLine(r) {
			return formEscaped
		}
		if r == '\n' {
			f = formBlock
			if prev != '\n' && i > 0 && unicode.IsSpace(prev) {
				return formEscaped
			}
		}
		prev = r
		i += n
	}
	if unicode.IsSpace(prev) {
		return formEscaped
	}
	return f
}

// appendBlock writes text as indented lines; empty lines stay empty.
func appendBlock(dst []byte, text string) []byte {
	for len(text) > 0 {
		line := text
		if i := strings.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = ""
		}
		if line != "" {
			dst = append(dst, ' ', ' ')
			dst = append(dst, line...)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// decodeBlock takes the indentation from the lines of a body, and what an
// editor may have put at their ends.
func decodeBlock(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		line := raw
		if i := bytes.IndexByte(raw, '\n'); i >= 0 {
			line, raw = raw[:i], raw[i+1:]
		} else {
			raw = nil
		}
		line = TrimRight(line)
		switch {
		case len(line) >= 2 && line[0] == ' ' && line[1] == ' ':
			line = line[2:]
		case len(line) >= 1 && line[0] == '\t':
			line = line[1:]
		}
		out = append(out, line...)
		out = append(out, '\n')
	}
	return bytes.TrimRight(out, "\n")
}

// TrimRight takes away what an editor may have put at the end of a line. Nothing
// that stint writes ends with any kind of blank.
func TrimRight(line []byte) []byte {
	for len(line) > 0 {
		c := line[len(line)-1]
		switch {
		case c == ' ' || '\t' <= c && c <= '\r':
			line = line[:len(line)-1]
		case c < utf8.RuneSelf:
			return line
		default:
			return bytes.TrimRightFunc(line, unicode.IsSpace)
		}
	}
	return line
}

// trimBoth takes the blanks from both ends of a value. A value that begins with
// one of its own is written as a body.
func trimBoth(value []byte) []byte {
	return TrimRight(bytes.TrimLeftFunc(value, unicode.IsSpace))
}

// escape returns text without anything that an editor could change.
func escape(text string) string {
	body := strings.TrimRight(text, "\n")
	tail := len(text) - len(body)
	var b strings.Builder
	for i := 0; i < len(body); {
		r, n := utf8.DecodeRuneInString(body[i:])
		next := i + n
		atEnd := next == len(body) || body[next] == '\n'
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, body[i])
		case r == '\\':
			b.WriteString(`\\`)
		case r != '\n' && (breaksLine(r) || atEnd && unicode.IsSpace(r)):
			writeEscaped(&b, r)
		default:
			b.WriteString(body[i:next])
		}
		i = next
	}
	for range tail {
		b.WriteString(`\n`)
	}
	return b.String()
}

func writeEscaped(b *strings.Builder, r rune) {
	switch r {
	case '\r':
		b.WriteString(`\r`)
	case '\t':
		b.WriteString(`\t`)
	case '\v':
		b.WriteString(`\v`)
	case '\f':
		b.WriteString(`\f`)
	default:
		if r < utf8.RuneSelf {
			fmt.Fprintf(b, `\x%02x`, r)
		} else {
			fmt.Fprintf(b, `\u%04x`, r)
		}
	}
}

// unescape is the inverse of escape. A backslash that begins no known escape
// stands for itself: a person may have typed it.
func unescape(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		i := bytes.IndexByte(in, '\\')
		if i < 0 || i+1 == len(in) {
			return append(out, in...)
		}
		out = append(out, in[:i]...)
		in = in[i:]
		n := 2
		switch in[1] {
		case '\\':
			out = append(out, '\\')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'v':
			out = append(out, '\v')
		case 'f':
			out = append(out, '\f')
		case 'x':
			out, n = unescapeHex(out, in, 2)
		case 'u':
			out, n = unescapeHex(out, in, 4)
		default:
			out, n = append(out, '\\'), 1
		}
		in = in[n:]
	}
	return out
}

// unescapeHex decodes \x or \u with the given number of digits and says how much of in it was.
func unescapeHex(out, in []byte, digits int) ([]byte, int) {
	if len(in) < 2+digits {
		return append(out, '\\'), 1
	}
	v, err := strconv.ParseUint(string(in[2:2+digits]), 16, 32)
	if err != nil {
		return append(out, '\\'), 1
	}
	if digits == 2 {
		return append(out, byte(v)), 2 + digits
	}
	return utf8.AppendRune(out, rune(v)), 2 + digits
}
