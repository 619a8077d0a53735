// Package reconcile finds what a person changed in tasks.md.
//
// [ReadTexts] reads of both files what differs and what belongs to that: of a hand edit in a large ledger a few
// kilobytes. [Compare] takes that, or a whole tasks.md and a whole journal, and returns a [Plan]: the records that take
// edits over ("by: hand"), the records that a stale buffer has dropped, the tasks whose sections a person has
// deleted, and what cannot be taken over. It opens no file and writes none; package journal applies the plan.
//
// Each section is matched with a record of the journal by its seq, or by the digest under which
// it was adopted before (history.go). What differs from what was last seen becomes an adoption
// (adopt.go). A save that changes the prompts of many tasks at once is quarantined.
package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"stint/ledger"
)

// A Plan is what is to be done about one state of tasks.md.
type Plan struct {
	File        string // the name of the file, for findings and notices
	Missing     int64  // offset in the journal from which on the records are missing in tasks.md; -1 if none are
	InFile      int    // bytes of the record at missing that are in the file already: its end was cut off
	lost        int    // records that are missing
	Dropped     int    // those of them that tasks.md has had: an old buffer was saved
	Again       []byte // records whose only sections were given another name, as they were written
	End         int64  // size of the journal that the plan knows
	MaxSeq      uint64 // highest seq in the file that stint may have given
	Newest      uint64 // highest seq of a record that is in the file as the last save left it
	Records     []ledger.Record
	Notices     []ledger.Notice
	Findings    []*ledger.SyntaxError
	Last        string          // kind and id of the newest record of the journal
	Rest        string          // digest of the text without their sections
	Quarantined int             // sections that are quarantined
	Gone        map[string]bool // kinds and ids that have no section any more; nil: it cannot be said
	Old         int             // sections from before the compaction or the restore
	OldLine     int             // of the first of them
}

// Rules decide which edits by hand are taken over, and what becomes of them.
type Rules struct {
	// Begin is called for each save of tasks.md. It returns two functions, which are called for the save's
	// records in their order: check reports why a record cannot be accepted, implied returns the fields that
	// are written with it beside, or in place of, its own. Each counts the records before it that passed as
	// accepted. Where Begin or check is nil, every record passes; where implied is nil, no fields are added.
	Begin func() (check func(*ledger.Section) error, implied func(*ledger.Record) []ledger.Pair)
	// CheckBatch reports whether records that people wrote in one save, and each of which Begin's check has passed, can be taken
	// over together; if not, which of them cannot, by their indexes, and why. It is asked again about the others. nil: all can.
	CheckBatch func([]*ledger.Section) (bad map[int]error)
	// Guarded are the keys of long texts (prompt, verifyCommand) that a formatter may spoil: a save that
	// changes them in more than three records is quarantined until an explicit reconcile accepts it.
	Guarded []string
	// IsBusy reports whether that kind and id is at work: then it does not count as deleted where
	// its newest records are missing. nil: nothing is.
	IsBusy func(name string) bool
	// KeepOnCopy reports whether a section that a person copied under another id keeps that
	// field in its draft. nil: all but those of the engine.
	KeepOnCopy func(key string) bool
}

// begin is Begin, if there is one.
func (r *Rules) begin() (check func(*ledger.Section) error, implied func(*ledger.Record) []ledger.Pair) {
	if r.Begin == nil {
		return nil, nil
	}
	return r.Begin()
}

// Input are what a plan is made under, beside the two files.
type Input struct {
	Rules

	Files     ledger.Files
	Now       time.Time
	Deletes   bool                           // somebody wants to know what was deleted
	Accept    bool                           // hold nothing
	Seen      uint64                         // the newest record that tasks.md has had
	SavedAll  uint64                         // the newest record when another hand changed tasks.md last, if that save had all; else 0
	SavedRest string                         // what Rest was then
	Raced     uint64                         // the record from which on ours were appended while another hand was saving; 0: none
	Adopted   func() (map[string]int, error) // how often sections of that digest were adopted before the compaction; nil: none was
}

// Compare compares tasks.md with what the journal knows.
func Compare(ctx context.Context, x *Texts, t Input) (*Plan, error) {
	h := newHistory(x.Journal)
	p := planner{ctx: ctx, Plan: &Plan{File: t.Files.Ledger(), Missing: -1, End: x.End}, Input: t, doc: x.Doc, h: h}
	p.check, p.implied = t.begin()
	p.match()
	p.old = p.h.through > 0 && p.Newest == 0
	p.findMissing()
	if err := p.classify(); err != nil {
		return nil, err
	}
	p.keepEdits()
	p.decide()
	p.findRenamed()
	p.findGone()
	if p.Missing >= 0 { // nothing is left out behind it
		p.Missing += x.End - h.end
	}
	return p.Plan, context.Cause(ctx)
}

type planner struct {
	*Plan
	ctx context.Context // ends the plan
	Input
	doc *ledger.Document
	h   *history

	at     []match // of each section of the file
	owner  []int   // of each record of the journal: index of its section plus 1; -1 if only copies of it are there
	byName map[string][]int
	copied map[int]bool // sections that are copies
	todo   []change
	drafts map[string]bool // names that this plan gives to copies
	hurt   bool            // something in the file is damaged, so that nothing can be said to be deleted
	old    bool            // nothing in the file is from after the compaction: an old buffer was saved

	check    func(*ledger.Section) error // of this save
	implied  func(*ledger.Record) []ledger.Pair
	accepted []*adoption // what is taken over, in the order of the file
}

// match says which record a section is.
type match struct {
	record int // index in the journal; -1 if it is none of its records
	as     likeness
}

type likeness uint8

const (
	unknown   likeness = iota // no record of the journal has its seq
	untouched                 // just as stint wrote it
	changed                   // the same record with another text
	foreign                   // it has the seq of another record
)

// A change is a section that differs from what was last seen.
type change struct {
	index  int
	digest string
	origin *origin // whose text a person has edited; nil if the section is new
	copyOf uint64  // seq of the record that it is a copy of; 0 if it is none
	isOld  bool    // it is of an old buffer, and was adopted before the compaction
}

// finding reports what is wrong.
func (p *Plan) finding(f *ledger.SyntaxError) {
	p.Findings = append(p.Findings, f)
	p.Notices = append(p.Notices, ledger.Notice{Finding: f, Text: f.Error()})
}

func (p *Plan) findingAt(line int, format string, args ...any) {
	p.finding(&ledger.SyntaxError{File: p.File, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// match finds the record of each section.
func (p *planner) match() {
	p.at = make([]match, len(p.doc.Sections))
	p.owner = make([]int, len(p.h.records))
	p.copied = map[int]bool{}
	p.drafts = map[string]bool{}
	for i := range p.doc.Sections {
		s := &p.doc.Sections[i]
		if !ledger.SeqOutOfRange(s.Seq, p.h.last) {
			p.MaxSeq = max(p.MaxSeq, s.Seq)
		}
		k, known := p.h.find(s.Seq)
		if !known {
			p.at[i] = match{-1, unknown}
			continue
		}
		m := match{k, changed}
		if bytes.HasPrefix(p.h.data[p.h.records[k].off:], s.Raw) {
			m.as = untouched
		} else if s.Name() != string(p.h.nameOf(p.h.records[k])) {
			m.as = foreign
		}
		p.at[i] = m
		switch {
		case m.as == foreign:
			p.owner[k] = cmp.Or(p.owner[k], -1)
			continue
		case p.owner[k] <= 0:
			p.owner[k] = i + 1
		}
		if p.Raced == 0 || s.Seq < p.Raced { // behind a stale buffer, a record says nothing of those before it
			p.Newest = max(p.Newest, s.Seq)
		}
	}
	// A damaged section is there: it waits for its repair, and is not written anew. One that
	// reaches to the end of the file without an end line may be cut off; see findTorn.
	for _, d := range p.doc.Damaged {
		i, known := p.h.find(d.Seq)
		isWhole := d.To < len(p.doc.Data) || bytes.Contains(p.doc.Data[d.From:d.To], fmt.Appendf(nil, "<!-- end %d -->", d.Seq))
		if d.IsLine || d.Seq == 0 || !known || !isWhole || d.Name != string(p.h.nameOf(p.h.records[i])) {
			continue
		}
		p.owner[i] = cmp.Or(p.owner[i], -1)
		if p.Raced == 0 || d.Seq < p.Raced {
			p.Newest = max(p.Newest, d.Seq)
		}
	}
}

// findMissing looks whether the newest records of the journal are not in the
// file: then an editor saved a buffer that it had loaded before they were written.
func (p *planner) findMissing() {
	p.Missing = p.h.end
	for _, r := range slices.Backward(p.h.records) {
		if r.seq <= p.Newest {
			break
		}
		p.lost++
		if r.seq <= p.Seen {
			p.Dropped++
		}
		p.Missing = min(p.Missing, r.off)
	}
	if n := len(p.h.records); n > 0 {
		p.Last = string(p.h.nameOf(p.h.records[n-1]))
		p.Rest = p.restOf(p.Last)
	}
	if p.lost > 0 && p.deletesLast() {
		p.Newest, p.lost, p.Dropped = p.h.last, 0, 0
	}
	if p.lost == 0 {
		p.Missing = -1
	}
	p.findTorn()
}

// deletesLast reports whether the newest records are missing because a person has deleted
// the task that they belong to: his save before had all records, none came since, and nothing
// else differs. A buffer from before they were written differs from that save in more.
func (p *planner) deletesLast() bool {
	if p.SavedAll != p.h.last || p.Raced > 0 || len(p.doc.Findings) > 0 || p.SavedRest != p.Rest {
		return false
	}
	last := p.h.records[len(p.h.records)-p.lost:]
	if slices.ContainsFunc(p.doc.Sections, func(s ledger.Section) bool { return s.Name() == p.Last }) {
		return false // it is there: the buffer is older than what is missing
	}
	return !slices.ContainsFunc(last, func(r place) bool { return string(p.h.nameOf(r)) != p.Last }) && (p.IsBusy == nil || !p.IsBusy(p.Last))
}

// restOf returns the digest of what the file has beside and in place of the journal's records, and of which it has
// not; without the records of that kind and id, and without blank lines.
func (p *planner) restOf(name string) string {
	h, pos := sha256.New(), 0
	add := func(to int) {
		for line := range bytes.Lines(p.doc.Data[pos:to]) {
			_, _ = h.Write(bytes.TrimSpace(line)) // a hash never fails
		}
	}
	for i, m := range p.at {
		if s := &p.doc.Sections[i]; s.Name() == name || m.as == untouched {
			add(int(s.Off))
			pos = int(s.Off) + len(s.Raw)
		}
	}
	add(len(p.doc.Data))
	for i, r := range p.h.records {
		if p.owner[i] <= 0 && string(p.h.nameOf(r)) != name {
			_, _ = fmt.Fprintln(h, r.seq)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// keepEdits sees to it that a record which is put back as stint wrote it is not taken for an edit that was
// taken back: the journal gets to know that its text has no effect.
func (p *planner) keepEdits() {
	for _, r := range p.h.records[len(p.h.records)-p.lost:] {
		o := p.h.edited[r.seq]
		if o == nil {
			continue
		}
		if digest := p.h.pristine(r.seq); digest != o.digest {
			a := newAdoption(change{origin: o, digest: digest}, p.h.section(r.seq))
			p.compare(a, fieldsOf(a.section), o.fields)
			if a.makeRecord(p.File) {
				p.adopt(a)
			}
		}
	}
}

// findTorn looks at a record that is cut off at the end of the file. If its beginning is ours, the rest is
// put behind it: nothing is rewritten. All other findings are reported.
func (p *planner) findTorn() {
	from := bytes.LastIndex(p.doc.Data, []byte("\n#")) + 1
	tail := p.doc.Data[from:]
	line := p.doc.End - len(slices.Collect(bytes.Lines(tail)))
	ours := p.lost > 0 && len(tail) > 0 && bytes.HasPrefix(p.h.data[p.Missing:], tail)
	if ours {
		p.InFile = len(tail)
	}
	damage := p.doc.Findings
	if ours {
		damage = slices.DeleteFunc(slices.Clone(damage), func(f *ledger.SyntaxError) bool { return f.Line >= line })
	}
	p.hurt = len(damage) > 0
	p.Parsed(damage)
}

// Parsed reports what the parser found.
func (p *Plan) Parsed(findings []*ledger.SyntaxError) {
	for _, f := range findings {
		f.File = p.File
		p.finding(f)
	}
}

// classify finds the sections that differ from what was last seen of them.
func (p *planner) classify() error {
	for i := range p.doc.Sections {
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		s, m := &p.doc.Sections[i], p.at[i]
		switch {
		case p.InFile > 0 && s.Off >= int64(len(p.doc.Data)-p.InFile):
			// the beginning of a record of ours
		case ledger.SeqOutOfRange(s.Seq, p.h.last):
			p.hurt = true
			p.findingAt(s.Line, "seq %d is no number that stint has given; leave seq and end line out of what you write", s.Seq)
		case s.Seq == 0 || m.as == unknown && s.Seq > max(p.h.through, p.h.restored):
			if err := p.hand(i, s); err != nil {
				return err
			}
		case m.as == unknown:
			if p.Old++; p.Old == 1 {
				p.OldLine = s.Line
			}
		case m.as == foreign:
			p.copy(i, s)
		case p.owner[m.record] <= i:
			p.twin(i, p.owner[m.record]-1)
		case m.as == changed || p.h.edited[s.Seq] != nil: // it is not as stint wrote it, or was not
			digest, o := ledger.Digest(s.Raw), p.h.lastSeen(s.Seq)
			switch {
			case digest == o.digest:
			case len(p.h.adopted[digest]) > 0: // a copy, and the record itself is gone
				p.copied[i] = p.h.claim(digest)
			default:
				p.todo = append(p.todo, change{index: i, digest: digest, origin: o})
			}
		}
	}
	return nil
}

// hand takes a section without seq.
func (p *planner) hand(i int, s *ledger.Section) error {
	if len(s.Fields) == 0 && p.h.has(s.Name()) {
		return nil // it says nothing, and may be what a power cut has left of a record
	}
	digest := ledger.Digest(s.Raw)
	if p.h.claim(digest) {
		return nil
	}
	isOld := false
	if p.old && p.Adopted != nil {
		adopted, err := p.Adopted()
		if err != nil {
			return fmt.Errorf("read what was adopted before the compaction: %w", err)
		}
		isOld = adopted[digest] > 0
		adopted[digest]--
	}
	p.todo = append(p.todo, change{index: i, digest: digest, isOld: isOld})
	return nil
}

// copy takes a section with the seq of another record.
func (p *planner) copy(i int, s *ledger.Section) {
	p.copied[i] = true
	if digest := ledger.Digest(s.Raw); !p.h.claim(digest) {
		p.todo = append(p.todo, change{index: i, digest: digest, copyOf: s.Seq})
	}
}

// findRenamed finds the records that have no section any more but under another name. That is a copy, so they are put back.
func (p *planner) findRenamed() {
	if !slices.ContainsFunc(p.at, func(m match) bool { return m.as == foreign }) {
		return
	}
	has := map[string]bool{}
	for i := range p.doc.Sections {
		has[p.doc.Sections[i].Name()] = true
	}
	for _, d := range p.doc.Damaged {
		has[d.Name] = true
	}
	again := map[int]bool{}
	for i, m := range p.at {
		if m.as != foreign || again[m.record] {
			continue
		}
		r := p.h.records[m.record]
		if name := string(p.h.nameOf(r)); !has[name] && r.seq <= p.Newest {
			again[m.record] = true
			p.Again = append(append(p.Again, p.h.section(r.seq).Raw...), '\n')
			p.findingAt(p.doc.Sections[i].Line, "record %d of %s is there under this name only, and is appended again", r.seq, name)
		}
	}
}

// twin takes a section with the seq and id of one above it, which is the record. One that has the same text as that, or as it
// was written or last seen, is nothing (stint itself may have put the record back); any other one was copied by hand.
func (p *planner) twin(i, first int) {
	s := &p.doc.Sections[i]
	known := []string{ledger.Digest(p.doc.Sections[first].Raw), p.h.pristine(s.Seq), p.h.lastSeen(s.Seq).digest}
	if !slices.Contains(known, ledger.Digest(s.Raw)) {
		p.copy(i, s)
	}
}

// named returns the sections of that kind and id that are no copies. Most plans never ask.
func (p *planner) named(name string) []int {
	if p.byName == nil {
		p.byName = map[string][]int{}
		for j := range p.doc.Sections {
			if name := p.doc.Sections[j].Name(); !p.copied[j] {
				p.byName[name] = append(p.byName[name], j)
			}
		}
	}
	return p.byName[name]
}

// findGone lists the records that have no section in the file any more, though a newer one of another has: a
// person has deleted them. Of an empty file, which an editor may be about to write, nothing is said.
func (p *planner) findGone() {
	if !p.Deletes || p.hurt || !ledger.HasText(p.doc.Data) {
		return
	}
	p.Gone = map[string]bool{}
	for i, owner := range p.owner {
		if owner == 0 && p.h.records[i].seq <= p.Newest {
			p.Gone[string(p.h.nameOf(p.h.records[i]))] = true
		}
	}
	if len(p.Gone) == 0 {
		return
	}
	for i := range p.doc.Sections {
		delete(p.Gone, p.doc.Sections[i].Name())
	}
	for i, owner := range p.owner {
		if owner != 0 || p.h.records[i].seq > p.Newest { // a copy of it is there, or it is put back
			delete(p.Gone, string(p.h.nameOf(p.h.records[i])))
		}
	}
}

// refuse reports why the reader of the fold cannot take what a section says.
func (p *planner) refuse(s *ledger.Section, err error) {
	f := ledger.RefusedAt(s, err)
	f.File = p.File
	p.finding(f)
}

// Sort puts the findings in the order of the file.
func (p *Plan) Sort() {
	slices.SortStableFunc(p.Findings, func(a, b *ledger.SyntaxError) int { return cmp.Compare(a.Line, b.Line) })
}

// A Report says what reconciling tasks.md did, or would do.
type Report struct {
	Findings    []*ledger.SyntaxError // what is wrong in tasks.md, by line
	Notices     []ledger.Notice       // what a person should know, findings among them
	Records     []ledger.Record       // what was taken over; their Seq is 0
	Missing     int                   // records that an old buffer had dropped and that were appended again
	Quarantined int                   // sections that are quarantined because a formatter seems to have changed them
}

// Add notes what one plan did.
func (r *Report) Add(p *Plan) {
	r.Findings, r.Quarantined = p.Findings, p.Quarantined
	r.Notices = append(r.Notices, p.Notices...)
	r.Records = append(r.Records, p.Records...)
	r.Missing += p.Dropped
}

// StillFits reports whether the fold accepts the records as it is now.
func (p *Plan) StillFits(r *Rules) bool {
	check, _ := r.begin()
	if check == nil {
		return true
	}
	list := make([]*ledger.Section, len(p.Records))
	for i := range p.Records {
		enc, err := ledger.Encode(&p.Records[i])
		if err != nil || check(enc) != nil {
			return false
		}
		list[i] = enc
	}
	return r.CheckBatch == nil || len(r.CheckBatch(list)) == 0
}
