package prompt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote returns a text as a quotation, line by line, so that nothing in it can pose as
// anything else than data.
func Quote(text string) string {
	var b strings.Builder
	text = strings.TrimRight(text, "\r\n")
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight("> "+oneLine(strings.TrimSuffix(line, "\r")), " ") + "\n")
	}
	return b.String()
}

// oneLine returns s with everything escaped that breaks a line, drives a terminal
// or reorders what is shown: control characters except tab, the Unicode line
// and paragraph separators, bidirectional controls, and bytes that are not
// UTF-8. They become visible, as in \n or \u2028, so that a path with a line
// break in it is still told apart from one without.
func oneLine(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, breaksLine) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case breaksLine(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

func breaksLine(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
