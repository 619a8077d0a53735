package memory

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"math"
	"math/bits"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// How much a term counts, by where it stands; found by measuring, see
// TestRetrieval.
const (
	weightInside  = 0.4  // within a word
	weightNear    = 0.15 // in one of the three lines before or after it
	weightHeading = 0.8  // in the headings above
	bonusHeading  = 1.15 // of a heading that is found
	bonusNew      = 0.25 // of a lesson of today; it halves every month and a half
	halfLife      = 45 * 24 * time.Hour
	leastShare    = 0.2 // of the best score: what is below is left out
	nearLines     = 3
	aroundLine    = 16 << 10 // bytes before a line in which its headings are looked for
	bytesPerLine  = 40       // of notes, as a rule
)

// A ranking puts found lines in order.
type ranking struct {
	*collector
	root *os.Root
	now  time.Time

	total   float64 // weight of all terms
	skipped []Skipped
}

// best gives at most n hits, best first.
func (r *ranking) best(n int) []Hit {
	r.weigh()
	hits := make([]ranked, len(r.lines))
	for i := range r.lines {
		hits[i] = ranked{found: &r.lines[i], near: r.nearTo(i)}
		hits[i].score = r.score(&hits[i])
	}
	inOrder(hits)
	hits = hits[:min(len(hits), 4*n)]
	hits = r.readAgain(hits)
	inOrder(hits)
	var list []Hit
	for i := range hits[:min(n, len(hits))] {
		h := &hits[i]
		if h.score < hits[0].score*leastShare {
			break
		}
		list = append(list, Hit{
			Path: r.notes[h.note].path, Line: h.line, Text: h.text, Hash: hashOf(h.text),
			Score: math.Round(h.score*100) / 100, Terms: r.names(h.terms | h.near | h.above),
		})
	}
	return list
}

// A ranked is a found line with what it is ranked by.
type ranked struct {
	*found
	near  uint64 // terms of lines close by
	above uint64 // terms of its headings
	score float64
}

func inOrder(hits []ranked) {
	slices.SortFunc(hits, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), a.note-b.note, a.line-b.line)
	})
}

// weigh gives each term its worth: the rarer the more.
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
			r.total += t.Weight
		}
	}
}

// nearTo gives the terms of the lines around the i-th that it has not itself.
func (r *ranking) nearTo(i int) (near uint64) {
	f := &r.lines[i]
	for _, step := range []int{-1, 1} {
		for j := i + step; j >= 0 && j < len(r.lines) && r.lines[j].note == f.note; j += step {
			if d := (r.lines[j].line - f.line) * step; d > nearLines {
				break
			}
			near |= r.lines[j].starts &^ f.terms
		}
	}
	return near
}

// score adds up what a line's terms are worth.
func (r *ranking) score(h *ranked) float64 {
	sum := r.sum(h.starts) + weightInside*r.sum(h.terms&^h.starts)
	has := r.sum(h.terms)
	around := weightNear*r.sum(h.near&^h.terms&^h.above) + weightHeading*r.sum(h.above&^h.terms)
	sum = sum/(0.8+0.2*float64(len(h.text))/120) + around
	if r.total > 0 {
		sum *= 0.6 + 0.4*(has+around)/r.total
	}
	if headingLevel(h.text) > 0 {
		sum *= bonusHeading
	}
	return sum * (1 + bonusNew*r.newness(h.text))
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

// headingLevel gives the level of a line that is a heading, else 0.
func headingLevel(line string) int {
	text := strings.TrimLeft(line, "#")
	n := len(line) - len(text)
	if n > 6 || text != "" && !strings.ContainsAny(text[:1], " \t\r") {
		return 0
	}
	return n
}

var dated = regexp.MustCompile(`\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b`)

// newness is 1 for a line with today's date, and less the older it is; 0 without one.
func (r *ranking) newness(text string) float64 {
	day, err := time.Parse(time.DateOnly, dated.FindString(text))
	if err != nil || r.now.IsZero() {
		return 0
	}
	return math.Exp2(-float64(max(0, r.now.Sub(day))) / float64(halfLife))
}

// readAgain reads the found lines where they stand, with the headings above them. It
// leaves out those that are no longer there: a program that reads a file by its name
// may have been shown another one, from outside the workspace even.
func (r *ranking) readAgain(hits []ranked) (still []ranked) {
	slices.SortFunc(hits, func(a, b ranked) int { return cmp.Or(a.note-b.note, cmp.Compare(a.off, b.off)) })
	var f *os.File
	note, buf := -1, make([]byte, aroundLine+2<<10)
	for _, h := range hits {
		if h.note != note {
			closeFile(f)
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
		h.above = r.termsIn(headings(before)) &^ h.terms
		h.score = r.score(&h)
		still = append(still, h)
	}
	closeFile(f)
	return still
}

// open opens a note; nil if nothing of it is to be given.
func (r *ranking) open(n *note) *os.File {
	if !n.looked {
		if _, err := look(r.root, n.path); err != nil {
			r.skipped = append(r.skipped, Skipped{n.path, err.Error()})
			return nil
		}
	}
	f, err := openNote(r.root, n.path)
	if err != nil {
		return nil // it was there a moment ago: what was found is there no more
	}
	return f
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close() // only read from
	}
}

// readAround gives what stands before an offset of a file, and the line there.
func readAround(f *os.File, off int64, buf []byte) (before, line []byte) {
	begin := off - min(off, aroundLine)
	n, _ := f.ReadAt(buf, begin) // the file may be shorter by now
	buf = buf[:n]
	if at := int(off - begin); at <= n && (at == 0 || buf[at-1] == '\n') {
		before, line = buf[:at], buf[at:]
	}
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		return before, bytes.TrimRight(line[:end], "\r")
	}
	if n == cap(buf) { // the line goes on
		line, _, _ = readLine(bufio.NewReaderSize(io.NewSectionReader(f, off, maxLine), bufferSize))
	}
	return before, line
}

// headings gives the headings in a text that its end stands below, a line each, in
// lower case.
func headings(text []byte) string {
	var b strings.Builder
	for level := 7; level > 1 && len(text) > 0; {
		at := bytes.LastIndex(text, []byte("\n#")) + 1 // 0: the first line, or none
		line, _, _ := bytes.Cut(text[at:], []byte("\n"))
		if n := headingLevel(string(line)); n > 0 && n < level {
			level = n
			b.Write(line)
			b.WriteByte('\n')
		}
		text = text[:max(0, at-1)]
	}
	return strings.ToLower(b.String())
}

func (r *ranking) termsIn(text string) (terms uint64) {
	for i := range r.terms {
		if at := strings.Index(text, r.terms[i].Text); at >= 0 && begins(text, r.terms[i].Text, at) {
			terms |= 1 << i
		}
	}
	return terms
}

// sameText makes equal what differs only in blanks, marks and dates.
func sameText(text string) string {
	words := strings.FieldsFunc(strings.ToLower(dated.ReplaceAllString(text, "")), isGap)
	for i := range words {
		words[i] = strings.Trim(words[i], wordMarks)
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}
