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
	return (r < ' ' || r > '~') && (r == 0 || strings.ContainsRune(lineBreaks, r))
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
		if n := plainBytes(v[i:]); n > 0 { // nearly all there is
			i, prev = i+n, rune(v[i+n-1])
			continue
		}
		r, n := rune(v[i]), 1
		if r >= utf8.RuneSelf {
			if r, n = utf8.DecodeRuneInString(v[i:]); r == utf8.RuneError && n == 1 {
				return formEscaped
			}
		}
		if r == '\n' {
			f = formBlock
			if prev != '\n' && i > 0 && unicode.IsSpace(prev) {
				return formEscaped
			}
		} else if breaksLine(r) {
			return formEscaped
		}
		prev = r
		i += n
	}
	if unicode.IsSpace(prev) {
		return formEscaped
	}
	return f
}

// plainBytes counts, eight at a time, the first bytes of v that are ASCII and no control characters.
func plainBytes(v string) (n int) {
	const ones = 0x0101010101010101
	for ; len(v)-n >= 8; n += 8 {
		w := v[n : n+8]
		x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 | uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
		if (x|(x-ones*' '))&(ones<<7) != 0 { // one is above 127, or one is below ' ' and borrows
			break
		}
	}
	return n
}

// appendBlock writes text as indented lines; empty lines stay empty.
func appendBlock(dst []byte, text string) []byte {
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			dst = append(dst, ' ', ' ')
		}
		dst = append(append(dst, line...), '\n')
	}
	return dst
}

// decodeBlock takes the indentation from the lines of a body, and what an editor may have put at their ends.
func decodeBlock(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for line := range bytes.Lines(raw) {
		line = TrimRight(line)
		switch {
		case len(line) >= 2 && line[0] == ' ' && line[1] == ' ':
			line = line[2:]
		case len(line) >= 1 && line[0] == '\t':
			line = line[1:]
		}
		out = append(append(out, line...), '\n')
	}
	return bytes.TrimRight(out, "\n")
}

// TrimRight takes away what an editor may have put at the end of a line. Nothing that stint writes ends with any kind of blank.
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

// trimBoth takes the blanks from both ends of a value. A value that begins with one of its own is written as a body.
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
		case r == ' ' && atEnd:
			b.WriteString(`\x20`)
		case r == '\\', r != '\n' && (breaksLine(r) || atEnd && unicode.IsSpace(r)):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
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

// unescape is the inverse of escape. A backslash that begins no known escape stands for itself: a person may have typed it.
func unescape(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		i := bytes.IndexByte(in, '\\')
		if i < 0 || i+1 == len(in) {
			return append(out, in...)
		}
		out = append(out, in[:i]...)
		in = in[i:]
		code := string(in[:min(len(in), len(`\uNNNN`))])
		r, _, rest, err := strconv.UnquoteChar(code, 0)
		switch n := len(code) - len(rest); {
		case err != nil || !strings.ContainsRune(`\nrtvfxu`, rune(code[1])):
			out, in = append(out, '\\'), in[1:]
		case code[1] == 'x':
			out, in = append(out, byte(r)), in[n:]
		default:
			out, in = utf8.AppendRune(out, r), in[n:]
		}
	}
	return out
}
