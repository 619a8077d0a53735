package memory

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"stint/memory/care"
)

// How much a term counts, by where it stands; found by measuring, see TestRetrieval.
const (
	weightHeading = 0.8  // in the headings above
	bonusNew      = 0.25 // of a lesson of today; it halves every month and a half
	halfLife      = 45 * 24 * time.Hour
	leastShare    = 0.2      // of the best score: what is below is left out
	aroundLine    = 16 << 10 // bytes before a line in which its headings are looked for
	bytesPerLine  = 40       // of notes, as a rule
)

// A ranking puts found lines in order.
type ranking struct {
	*collector
	root *os.Root
	now  time.Time

	skipped []Skipped
}

// best returns at most n hits, best first.
func (r *ranking) best(n int) []Hit {
	r.weigh()
	hits := make([]ranked, len(r.lines))
	for i := range r.lines {
		hits[i] = ranked{found: &r.lines[i]}
		hits[i].score = r.score(&hits[i])
	}
	inOrder(hits)
	seen := map[string]bool{} // copies of one line crowd nothing out
	hits = slices.DeleteFunc(hits, func(h ranked) bool {
		if len(seen) == 4*n { // of many lines most are not looked at
			return true
		}
		key := sameLine(h.text)
		known := seen[key]
		seen[key] = true
		return known
	})
	hits = r.readAgain(hits)
	inOrder(hits)
	var list []Hit
	for i := range hits[:min(n, len(hits))] {
		h := &hits[i]
		if h.score < hits[0].score*leastShare {
			break
		}
		text := OneLine(h.text, 0)
		list = append(list, Hit{
			Path: r.notes[h.note].path, Line: h.line, Text: text, Hash: hashOf(text),
			Score: math.Round(h.score*100) / 100, Terms: r.names(h.terms | h.above), Entry: h.entry,
		})
	}
	return list
}

// A ranked is a found line with what it is ranked by.
type ranked struct {
	*found
	above uint64 // terms of its headings
	entry string // id of its entry; "": it has none
	score float64
}

func inOrder(hits []ranked) {
	slices.SortFunc(hits, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), a.note-b.note, a.line-b.line)
	})
}

// weigh returns each term its worth: the rarer the more.
func (r *ranking) weigh() {
	lines := float64(len(r.lines) + 1)
	var size int64
	for _, n := range r.notes {
		size += n.size
	}
	lines = max(lines, float64(size)/bytesPerLine)
	for i := range r.terms {
		t := &r.terms[i]
		if t.Lines = r.found[i]; t.Lines > 0 {
			n := float64(t.Lines)
			t.Weight = t.kind * math.Log(1+max(0, lines-n+0.5)/(n+0.5))
		}
	}
}

// score adds up what a line's terms are worth.
func (r *ranking) score(h *ranked) float64 {
	sum := r.sum(h.terms)/(0.8+0.2*float64(len(h.text))/120) + weightHeading*r.sum(h.above&^h.terms)
	return sum * (1 + bonusNew*r.newness(h.text)) * h.weight
}

func (r *ranking) sum(terms uint64) (sum float64) {
	for ; terms != 0; terms &= terms - 1 {
		sum += r.terms[bits.TrailingZeros64(terms)].Weight
	}
	return sum
}

func (r *ranking) names(terms uint64) (list []string) {
	for ; terms != 0; terms &= terms - 1 {
		list = append(list, r.terms[bits.TrailingZeros64(terms)].Text)
	}
	return list
}

// headingLevel returns the level of a line that is a heading, else 0.
func headingLevel(line string) int {
	text := strings.TrimLeft(line, "#")
	n := len(line) - len(text)
	if n > 6 || text != "" && !strings.ContainsAny(text[:1], " \t\r") {
		return 0
	}
	return n
}

// newness is 1 for a line that begins with today's date, and less the older it is; 0 without one.
func (r *ranking) newness(text string) float64 {
	day, _ := undated(text)
	age := r.now.Sub(day)
	if day.IsZero() || r.now.IsZero() || age < -24*time.Hour { // not even tomorrow: it is no lesson's date
		return 0
	}
	return math.Exp2(-float64(max(0, age)) / float64(halfLife))
}

// undated takes the mark of a list or heading off a line, and the date behind it, as a lesson has one.
func undated(line string) (day time.Time, rest string) {
	mark, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if strings.Trim(mark, "#-*+>") != "" {
		mark, rest = "", line
	}
	rest = strings.TrimSpace(rest)
	first, behind, _ := strings.Cut(rest, " ")
	if len(first) < len(time.DateOnly) || first[4] != '-' {
		return time.Time{}, rest
	}
	day, err := time.Parse(time.DateOnly, strings.TrimRight(first, ":,"))
	if err != nil {
		return time.Time{}, rest
	}
	return day, behind
}

// readAgain reads the found lines where they stand, with the headings above them. It leaves out those that are no longer there:
// a program that reads a file by its name may have been shown another one, from outside the workspace even.
func (r *ranking) readAgain(hits []ranked) (still []ranked) {
	slices.SortFunc(hits, func(a, b ranked) int { return cmp.Or(a.note-b.note, cmp.Compare(a.off, b.off)) })
	var f *os.File
	note, buf := -1, make([]byte, aroundLine+maxLine)
	for _, h := range hits {
		if h.note != note {
			_ = f.Close() // only read from; nil is not open
			note = h.note
			f = r.open(&r.notes[note])
		}
		if f == nil {
			continue
		}
		before, line := readAround(f, h.off, buf)
		if m := r.match(line); m.terms != h.terms || m.text != h.text {
			continue
		}
		state := care.At(before, line)
		if h.entry = state.ID; !r.archived {
			h.found.weight = state.Weight()
		}
		if h.found.weight == 0 {
			continue
		}
		h.above = r.termsIn(headings(before)) &^ h.terms
		h.score = r.score(&h)
		still = append(still, h)
	}
	_ = f.Close()
	return still
}

// open opens a note; nil if nothing of it is to be returned.
func (r *ranking) open(n *note) *os.File {
	if !n.looked {
		if _, err := look(r.root, n.path); err != nil {
			r.skipped = append(r.skipped, Skipped{n.path, err.Error()})
			return nil
		}
	}
	f, _, err := openNote(r.root, n.path)
	if err != nil {
		return nil // it was there a moment ago: what was found is there no more
	}
	return f
}

// readAround returns what stands before an offset of a file, and the line there.
func readAround(f *os.File, off int64, buf []byte) (before, line []byte) {
	at := min(off, aroundLine)
	n, _ := f.ReadAt(buf, off-at) // the file may be shorter by now
	if int64(n) < at || at > 0 && buf[at-1] != '\n' {
		return nil, nil
	}
	line, _, _ = bytes.Cut(buf[at:n], []byte("\n"))
	return buf[:at], bytes.TrimRight(line, "\r")
}

// headings returns the headings that the end of a text stands below, a line each, in lower case.
func headings(text []byte) string {
	code := false
	var list [7][]byte // by level
	for line := range bytes.Lines(text) {
		mark := bytes.TrimLeft(line, " ")
		if bytes.HasPrefix(mark, []byte("```")) || bytes.HasPrefix(mark, []byte("~~~")) {
			code = !code || len(bytes.TrimSpace(bytes.TrimLeft(mark, "`~"))) > 0 // what names a language begins one
		}
		if code || line[0] != '#' {
			continue
		}
		if n := headingLevel(string(line)); n > 0 {
			list[n] = line
			clear(list[n+1:])
		}
	}
	slices.Reverse(list[:])
	return strings.ToLower(string(bytes.Join(list[:], nil)))
}

func (r *ranking) termsIn(text string) (terms uint64) {
	for i := range r.terms {
		if strings.Contains(text, r.terms[i].Text) {
			terms |= 1 << i
		}
	}
	return terms
}

// sameLine makes equal lines that say the same, whatever their marks and dates.
func sameLine(line string) string {
	_, rest := undated(line)
	return sameText(rest)
}

// sameText makes equal what differs only in the size of letters, in blanks, in marks of code, and in the full stop.
func sameText(text string) string {
	text = strings.ToLower(strings.ReplaceAll(text, "`", ""))
	return strings.TrimRight(strings.Join(strings.Fields(text), " "), ".!。！")
}
