package memory

import (
	"cmp"
	"math"
	"math/bits"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// How much a term counts, by where it stands; found by measuring, see
// BenchmarkRetrieval.
const (
	weightInside  = 0.4  // within a word
	weightNear    = 0.35 // in the next line; half of that in the one after it
	weightHeading = 0.5  // in the heading above
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

	worth []float64 // of each term
	total float64
}

// best gives at most n hits, best first.
func (r *ranking) best(n int) []Hit {
	r.weigh()
	slices.SortFunc(r.lines, func(a, b found) int { return cmp.Or(a.note-b.note, a.line-b.line) })
	hits := make([]ranked, len(r.lines))
	for i := range r.lines {
		hits[i] = ranked{found: &r.lines[i], near: r.nearTo(i)}
		hits[i].score = r.score(&hits[i])
	}
	inOrder(hits)
	hits = hits[:min(len(hits), 4*n)]
	r.addHeadings(hits)
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
	r.worth = make([]float64, len(r.terms))
	for i, t := range r.terms {
		if r.found[i] == 0 {
			continue
		}
		n := float64(r.found[i])
		r.worth[i] = t.Kind * math.Log(1+(lines-n+0.5)/(n+0.5))
		r.total += r.worth[i]
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
	if isHeading(h.text) {
		sum *= bonusHeading
	}
	return sum * (1 + bonusNew*r.newness(h.text))
}

func (r *ranking) sum(terms uint64) (sum float64) {
	for ; terms != 0; terms &= terms - 1 {
		sum += r.worth[bits.TrailingZeros64(terms)]
	}
	return sum
}

func (r *ranking) names(terms uint64) (list []string) {
	for ; terms != 0; terms &= terms - 1 {
		list = append(list, r.terms[bits.TrailingZeros64(terms)].Text)
	}
	return list
}

func isHeading(text string) bool { return strings.HasPrefix(text, "#") }

var dated = regexp.MustCompile(`\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b`)

// newness is 1 for a line with today's date, and less the older it is; 0 without one.
func (r *ranking) newness(text string) float64 {
	day, err := time.Parse(time.DateOnly, dated.FindString(text))
	if err != nil || r.now.IsZero() {
		return 0
	}
	return math.Exp2(-float64(max(0, r.now.Sub(day))) / float64(halfLife))
}

// addHeadings finds the headings that the lines stand below.
func (r *ranking) addHeadings(hits []ranked) {
	order := make([]*ranked, len(hits))
	for i := range hits {
		order[i] = &hits[i]
	}
	slices.SortFunc(order, func(a, b *ranked) int { return cmp.Or(a.note-b.note, a.line-b.line) })
	var f *os.File
	note := -1
	for _, h := range order {
		if h.note != note {
			if f != nil {
				_ = f.Close() // only read from
			}
			note = h.note
			f, _ = r.root.Open(r.notes[note].path) // it may be gone by now: then without headings
		}
		if f != nil {
			h.above = r.termsIn(headingsBefore(f, h.off)) &^ h.terms
			h.score = r.score(h)
		}
	}
	if f != nil {
		_ = f.Close()
	}
}

// headingsBefore gives the headings above an offset of a file, a line each, as far
// as they are close.
func headingsBefore(f *os.File, off int64) string {
	buf := make([]byte, min(off, aroundLine))
	if n, err := f.ReadAt(buf, off-int64(len(buf))); err != nil {
		buf = buf[:n]
	}
	var b strings.Builder
	level := 7
	lines := strings.Split(string(buf), "\n")
	for _, line := range slices.Backward(lines) {
		if n := len(line) - len(strings.TrimLeft(line, "#")); n > 0 && n < level {
			level = n
			b.WriteString(line + "\n")
		}
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
	return strings.Join(strings.FieldsFunc(strings.ToLower(dated.ReplaceAllString(text, "")), isGap), " ")
}
