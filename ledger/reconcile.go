package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"stint/ledger/durable"
)

// digestOf gives the digest of a section's text, the same with any line ends,
// trailing blanks and empty lines behind it.
func digestOf(raw []byte) string {
	h := sha256.New()
	for line := range bytes.Lines(bytes.TrimRight(raw, " \t\r\n")) {
		_, _ = h.Write(trimRight(bytes.TrimRight(line, "\n"))) // a hash never fails
		_, _ = h.Write([]byte("\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// An origin is a section as it first came into the ledger, with the fields that
// were last seen of it: the record with that seq, or a section that a person wrote.
type origin struct {
	id     string // kind and id of the record
	name   string // its seq, or the digest of what a person wrote
	digest string // of the text that was last seen; "" for an unedited record
	fields map[string]string
}

// A history is what the journal knows about the sections of tasks.md.
type history struct {
	data    []byte // the journal
	end     int64  // its size
	records []place
	sorted  bool   // records are in the order of their seqs, as ever but after a rebuild
	next    int    // index behind the record that was found last: the next one, as a rule
	last    uint64 // highest seq
	edited  map[uint64]*origin
	hand    []*origin            // sections without seq, in the order in which they were adopted
	adopted map[string][]*origin // the same by the digest of what was last seen
}

// A place is where in the journal a record stands.
type place struct {
	seq uint64
	off int64
}

// newHistory scans the bytes of a journal.
func newHistory(data []byte) *history {
	h := &history{
		data: data, end: int64(len(data)), sorted: true,
		edited: map[uint64]*origin{}, adopted: map[string][]*origin{},
	}
	h.scan()
	if !h.sorted {
		slices.SortStableFunc(h.records, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
		h.sorted = true
	}
	return h
}

// find gives the offset of record seq. Records are mostly asked for in their order.
func (h *history) find(seq uint64) (int64, bool) {
	i, ok := h.next, h.next < len(h.records) && h.records[h.next].seq == seq
	switch {
	case ok:
	case h.sorted:
		i, ok = slices.BinarySearchFunc(h.records, seq, func(p place, seq uint64) int { return cmp.Compare(p.seq, seq) })
	default: // while a rebuilt journal is scanned
		i = slices.IndexFunc(h.records, func(p place) bool { return p.seq == seq })
		ok = i >= 0
	}
	if !ok {
		return 0, false
	}
	h.next = i + 1
	return h.records[i].off, true
}

func (h *history) scan() {
	var s Section
	for pos := 0; pos < len(h.data); {
		n := 0
		var err error
		if h.data[pos] == '#' {
			n, _, err = scanStrict(h.data[pos:], &s)
		}
		if n == 0 || err != nil {
			next := bytes.IndexByte(h.data[pos:], '\n')
			if next < 0 {
				return
			}
			pos += next + 1
			continue
		}
		h.sorted = h.sorted && s.Seq > h.last
		h.records = append(h.records, place{s.Seq, int64(pos)})
		h.last = max(h.last, s.Seq)
		if s.Get(KeyAdopts) != nil {
			h.adopt(&s)
		}
		pos += n
	}
}

// adopt notes a record that was taken over from a person's edit.
func (h *history) adopt(s *Section) {
	digest, edits := s.Value(KeyAdopts), s.Value(KeyEdits)
	seq, isSeq := parseUint([]byte(edits))
	var o *origin
	switch {
	case edits == "":
		o = &origin{id: nameOf(s), name: digest, fields: map[string]string{}}
		h.hand = append(h.hand, o)
	case isSeq && h.edited[seq] != nil:
		o = h.edited[seq]
	case isSeq:
		if o = h.originOf(seq); o == nil {
			return
		}
		h.edited[seq] = o
	default:
		i := slices.IndexFunc(h.hand, func(o *origin) bool { return o.name == edits })
		if i < 0 {
			return
		}
		o = h.hand[i]
		h.forget(o)
	}
	o.digest = digest
	for i := range s.Fields {
		if k := string(s.Fields[i].Key); !ownKey(k) {
			o.fields[k] = s.Fields[i].String()
		}
	}
	if !isSeq {
		h.adopted[digest] = append(h.adopted[digest], o)
	}
}

// forget takes a hand-written section's last seen text out of the index.
func (h *history) forget(o *origin) {
	list := h.adopted[o.digest]
	if i := slices.Index(list, o); i >= 0 {
		h.adopted[o.digest] = slices.Delete(list, i, i+1)
	}
}

// originOf gives the record seq as it was written; nil if the journal has none.
func (h *history) originOf(seq uint64) *origin {
	s := h.section(seq)
	if s == nil {
		return nil
	}
	return &origin{id: nameOf(s), name: strconv.FormatUint(seq, 10), fields: fieldsOf(s)}
}

// section gives the journal's record seq, or nil.
func (h *history) section(seq uint64) *Section {
	off, ok := h.find(seq)
	if !ok {
		return nil
	}
	s := new(Section)
	if _, _, err := scanStrict(h.data[off:], s); err != nil {
		return nil
	}
	return s
}

// ownKey reports whether a key belongs to the engine: a person's edit cannot set it.
func ownKey(k string) bool { return k == KeyAdopts || k == KeyEdits || k == KeyBy }

func nameOf(s *Section) string { return string(s.Kind) + " " + string(s.ID) }

func fieldsOf(s *Section) map[string]string {
	m := make(map[string]string, len(s.Fields))
	for i := range s.Fields {
		if k := string(s.Fields[i].Key); !ownKey(k) {
			m[k] = s.Fields[i].String()
		}
	}
	return m
}

// A plan is what is to be done about one state of tasks.md.
type plan struct {
	missing  int64  // offset in the journal from which on the records are missing in tasks.md; -1 if none are
	inFile   int    // bytes of the record at missing that are in the file already: its end was cut off
	lost     int    // records that are missing
	end      int64  // size of the journal that the plan knows
	maxSeq   uint64 // highest seq in the file
	records  []Record
	notices  []Notice
	findings []*SyntaxError
}

// makePlan compares tasks.md with what the journal knows.
func makePlan(doc *Document, h *history, check func(*Section) error) *plan {
	p := planner{plan: &plan{missing: -1, end: h.end}, doc: doc, h: h, check: check}
	p.findMissing()
	for i := range doc.Sections {
		p.section(i, &doc.Sections[i])
	}
	p.written()
	return p.plan
}

type planner struct {
	*plan
	doc    *Document
	h      *history
	check  func(*Section) error
	byName map[string][]int // kind and id -> indexes of its sections; made when first asked for
	fresh  []freshSection   // sections without seq whose text was not seen before
}

type freshSection struct {
	index  int
	digest string
}

func (p *planner) finding(f *SyntaxError) {
	p.findings = append(p.findings, f)
	p.notices = append(p.notices, Notice{Finding: f, Text: f.Error()})
}

// findMissing looks whether the newest records of the journal are not in the
// file: then an editor saved a buffer that it had loaded before they were written.
func (p *planner) findMissing() {
	var newest uint64
	for i := range p.doc.Sections {
		seq := p.doc.Sections[i].Seq
		p.maxSeq = max(p.maxSeq, seq)
		if seq <= p.h.last {
			newest = max(newest, seq)
		}
	}
	p.missing = p.h.end
	for _, r := range slices.Backward(p.h.records) {
		if r.seq <= newest {
			break
		}
		p.lost++
		p.missing = min(p.missing, r.off)
	}
	if p.lost == 0 {
		p.missing = -1
	}
	p.findTorn(newest)
}

// findTorn looks at a record that is cut off at the end of the file. If its
// beginning is ours, the rest is put behind it: nothing is rewritten. All other
// findings are reported.
func (p *planner) findTorn(newest uint64) {
	from := bytes.LastIndex(p.doc.data, []byte("\n#")) + 1
	tail, line := p.doc.data[from:], 1+bytes.Count(p.doc.data[:from], []byte("\n"))
	ours := p.lost > 0 && newest < p.h.last && len(tail) > 0 && bytes.HasPrefix(p.h.data[p.missing:], tail)
	if ours {
		p.inFile = len(tail)
	}
	for _, f := range p.doc.Findings {
		if f.File = TasksName; !ours || f.Line < line {
			p.finding(f)
		}
	}
}

// overriddenBy gives the later section that names key for the same record, so
// that section i has no say about it; nil if there is none. Records that were
// taken over from section i itself (origin o) do not count, nor do, for a section
// that is new, others that people wrote: they are taken over after it.
func (p *planner) overriddenBy(i int, o *origin, key string) *Section {
	if p.byName == nil {
		p.byName = map[string][]int{}
		for j := range p.doc.Sections {
			name := nameOf(&p.doc.Sections[j])
			p.byName[name] = append(p.byName[name], j)
		}
	}
	for _, j := range slices.Backward(p.byName[nameOf(&p.doc.Sections[i])]) {
		if j <= i {
			return nil
		}
		s := &p.doc.Sections[j]
		ours := s.Value(KeyAdopts) == o.name || s.Value(KeyEdits) == o.name
		if o.name == "" {
			ours = s.Seq == 0
		}
		if !ours && s.Get(key) != nil {
			return s
		}
	}
	return nil
}

// section decides about one section of the file.
func (p *planner) section(i int, s *Section) {
	if p.inFile > 0 && s.Off >= int64(len(p.doc.data)-p.inFile) {
		return // the beginning of a record of ours
	}
	if s.Seq == 0 || s.Seq > p.h.last {
		digest := digestOf(s.Raw)
		if list := p.h.adopted[digest]; len(list) > 0 {
			p.h.adopted[digest] = list[1:] // the n-th section of equal text was adopted before
			return
		}
		p.fresh = append(p.fresh, freshSection{i, digest})
		return
	}
	off, ok := p.h.find(s.Seq)
	if !ok {
		return
	}
	if p.h.edited[s.Seq] == nil && bytes.HasPrefix(p.h.data[off:], s.Raw) {
		return // untouched: the common case, decided without a digest
	}
	p.editedRecord(i, s)
}

// editedRecord takes over what a person changed in a record that stint wrote.
func (p *planner) editedRecord(i int, s *Section) {
	o := p.h.edited[s.Seq]
	if o == nil {
		o = p.h.originOf(s.Seq)
	}
	if o == nil || o.id != nameOf(s) {
		p.finding(&SyntaxError{
			File: TasksName, Line: s.Line,
			Msg: fmt.Sprintf("seq %d belongs to another record; leave the seq line out of a section that you copy", s.Seq),
		})
		return
	}
	if digest := digestOf(s.Raw); digest != o.digest {
		p.adopt(i, s, o, digest)
	}
}

// isBelowAdoption reports whether section i stands below the record that took o
// over: then it was written later, and is no newer version of o.
func (p *planner) isBelowAdoption(i int, o *origin) bool {
	for j := range p.doc.Sections[:i] {
		s := &p.doc.Sections[j]
		if s.Seq > 0 && s.Value(KeyAdopts) == o.name && nameOf(s) == o.id {
			return true
		}
	}
	return false
}

// written takes over the sections without seq. One whose id has an adopted
// section that is gone from the file is a newer version of that one.
func (p *planner) written() {
	for _, f := range p.fresh {
		s := &p.doc.Sections[f.index]
		name := nameOf(s)
		var before *origin
		for _, o := range p.h.hand {
			if o.id == name && slices.Contains(p.h.adopted[o.digest], o) && !p.isBelowAdoption(f.index, o) {
				before = o
				break
			}
		}
		if before == nil {
			before = &origin{id: name}
		} else {
			p.h.forget(before)
		}
		p.adopt(f.index, s, before, f.digest)
	}
}

// adopt makes the record that takes over how section s differs from what was
// last seen of it.
func (p *planner) adopt(i int, s *Section, o *origin, digest string) {
	r := Record{Kind: s.Kind, ID: string(s.ID)}
	r.Add(KeyBy, ByHand).Add(KeyAdopts, digest).AddIf(KeyEdits, o.name)
	fields := fieldsOf(s)
	changed, real := 0, 0
	take := func(key, value string) {
		real++
		if later := p.overriddenBy(i, o, key); later != nil {
			p.notices = append(p.notices, Notice{Text: fmt.Sprintf("%s:%d: this %s has no effect: the section in line %d names it later", TasksName, s.Line, key, later.Line)})
			return
		}
		r.Add(key, value)
		changed++
	}
	for j := range s.Fields {
		key := string(s.Fields[j].Key)
		old, had := o.fields[key]
		if value, ok := fields[key]; ok && (!had || old != value) {
			take(key, value)
			delete(fields, key) // a key that stands twice counts once, with its last value
		}
	}
	for _, key := range sortedKeys(o.fields) {
		if _, still := fieldsOf(s)[key]; !still && o.fields[key] != "" {
			take(key, "")
		}
	}
	if o.name != "" && real == 0 {
		return // only blanks or line ends differ
	}
	if err := p.checked(&r, s); err != nil {
		p.finding(err)
		return
	}
	p.records = append(p.records, r)
	what := "written by hand"
	if o.name != "" {
		what = fmt.Sprintf("edited by hand, %d fields", changed)
	}
	p.notices = append(p.notices, Notice{Text: fmt.Sprintf("%s:%d: %s %s: %s", TasksName, s.Line, s.Kind, s.ID, what)})
}

// checked asks the reader of the fold whether it can take the record.
func (p *planner) checked(r *Record, s *Section) *SyntaxError {
	if p.check == nil {
		return nil
	}
	enc, err := Encode(r)
	if err == nil {
		err = p.check(enc)
	}
	if err == nil {
		return nil
	}
	line := s.Line
	var at interface{ FieldKey() string }
	if errors.As(err, &at) {
		if f := s.Get(at.FieldKey()); f != nil {
			line = s.LineOf(f)
		}
	}
	return &SyntaxError{File: TasksName, Line: line, Msg: err.Error()}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// reconcileAtStart takes over what was changed while no log was open.
func (l *Log) reconcileAtStart() error {
	same, err := l.tasks.endsWith(l.journal, l.edited)
	if same || err != nil {
		return err
	}
	snap, err := l.tasks.read()
	if err != nil {
		return err
	}
	p, err := l.planFor(snap)
	if err != nil {
		return err
	}
	_, err = l.carryOut(snap, p)
	return err
}

// planFor reads the journal and compares.
func (l *Log) planFor(snap snapshot) (*plan, error) {
	end := l.journal.durable.Load()
	data, err := durable.ReadFile(l.opts.FS, l.journal.path)
	if err != nil {
		return nil, err
	}
	data = data[:min(int64(len(data)), end)]
	doc := Parse(snap.data)
	if doc.Version > FormatVersion {
		return nil, newerFormat(l.tasks.path, doc.Version)
	}
	return makePlan(doc, newHistory(data), l.opts.Check), nil
}

// carryOut does what the plan says, on the log's goroutine (or before it
// began). It gives false if tasks.md has changed since the snapshot: then the
// plan is void.
func (l *Log) carryOut(snap snapshot, p *plan) (bool, error) {
	ok, err := l.putBack(snap, p)
	if !ok || err != nil {
		return ok, err
	}
	l.seq = max(l.seq, p.maxSeq)
	if len(p.records) == 0 {
		l.tell(p)
		return true, nil
	}
	u := &update{done: make(chan error, 1), f: func(tx *Tx) error {
		for i := range p.records {
			tx.Append(&p.records[i])
		}
		return nil
	}}
	if _, err := l.commit([]*update{u}); err != nil {
		return true, err
	}
	if err := <-u.done; err != nil { // the disk is full, say: the next look tries again
		l.tasks.setForeign()
		l.note(Notice{Text: fmt.Sprintf("%s: edits could not be taken over yet: %v", TasksName, err)})
		return true, nil
	}
	l.tell(p)
	return true, nil
}

// tell passes on what the plan found, each finding once as long as it lasts.
func (l *Log) tell(p *plan) {
	l.mu.Lock()
	before := l.findings
	l.findings = p.findings
	l.mu.Unlock()
	for _, n := range p.notices {
		known := n.Finding != nil && slices.ContainsFunc(before, func(f *SyntaxError) bool { return f.Error() == n.Finding.Error() })
		if !known {
			l.note(n)
		}
	}
}

// putBack appends to tasks.md what a stale save has dropped, and notes the file
// as seen. What was committed since the plan was made goes with it.
func (l *Log) putBack(snap snapshot, p *plan) (bool, error) {
	from := p.end
	if p.missing >= 0 {
		from = p.missing + int64(p.inFile)
	}
	var data []byte
	if from < l.journal.size {
		data = make([]byte, l.journal.size-from)
		if _, err := l.journal.file.ReadAt(data, from); err != nil {
			return false, err
		}
	}
	t := l.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	fi, err := t.fs.Stat(t.path)
	if err != nil || idOf(fi) != snap.id {
		return false, nil
	}
	t.markSeen(snap.id, snap.endsInN() || p.inFile > 0)
	if !hasText(data) {
		return true, nil
	}
	if err := t.write(data); err != nil {
		t.foreign = true
		return true, nil // the disk is full, say; it is tried again
	}
	if p.lost > 0 {
		p.notices = append([]Notice{{Text: fmt.Sprintf("%s: %d records were missing (an old buffer was saved?) and have been appended again", TasksName, p.lost)}}, p.notices...)
	}
	return true, nil
}

// rebuildIfLost writes the journal anew from tasks.md if there is none.
func (l *Log) rebuildIfLost() error {
	path := filepath.Join(l.opts.Dir, journalName)
	if _, err := l.opts.FS.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	snap, err := l.tasks.read()
	if err != nil {
		return err
	}
	doc := Parse(snap.data)
	if doc.Version > FormatVersion {
		return newerFormat(l.tasks.path, doc.Version)
	}
	out := []byte(VersionLine + "\n\n")
	known := map[uint64]bool{}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq == 0 || known[s.Seq] {
			continue
		}
		known[s.Seq] = true
		r := s.Record()
		if out, err = AppendRecord(out, &r); err != nil {
			return fmt.Errorf("%s:%d: %w", TasksName, s.Line, err)
		}
	}
	if len(known) > 0 {
		l.note(Notice{Text: fmt.Sprintf("there was no journal: it was rebuilt with %d records from %s", len(known), TasksName)})
	}
	return durable.WriteFile(l.opts.FS, path, out)
}
