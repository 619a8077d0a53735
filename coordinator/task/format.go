package task

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stint/ledger"
	"stint/prompt"
	"stint/state"
)

// FormatElapsed returns a time that something took: 3.2s, 12s, 2m14s, 1h05m, 2d4h.
func FormatElapsed(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Second && d%time.Second >= 100*time.Millisecond:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Minute:
		return strconv.Itoa(int(max(0, d)/time.Second)) + "s"
	case d < time.Hour: // lists have many of these: the second number is cut from one of three digits
		return strconv.Itoa(int(d/time.Minute)) + "m" + strconv.Itoa(int(100 + d%time.Minute/time.Second))[1:] + "s"
	case d < day:
		return strconv.Itoa(int(d/time.Hour)) + "h" + strconv.Itoa(int(100 + d%time.Hour/time.Minute))[1:] + "m"
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// FormatTokens returns a number of tokens in brief: 950 tokens, 48.2k tokens, 1.3M tokens.
func FormatTokens(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d tokens", n)
	case n < 1e6:
		return fmt.Sprintf("%.1fk tokens", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM tokens", float64(n)/1e6)
}

// FormatLimit returns a duration without units that are zero: 30m, not 30m0s.
func FormatLimit(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// EscapeText returns a text as people may be shown it: what could move a cursor, change
// colours, reorder or hide text is written as \x1b and the like, as are bytes that are no
// UTF-8. Newlines and tabs stay. Agents, and files that they quote, are not to be believed.
func EscapeText(s string) string { return prompt.Escape(s, IsHarmful) }

// NeedsEscape reports whether EscapeText would change a text.
func NeedsEscape(s string) bool { return !utf8.ValidString(s) || strings.ContainsFunc(s, IsHarmful) }

// IsHarmful reports control characters and the marks that reorder text.
func IsHarmful(r rune) bool {
	if r >= ' ' && r < 0x7f || r == '\n' || r == '\t' { // most of what is ever written
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// OneSentence returns a text in one line, of a long one the beginning.
func OneSentence(text string, most int) string {
	line := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// FindingsText returns what was found in an answer, each on a line of its own.
func FindingsText(list []state.Issue) string {
	var lines []string
	for _, f := range list {
		lines = append(lines, f.Kind+": "+f.Message)
	}
	return strings.Join(lines, "\n")
}

// RecordOf returns a record of the task of that id, without fields yet.
func RecordOf(id string) *ledger.Record { return &ledger.Record{Kind: ledger.KindTask, ID: id} }

// AccountRecord returns a record of the account of that name, without fields yet.
func AccountRecord(name string) *ledger.Record {
	return &ledger.Record{Kind: ledger.KindControl, ID: state.ControlAccount + name}
}

// HeadAndTail returns a text, of a long one only both ends. where says where the whole one is.
func HeadAndTail(text string, most int, where string) string {
	if len(text) <= most {
		return text
	}
	head, tail := most*3/4, most/4
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail > 0 && !utf8.RuneStart(text[len(text)-tail]) {
		tail--
	}
	return fmt.Sprintf("%s\n[… %d bytes are left out here%s …]\n%s", text[:head], len(text)-head-tail, where, text[len(text)-tail:])
}
