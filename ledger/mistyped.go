package ledger

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// This file finds lines that are nearly part of a record. Markdown takes them for
// text, so that what a person meant would be lost without a word, or would change
// the section above.

// telling are the keys by which a section gives itself away as a record, by their
// spelling in lower case. They decide what is reported, never what is read.
var telling = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for _, key := range []string{
		KeySeq, "status", "prompt", "result", "error", "reason", "sessionKey", "sessionId", "workspace", "agent", "tool", "model", "account",
		"priority", "order", "after", "hold", "label", "notBefore", "timeout", "resume", "verifyCommand", "verifyTimeout", "maxAttempts", "maxIterations",
		"onFailure", "onIssue", "idempotencyKey", "runId", "attempt", "createdAt", "updatedAt", "paused", "coolUntil", KeyBy, KeyAdopts, KeyEdits,
	} {
		m[strings.ToLower(key)] = key
	}
	return m
})

// A nearHeading is a line that may be a misspelt heading of a record.
type nearHeading struct {
	word string // where the kind should stand, as it was written
	kind Kind   // the kind that it may be meant for; "" if it is like none
	id   []byte // nil unless there is just one word, which can be an id
}

// nearHeadingOf reads a line that begins with # or looks like it. It is generous:
// blanks and marks that nobody sees do not matter, nor do the level and the case.
func nearHeadingOf(line []byte) (nearHeading, bool) {
	text := bytes.TrimLeftFunc(line, isInvisible)
	if indentOf(line) > 3 {
		return nearHeading{}, false
	}
	rest := bytes.TrimLeft(text, "#＃")
	if len(rest) == len(text) {
		return nearHeading{}, false
	}
	words := bytes.FieldsFunc(rest, func(r rune) bool { return isInvisible(r) || r == '*' || r == '`' || r == '#' })
	if len(words) == 0 {
		return nearHeading{}, true
	}
	if i := bytes.IndexAny(words[0], ":："); i > 0 { // ## Task: x
		_, n := utf8.DecodeRune(words[0][i:])
		parts := [][]byte{words[0][:i]}
		if i+n < len(words[0]) {
			parts = append(parts, words[0][i+n:])
		}
		words = append(parts, words[1:]...)
	}
	h := nearHeading{word: string(words[0]), kind: likelyKind(words[0])}
	if len(words) == 2 && validID(words[1]) {
		h.id = words[1]
	}
	return h, true
}

// isInvisible reports whether r shows as a blank or not at all.
func isInvisible(r rune) bool {
	return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
}

// likelyKind gives the kind that word is like; "" if it is like none.
func likelyKind(word []byte) Kind {
	lower := strings.ToLower(string(word))
	for _, kind := range []Kind{KindTask, KindJob, KindControl} {
		want := strings.ToLower(string(kind))
		if len(lower) <= 2*len(want) && distance(lower, want) <= min(2, len(want)/2) {
			return kind
		}
	}
	return ""
}

// distance counts the letters to be changed, added, left out or swapped with the
// next to make one word of the other.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before []int
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		next := make([]int, len(y)+1)
		next[0] = i + 1
		for j := range y {
			change := row[j]
			if x[i] != y[j] {
				change++
			}
			next[j+1] = min(change, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(y)]
}

// complaint says what is wrong with the heading.
func (h nearHeading) complaint(line []byte) string {
	id := string(h.id)
	if id == "" {
		id = "ID"
	}
	want := fmt.Sprintf("## %s %s", h.kind, id)
	switch {
	case hasInvisible(line):
		return fmt.Sprintf("%+q has a character that cannot be seen; type the heading anew: %s", shorten(line), want)
	case h.word != string(h.kind):
		return fmt.Sprintf("unknown kind %+q; did you mean %s?", shorten([]byte(h.word)), want)
	default:
		return fmt.Sprintf("%q is not quite the heading of a record; write %s", shorten(line), want)
	}
}

// hasInvisible reports whether the line has a blank that is none, or a mark that
// shows as nothing.
func hasInvisible(line []byte) bool {
	return bytes.ContainsFunc(line, func(r rune) bool { return r != ' ' && r != '\t' && isInvisible(r) })
}

// nearField gives the key of the field that a line of text was probably meant to be; "" if none.
func nearField(line []byte) string {
	text := bytes.TrimLeftFunc(line, isInvisible)
	bullet, n := utf8.DecodeRune(text)
	if n == 0 {
		return ""
	}
	if !strings.ContainsRune("-*+–—−‐‑•·", bullet) {
		if n = markerOf(text, false); n == 0 {
			return ""
		}
	}
	const marks = "-+*_`\"'“”„‘’"
	unmarked := bytes.TrimLeftFunc(text[n:], func(r rune) bool { return isInvisible(r) || strings.ContainsRune(marks, r) })
	end := bytes.IndexAny(unmarked, ":：﹕=")
	if end <= 0 || end > 40 {
		return ""
	}
	key := bytes.TrimRightFunc(unmarked[:end], func(r rune) bool { return isInvisible(r) || strings.ContainsRune(marks, r) })
	key = bytes.Map(func(r rune) rune {
		if isInvisible(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, key)
	return telling()[strings.ToLower(string(key))]
}

var gluedHeading = lazily(`[^ \t]## (Task|Job|Control) [A-Za-z0-9._:-]+$`)

// hasGluedHeading reports whether a line ends with what should be the line below it.
func hasGluedHeading(line []byte) bool {
	return bytes.Contains(line, hashes) && gluedHeading().Match(line)
}

// isTellingField reports whether line is a field, or nearly one, that only a
// record would have.
func isTellingField(line []byte) bool { return indentOf(line) <= 3 && nearField(line) != "" }

// A merge conflict as git leaves it.
var (
	conflictBegin = []byte("<<<<<<<")
	conflictEnd   = []byte(">>>>>>>")
)

// isConflict reports whether line begins or ends a merge conflict.
func isConflict(line, mark []byte) bool {
	return bytes.HasPrefix(line, mark) && (len(line) == len(mark) || line[len(mark)] == ' ')
}

var nearEnd = lazily(`(?i)^(\\|>|&lt;|[<!/–—‐\s-])*end\s*([0-9]|-->|$)|^<!-+ *(e|en|end .*)$|^<!?[-–—]+ */?end\b`)

// isNearEnd reports whether a line is nearly an end line, or the beginning of one.
func isNearEnd(line []byte) bool {
	return len(line) < 80 && nearEnd().Match(bytes.TrimLeftFunc(line, isInvisible))
}

// hidesRecord reports whether a line has a character that some editor takes for a
// line break, with what would be a line of a record behind it.
func hidesRecord(line []byte) bool {
	for i := 0; i < len(line); {
		r, n := rune(line[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(line[i:])
		}
		i += n
		if r == 0 || !breaksLine(r) {
			continue
		}
		rest := line[i:]
		if bytes.HasPrefix(rest, hashes) || bytes.HasPrefix(rest, endOpen) || isSeqLine(rest) || isTellingField(rest) {
			return true
		}
	}
	return false
}
