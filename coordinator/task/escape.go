package task

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeText returns a text as people may be shown it: what could move a cursor, change
// colours, reorder or hide text is written as \x1b and the like, as are bytes that are no
// UTF-8. Newlines and tabs stay. Agents, and files that they quote, are not to be believed.
func EscapeText(s string) string {
	if !NeedsEscape(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !IsHarmful(r):
			b.WriteString(s[i : i+size])
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// NeedsEscape reports whether EscapeText would change a text.
func NeedsEscape(s string) bool {
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c < 0x7f { // most of what is ever written
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || IsHarmful(r) {
			return true
		}
		i += size
	}
	return false
}

// IsHarmful reports control characters and the marks that reorder text.
func IsHarmful(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
