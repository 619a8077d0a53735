package repair

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"stint/ledger"
)

// Repair returns a ledger file without findings. All records that are good stand
// in it as they stood, in their order, and so does all text. A fence, comment or
// HTML block that is open at a record is closed before it. A damaged record that
// the journal has is replaced by the journal's; one that it does not have becomes
// indented code, below a heading that says what was wrong. Of a section
// that a person wrote only the heading is changed so. Nothing is thrown away.
//
// journal may be nil. check is as for [CheckFile]; it is called once for each
// record, and again for the journal's record where it refuses one. notes say what
// was done, with the lines of data; without any, repaired is data.
func Repair(data, journal []byte, check func(*ledger.Section) error) (repaired []byte, notes []*ledger.SyntaxError) {
	m := &mender{data: data, journal: map[uint64]*ledger.Section{}, origin: func(line int) int { return line }}
	doc := ledger.Parse(journal)
	for i := range doc.Sections {
		m.journal[doc.Sections[i].Seq] = &doc.Sections[i]
	}
	m.mendSyntax()
	m.mendRenamed()
	if check != nil {
		m.mendRefused(check)
		m.mendSyntax()
	}
	slices.SortStableFunc(m.notes, func(a, b *ledger.SyntaxError) int { return cmp.Compare(a.Line, b.Line) })
	return m.data, m.notes
}

// A mender works in passes: what one mends may bring to light what another must.
type mender struct {
	data    []byte
	journal map[uint64]*ledger.Section
	notes   []*ledger.SyntaxError
	edits   []edit              // of this pass
	origin  func(line int) int  // returns the line that a line of data had at first
	present map[uint64]bool     // seqs of the good records in data
	last    *ledger.SyntaxError // the finding about lines of text that was noted last
}

// An edit replaces data[from:to].
type edit struct {
	from, to int
	text     []byte
}

// maxPasses bounds the passes over a file: far more than any needs.
const maxPasses = 1000

// mendSyntax makes passes until nothing is found. Each one takes damaged sections
// out or closes blocks, and makes neither, so that they come to an end.
func (m *mender) mendSyntax() {
	var good []ledger.Section // before the first pass
	for pass := range maxPasses {
		doc := ledger.Parse(m.data)
		if pass == 0 {
			good = doc.Sections
		}
		m.begin(doc)
		if pass > 0 && m.uncover(doc, good) {
			m.apply()
			continue
		}
		if len(doc.Findings) == 0 {
			return
		}
		for _, d := range doc.Damaged {
			m.replace(d, func(*ledger.Section) bool { return true })
		}
		starts := lineStarts(m.data)
		m.closeBlocks(doc, starts)
		if !m.apply() {
			return
		}
	}
}

// uncover looks for a good section that what was mended above it has hidden in a
// block, closes that, and says whether there was one. No block was open there at
// first, so that what follows is read as it was.
func (m *mender) uncover(doc *ledger.Document, good []ledger.Section) bool {
	next, pos := 0, 0
	for i := range good {
		raw := bytes.TrimSpace(good[i].Raw)
		n := slices.IndexFunc(doc.Sections[next:], func(s ledger.Section) bool { return bytes.Equal(bytes.TrimSpace(s.Raw), raw) })
		if n >= 0 {
			next += n + 1
			pos = int(doc.Sections[next-1].Off) + len(doc.Sections[next-1].Raw)
			continue
		}
		at := bytes.Index(m.data[pos:], append([]byte("\n"), raw...))
		if at < 0 {
			continue
		}
		from := pos + at + 1
		if block := ledger.Parse(m.data[:from]).Last; block.What != "" {
			closer, _ := block.Marks()
			m.edits = append(m.edits, edit{from, from, []byte(closer + "\n")})
			return true
		}
	}
	return false
}

// mendRefused replaces what check refuses.
func (m *mender) mendRefused(check func(*ledger.Section) error) {
	doc := ledger.Parse(m.data)
	m.begin(doc)
	for _, r := range refusals(doc, check) {
		s := r.section
		delete(m.present, s.Seq)
		d := ledger.Damage{Finding: r.finding, Name: s.Name(), Seq: s.Seq, From: int(s.Off), To: int(s.Off) + len(s.Raw)}
		m.replace(d, func(s *ledger.Section) bool { return check(s) == nil })
	}
	m.apply()
}

// mendRenamed replaces the records of the journal that stand under another name only.
func (m *mender) mendRenamed() {
	doc := ledger.Parse(m.data)
	m.begin(doc)
	has := map[string]bool{}
	for i := range doc.Sections {
		has[doc.Sections[i].Name()] = true
	}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if own := m.journal[s.Seq]; own != nil && !has[own.Name()] {
			delete(m.present, s.Seq)
			f := &ledger.SyntaxError{Line: s.Line, Msg: fmt.Sprintf("this is record %d of %s under another name", s.Seq, own.Name())}
			m.replace(ledger.Damage{Finding: f, Name: own.Name(), Seq: s.Seq, From: int(s.Off), To: int(s.Off) + len(s.Raw)}, func(*ledger.Section) bool { return true })
		}
	}
	m.apply()
}

func (m *mender) begin(doc *ledger.Document) {
	m.edits, m.present = nil, map[uint64]bool{}
	for i := range doc.Sections {
		m.present[doc.Sections[i].Seq] = true
	}
}

func (m *mender) note(line int, msg string) {
	m.notes = append(m.notes, &ledger.SyntaxError{Line: m.origin(line), Msg: msg})
}

// replace puts the journal's record, or text, in the place of a section. What
// stands around it is read as before.
func (m *mender) replace(d ledger.Damage, accept func(*ledger.Section) bool) {
	if end := endLine.FindSubmatch(m.data[d.From:d.To]); end != nil && !d.IsLine { // the seq line may be what is damaged
		seq, _ := ledger.ParseUint(end[1])
		if s := m.journal[seq]; s != nil && s.Name() == d.Name && !m.present[seq] {
			d.Seq = seq
		}
	}
	switch {
	case d.IsLine:
		if m.last != d.Finding {
			m.note(d.Finding.Line, d.Finding.Msg+": made harmless")
		}
		m.last = d.Finding
		m.edits = append(m.edits, edit{d.From, d.To, ledger.Harmless(m.data[d.From:d.To])})
		return
	case d.Seq == 0:
		m.renameHeading(d)
		return
	}
	raw := m.data[d.From:d.To]
	var text []byte
	done := "kept as text"
	if s := m.journal[d.Seq]; s != nil && (s.Name() == d.Name || d.Name == " ") && !m.present[d.Seq] && !bytes.Equal(s.Raw, raw) && accept(s) {
		m.present[d.Seq] = true
		text = append(bytes.Clone(s.Raw), '\n')
		done = "the journal's record is in its place"
		if raw = behindSame(raw, s.Raw); len(raw) > 0 {
			done += ", and what differed is kept as text"
		}
	}
	if len(bytes.TrimSpace(raw)) > 0 {
		text = appendAside(text, d.Finding.Msg, raw)
	}
	m.note(d.Finding.Line, d.Finding.Msg+": "+done)
	m.edits = append(m.edits, edit{d.From, d.To, text})
}

var endLine = regexp.MustCompile(`(?m)^<!-- end ([0-9]+)`)

// aside begins the heading of what is no record any more.
const aside = "## Set aside: "

// renameHeading makes text of a section that a person wrote.
func (m *mender) renameHeading(d ledger.Damage) {
	n := lineLen(m.data[d.From:])
	_, name := ledger.HeadingText(ledger.TrimRight(bytes.TrimRight(m.data[d.From:d.From+n], "\n")))
	text := append([]byte(aside), name...)
	text = append(append(text, ": "...), d.Finding.Msg...)
	m.note(d.Finding.Line, d.Finding.Msg+": kept as text")
	m.edits = append(m.edits, edit{d.From, d.From + n, append(text, '\n')})
}

func lineLen(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1
	}
	return len(data)
}

// behindSame returns the lines of raw from the first on that is not the record's own.
func behindSame(raw, record []byte) []byte {
	for len(raw) > 0 {
		n, k := lineLen(raw), lineLen(record)
		line := ledger.TrimRight(bytes.TrimRight(raw[:n], "\n"))
		switch {
		case bytes.Equal(line, ledger.TrimRight(bytes.TrimRight(record[:k], "\n"))):
			record = record[k:]
		case n == len(raw) && bytes.HasPrefix(record, line): // cut within a line
		case len(line) > 0:
			return raw
		}
		raw = raw[n:]
	}
	return nil
}

// appendAside writes raw where it can be no record: as indented code, below a heading that
// ends what stands above.
func appendAside(dst []byte, why string, raw []byte) []byte {
	dst = append(dst, aside...)
	dst = append(dst, why...)
	dst = append(dst, "\n\n"...)
	for line := range bytes.Lines(bytes.TrimRight(raw, "\r\n")) {
		if len(bytes.TrimRight(line, "\r\n")) > 0 {
			dst = append(dst, "    "...)
		}
		dst = append(dst, ledger.SpellNULs(line)...)
	}
	return append(dst, "\n\n"...)
}

// closeBlocks closes what is open at a record. Where the block is closed further
// down, and more of its text follows the record, it is opened again behind it:
// what Markdown hides stays hidden.
func (m *mender) closeBlocks(doc *ledger.Document, starts []int) {
	for len(doc.Opens) > 0 {
		line := doc.Opens[0].Block.Line
		n := slices.IndexFunc(doc.Opens, func(o ledger.Opening) bool { return o.Block.Line != line })
		if n < 0 {
			n = len(doc.Opens)
		}
		group := doc.Opens[:n]
		doc.Opens = doc.Opens[n:]
		o := group[0]
		m.note(line, "this "+o.Block.What+" was open at a record: closed before it")
		if doc.OpenAtEnd == line {
			group = group[:1]
		}
		endsItself := o.Block.EndsAtRecord()
		m.cutOut(doc, group, starts, doc.OpenAtEnd != line && !endsItself)
	}
}

func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// cutOut takes the records of group out of the block that they stand in.
func (m *mender) cutOut(doc *ledger.Document, group []ledger.Opening, starts []int, reopen bool) {
	closer, opener := group[0].Block.Marks()
	end := -1 // of the record before
	for i, o := range group {
		from := starts[o.At-1]
		if end < 0 || len(bytes.TrimSpace(m.data[end:from])) > 0 {
			m.edits = append(m.edits, edit{from, from, []byte(closer + "\n")})
		}
		end = endOf(doc, from)
		last := i == len(group)-1
		if reopen && (last || len(bytes.TrimSpace(m.data[end:starts[group[i+1].At-1]])) > 0) {
			m.edits = append(m.edits, edit{end, end, []byte(opener + "\n")})
		}
	}
}

// endOf returns where the record that begins at from ends, good or damaged.
func endOf(d *ledger.Document, from int) int {
	if i, ok := slices.BinarySearchFunc(d.Sections, from, func(s ledger.Section, off int) int { return int(s.Off) - off }); ok {
		return from + len(d.Sections[i].Raw)
	}
	for _, x := range d.Damaged {
		if x.From == from {
			return x.To
		}
	}
	return from
}

// apply makes the edits of this pass, and says whether there were any.
func (m *mender) apply() bool {
	slices.SortStableFunc(m.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out []byte
	var moved []shift
	pos, line, delta := 0, 1, 0
	for _, e := range m.edits {
		if e.from < pos {
			continue // within what was just replaced; the next pass looks again
		}
		out = append(out, m.data[pos:e.from]...)
		line += bytes.Count(m.data[pos:e.from], newline)
		if n := len(out); len(e.text) > 0 && n > 0 && out[n-1] != '\n' {
			out = append(out, '\n')
		}
		out = append(out, e.text...)
		removed := bytes.Count(m.data[e.from:e.to], newline)
		delta += bytes.Count(e.text, newline) - removed
		line += removed
		moved = append(moved, shift{line + delta, delta})
		pos = e.to
	}
	if len(moved) == 0 {
		return false
	}
	m.data = append(out, m.data[pos:]...)
	before := m.origin
	m.origin = func(line int) int { return before(shiftBack(moved, line)) }
	return true
}

// A shift says that the lines from one on stood delta lines further up.
type shift struct{ from, delta int }

func shiftBack(moved []shift, line int) int {
	for _, s := range slices.Backward(moved) {
		if line >= s.from {
			return line - s.delta
		}
	}
	return line
}

var newline = []byte("\n")
