package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// isTTY reports whether w is a terminal.
func isTTY(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// canDraw reports whether w is a terminal that knows escape sequences.
func canDraw(w any) bool {
	kind := os.Getenv("TERM")
	return isTTY(w) && kind != "" && kind != "dumb"
}

// escapeText shows as text what could harm a terminal, which believes every byte; see [task.EscapeText].
func escapeText(s string) string { return task.EscapeText(s) }

// A runeWriter escapes what goes to w. Bytes of a rune that is cut between two writes wait
// for the rest; flush writes what still waits.
type runeWriter struct {
	w      io.Writer
	escape func(string) string
	rest   []byte
	wrote  bool
}

// terminalSafe returns a writer, to be flushed at the end, that escapes what could harm a terminal if w is one.
func terminalSafe(w io.Writer) *runeWriter {
	if isTTY(w) {
		return &runeWriter{w: w, escape: escapeText}
	}
	return &runeWriter{w: w, escape: same[string]}
}

// copySafe copies what r has to w, as terminalSafe does.
func copySafe(w io.Writer, r io.Reader) error {
	out := terminalSafe(w)
	_, err := io.Copy(out, r)
	return cmp.Or(err, out.flush())
}

func (r *runeWriter) Write(p []byte) (int, error) {
	r.wrote = true
	data := append(r.rest, p...)
	cut := len(data)
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ { // bytes that begin a rune without ending it
		if !utf8.FullRune(data[len(data)-n:]) {
			cut = len(data) - n
			break
		}
	}
	r.rest = bytes.Clone(data[cut:])
	if _, err := io.WriteString(r.w, r.escape(string(data[:cut]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (r *runeWriter) flush() error {
	_, err := io.WriteString(r.w, r.escape(string(r.rest)))
	r.rest = nil
	return err
}

// printText writes text for people: escaped on a terminal, ending in a newline.
func printText(w io.Writer, s string) error {
	if isTTY(w) {
		s = escapeText(s)
	}
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	_, err := io.WriteString(w, s)
	return err
}

// printJSON writes v as one line. What could harm a terminal stands within strings, where \u009b and the like do.
func printJSON(w io.Writer, v any) error {
	text, err := durable.JSONLine(v)
	if err == nil {
		_, err = io.WriteString(w, escapeJSON(string(text)))
	}
	return err
}

// escapeJSON writes the harmful runes of a JSON text, which is valid UTF-8.
func escapeJSON(text string) string {
	if !task.NeedsEscape(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if task.IsHarmful(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shortIDs returns ids as [state.ShortID] does, with as many more digits as tell them apart. Where
// all digits behind the last hyphen do not, they stay whole.
func shortIDs(ids []string) []string {
	for n := 8; n <= 12; n++ {
		short, clash, whole := make([]string, len(ids)), false, make(map[string]string, len(ids))
		for i, id := range ids {
			if short[i] = shortID(id); short[i] != id {
				short[i] = id[len(id)-n:]
			}
			other, isTwice := whole[short[i]]
			clash = clash || isTwice && other != id
			whole[short[i]] = id
		}
		if !clash {
			return short
		}
	}
	return ids
}

// shortID returns the tail of one id.
func shortID(id string) string { return state.ShortID(id) }

// ago returns a duration in whole seconds, such as 4s, 2m14s, 3h05m or 2d4h.
func ago(d time.Duration) string { return task.FormatElapsed(d.Truncate(time.Second)) }

// localTime shows an instant in local time; "" for none.
func localTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// sgr holds the colour of each status on a terminal. Nothing is said by colour alone.
var sgr = map[state.Status]string{
	state.Running: "36", state.Done: "32", state.Failed: "31", state.Dead: "31", state.Canceled: "33", state.Draft: "2",
}

// textWidth returns how many columns of a terminal a text takes, without its SGR sequences.
func textWidth(s string) (n int) {
	for n < len(s) && s[n] >= ' ' && s[n] <= '~' { // nearly all that is ever shown
		n++
	}
	if s = s[n:]; s != "" && strings.Contains(s, "\x1b[") {
		s = sgrSequence().ReplaceAllString(s, "")
	}
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf): // goes onto the rune before it
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// clip cuts s to n columns.
func clip(s string, n int) string {
	if len(s) <= n || textWidth(s) <= n {
		return s
	}
	used := 1 // by the ellipsis
	for i, r := range s {
		if used += runeColumns(r); used > n {
			return s[:i] + "…"
		}
	}
	return s
}

// pad fills s with blanks to n columns.
func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-textWidth(s))) }

// writeTable writes rows in columns that fit; the last one is not padded. colours has that of the second cell of each row, or ""; nil: none.
func writeTable(w io.Writer, rows [][]string, colours []string) error {
	widths := widthsOf(rows)
	b := make([]byte, 0, 160*len(rows))
	for y, row := range rows {
		for x, c := range row {
			on, off := "", ""
			if x == 1 && colours != nil && colours[y] != "" {
				on, off = "\x1b["+colours[y]+"m", "\x1b[0m"
			}
			b = append(append(b, on...), c...)
			for n := textWidth(c); x < len(row)-1 && n < widths[x]+2; n++ {
				b = append(b, ' ')
			}
			b = append(b, off...)
		}
		b = append(b, '\n')
	}
	_, err := w.Write(b)
	return err
}

// terminalWidth returns the columns of w: $COLUMNS, which watch(1) sets, else the terminal's; 0: not known.
func terminalWidth(w any) int {
	n, _ := strconv.Atoi(os.Getenv("COLUMNS")) // 0 if that is no number
	if f, ok := w.(*os.File); ok && n <= 0 {
		n, _, _ = term.GetSize(int(f.Fd())) // 0 if that is no terminal
	}
	return max(0, n)
}

// isColoured reports whether w gets colours: a terminal without NO_COLOR, or anything with CLICOLOR_FORCE.
func isColoured(w any) bool {
	force := os.Getenv("CLICOLOR_FORCE")
	return os.Getenv("NO_COLOR") == "" && (force != "" && force != "0" || canDraw(w))
}
