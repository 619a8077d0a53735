// Package repair checks and repairs one ledger file by itself, as stint fsck does. It reads and
// writes no file: it gets bytes and returns bytes.
//
//   - [CheckFile] returns the findings of the whole file, in the order of its lines.
//   - [Repair] returns a text without findings that has lost nothing: damaged records come
//     from the journal, open blocks are closed, and what is no record is kept as text.
//
// Both know only the grammar. What a value may be says the check that the caller passes.
package repair

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"stint/ledger"
	"stint/ledger/lazy"
	"stint/ledger/salvage"
)

// Repair returns a ledger file without findings. All records that are good stand in it as they stood, in their order, and so
// does all text. A damaged record that the journal has is replaced by the journal's. Any other one becomes indented code, below
// a heading that says what was wrong, and so does the text of a fence, comment or HTML block that is open at a record: it hides
// none then, and what it hid stays hidden. Nothing is thrown away.
//
// journal may be nil. check is as for [CheckFile]; it is called once for each record, and again for the journal's record where
// it refuses one. notes say what was done, with the lines of data; without any, repaired is data.
func Repair(data, journal []byte, check func(*ledger.Section) error) (repaired []byte, notes []*ledger.SyntaxError) {
	r := repairer{data: data, journal: map[uint64]*ledger.Section{}, present: map[uint64]bool{}, edits: map[int]edit{}}
	for _, s := range ledger.Parse(journal).Sections {
		r.journal[s.Seq] = &s
		r.inForce(&s)
	}
	doc := ledger.Parse(data)
	for i := range doc.Sections {
		r.present[doc.Sections[i].Seq] = true
	}
	whole := &ledger.Document{Sections: slices.Clone(doc.Sections)}
	for _, d := range doc.Damaged {
		if s := r.repair(d, func(*ledger.Section) bool { return true }); s != nil {
			whole.Sections = append(whole.Sections, ledger.Section{Kind: s.Kind, ID: s.ID, Seq: s.Seq, Fields: s.Fields, Raw: s.Raw, Off: int64(d.From), Line: d.Finding.Line})
		}
	}
	slices.SortFunc(whole.Sections, func(a, b ledger.Section) int { return cmp.Compare(a.Off, b.Off) })
	for _, f := range refusals(whole, check) {
		s := f.section
		if e, isJournals := r.edits[int(s.Off)]; isJournals {
			r.setAside(e.Damage)
			continue
		}
		delete(r.present, s.Seq)
		d := ledger.Damage{Finding: f.finding, Name: s.Name(), Seq: s.Seq, From: int(s.Off), To: int(s.Off) + len(s.Raw)}
		r.repair(d, func(s *ledger.Section) bool { return check(s) == nil })
	}
	r.setBlocksAside(doc)
	return r.apply()
}

// A repairer collects what is to be changed in a file.
type repairer struct {
	data    []byte
	journal map[uint64]*ledger.Section
	present map[uint64]bool // seqs of the good records
	edits   map[int]edit    // by the offset where they begin
}

// inForce puts the fields that a person has written into the record that an adoption of the
// journal edits: they count, and without them the record would take them back.
func (r *repairer) inForce(adoption *ledger.Section) {
	seq, isSeq := ledger.ParseUint([]byte(adoption.Value(ledger.KeyEdits)))
	was := r.journal[seq]
	if !isSeq || was == nil {
		return
	}
	record, edit := was.Record(), adoption.Record()
	for _, f := range slices.Concat(edit.Fields, ledger.ParseFields(adoption.Value(ledger.KeyIgnored))) {
		if f.Key != ledger.KeyBy && f.Key != ledger.KeyUpdated && !ledger.IsEngineKey(f.Key) {
			record.Set(f)
		}
	}
	if s, err := ledger.Encode(&record); err == nil {
		r.journal[seq] = s
	}
}

// An edit replaces what is damaged.
type edit struct {
	ledger.Damage
	text []byte
	done string
}

// repair puts text, or the journal's record, which it returns, in the place of what is damaged.
func (r *repairer) repair(d ledger.Damage, accept func(*ledger.Section) bool) *ledger.Section {
	raw, s := r.data[d.From:d.To], r.journal[d.Seq]
	if end := endLine().FindSubmatch(raw); end != nil { // the seq line may be what is damaged
		seq, _ := ledger.ParseUint(end[1])
		if own := r.journal[seq]; own != nil && own.Name() == d.Name && !r.present[seq] {
			d.Seq, s = seq, own
		}
	}
	switch {
	case d.IsLine:
		r.edits[d.From] = edit{d, ledger.Harmless(raw), "made harmless"}
		return nil
	case d.Seq == 0 || s == nil || s.Name() != d.Name && d.Name != " " || r.present[d.Seq] || !accept(s):
		r.setAside(d)
		return nil
	}
	r.present[d.Seq] = true
	e := edit{d, append(bytes.Clone(s.Raw), '\n'), "the journal's record is in its place"}
	if !bytes.HasPrefix(s.Raw, bytes.TrimSpace(raw)) {
		e.text = append(e.text, aside(d, raw)...)
		e.done += ", and what stood there is kept as text"
	}
	r.edits[d.From] = e
	return s
}

var endLine = lazy.Regexp(`(?m)^<!-- end ([0-9]+)`)

func (r *repairer) setAside(d ledger.Damage) {
	r.edits[d.From] = edit{d, aside(d, r.data[d.From:d.To]), "kept as text"}
}

// aside returns raw where it can be no record: as indented code, below a heading that ends what stands above.
func aside(d ledger.Damage, raw []byte) []byte {
	text := []byte("## Set aside: " + d.Finding.Msg + "\n\n")
	for line := range bytes.Lines(raw) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			text = append(append(text, "    "...), ledger.Plain(line)...)
		}
		text = append(text, '\n')
	}
	return append(bytes.TrimRight(text, "\n"), "\n\n"...)
}

// setBlocksAside makes text of what stands in a block that is open at a record, around the records and what is damaged there.
func (r *repairer) setBlocksAside(doc *ledger.Document) {
	solid := map[int]int{} // where something begins that stays, and where that ends
	for i := range doc.Sections {
		solid[int(doc.Sections[i].Off)] = int(doc.Sections[i].Off) + len(doc.Sections[i].Raw)
	}
	for _, d := range doc.Damaged {
		if !d.IsLine {
			solid[d.From] = d.To
		}
	}
	starts := slices.Sorted(maps.Keys(solid))
	for _, d := range doc.Opens {
		i, _ := slices.BinarySearch(starts, d.From)
		if i > 0 {
			d.From = max(d.From, solid[starts[i-1]])
		}
		for end := d.To; d.From < end; i++ {
			if d.To = end; i < len(starts) {
				d.To = min(end, starts[i])
			}
			if ledger.HasText(r.data[d.From:d.To]) {
				r.setAside(d)
			}
			d.From = d.To
			if d.To < end {
				d.From = solid[starts[i]]
			}
		}
	}
}

// apply makes the edits, and notes what they repair. One within another is made by that.
func (r *repairer) apply() (out []byte, notes []*ledger.SyntaxError) {
	if len(r.edits) == 0 {
		return r.data, nil
	}
	pos := 0
	for _, from := range slices.Sorted(maps.Keys(r.edits)) {
		e := r.edits[from]
		notes = append(notes, &ledger.SyntaxError{Line: e.Finding.Line, Msg: e.Finding.Msg + ": " + e.done})
		if from < pos {
			continue
		}
		if out = append(out, r.data[pos:from]...); len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out = append(out, e.text...)
		pos = e.To
	}
	slices.SortStableFunc(notes, func(a, b *ledger.SyntaxError) int { return cmp.Compare(a.Line, b.Line) })
	return append(out, r.data[pos:]...), slices.CompactFunc(notes, func(a, b *ledger.SyntaxError) bool { return *a == *b })
}

// CheckFile returns everything that is wrong in one ledger file by itself, in the order of its lines. name is what the findings
// call the file. check is given the records as a new state directory with this file alone would accept them: those of stint by
// their numbers, then what people wrote. It says what is wrong with a record; nil: nothing is.
func CheckFile(name string, data []byte, check func(*ledger.Section) error) []*ledger.SyntaxError {
	doc := ledger.Parse(data)
	found := slices.Clone(doc.Findings)
	if err := ledger.CheckFormat(name, doc.Version); err != nil {
		found = append(found, &ledger.SyntaxError{Line: 1, Msg: err.Error()})
	}
	for _, r := range refusals(doc, check) {
		found = append(found, r.finding)
	}
	for _, f := range found {
		f.File = name
	}
	slices.SortStableFunc(found, func(a, b *ledger.SyntaxError) int { return a.Line - b.Line })
	return found
}

// A refusal is a section that parses and that the reader of the fold refuses.
type refusal struct {
	section *ledger.Section
	finding *ledger.SyntaxError
}

// refusals asks check about the sections that count when the file is all there is: its
// records, as they were written, and then what people wrote that no record has taken over.
func refusals(doc *ledger.Document, check func(*ledger.Section) error) (list []refusal) {
	if check == nil {
		return nil
	}
	originals := salvage.OriginalsOf(doc)
	ask := func(s *ledger.Section) {
		as := s
		if _, edited := originals[s.Seq]; edited {
			r := originals.Record(s)
			if enc, err := ledger.Encode(&r); err == nil {
				as = enc
			}
		}
		if err := check(as); err != nil {
			list = append(list, refusal{s, ledger.RefusedAt(s, err)})
		}
	}
	adopted := salvage.Written(doc) // of equal ones each once
	for _, s := range salvage.Records(doc) {
		ask(s)
	}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq > 0 {
			continue
		}
		if digest := ledger.Digest(s.Raw); adopted[digest] > 0 {
			adopted[digest]--
			continue
		}
		ask(s)
	}
	return list
}
