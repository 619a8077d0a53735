package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/ledger/durable"
)

// carry is what came of carrying a plan out.
type carry struct {
	done      bool  // false: tasks.md has changed since it was read, and must be read again
	committed bool  // the plan's records are in the journal
	trouble   error // what is to be tried again later
}

// reconcileAtStart takes over what was changed while no log was open.
func (l *Log) reconcileAtStart() error {
	same, err := l.tasks.endsWith(l.journal, l.edited)
	l.tasks.newest = l.seq
	if same && err == nil {
		return l.nothingGone()
	}
	if err != nil {
		return err
	}
	l.rested(context.Background()) // an editor may be at work just now
	ctx := context.Background()
	var snap snapshot
	var p *plan
	for range patience {
		if snap, p, err = l.planAtStart(ctx); err != nil {
			return err
		}
		age := time.Since(time.Unix(0, snap.id.mtime))
		if p.inFile > 0 || age < 0 || l.stays(ctx, snap.id, l.tasks.restOf(snap)-settle-age) { // what a crash has cut off, nobody goes on writing
			break
		}
	}
	c := carry{trouble: l.secure(p)}
	if c.trouble == nil {
		c, err = l.carryOut(snap, p)
	}
	if c.trouble != nil {
		l.tasks.setForeign()
		l.note(Notice{Text: fmt.Sprintf("%s was not taken over: %v", TasksName, c.trouble)})
	}
	return err
}

// planAtStart reads tasks.md, gives the journal back what it has lost, and compares.
func (l *Log) planAtStart(ctx context.Context) (snap snapshot, p *plan, err error) {
	snap, err = l.tasks.read(ctx)
	if err == nil && bytes.HasSuffix(snap.data, []byte{0}) {
		snap, err = l.tasks.cutVoid(snap)
	}
	if err != nil {
		return snap, nil, err
	}
	doc, err := l.parse(ctx, snap)
	if err == nil {
		err = l.restoreMissing(doc)
	}
	if err == nil {
		p, err = l.planFor(ctx, snap, doc, false)
	}
	return snap, p, err
}

// nothingGone says that no section is missing: those of records that were deleted
// earlier may be there again.
func (l *Log) nothingGone() error {
	if l.opts.OnDelete == nil {
		return nil
	}
	_, _, err := l.commitPlan(&plan{gone: map[string]bool{}}) // where there is no room, the next look asks again
	return err
}

// parse reads the sections of a state of tasks.md.
func (l *Log) parse(ctx context.Context, snap snapshot) (*Document, error) {
	doc, err := parseWhile(ctx, snap.data)
	if err == nil && doc.Version > FormatVersion {
		err = newerFormat(l.tasks.path, doc.Version)
	}
	return doc, err
}

// planFor reads the journal and compares. Whoever calls it holds looking, but at start.
func (l *Log) planFor(ctx context.Context, snap snapshot, doc *Document, accept bool) (*plan, error) {
	data, file, err := l.journal.read()
	if err != nil {
		return nil, err
	}
	t := l.opts.terms()
	t.held, t.accept = l.held, accept
	l.tasks.mu.Lock()
	if l.tasks.seen != snap.id {
		l.byHand = time.Unix(0, snap.id.mtime)
	}
	t.seen, t.savedAll, t.raced = l.tasks.newest, l.tasks.savedAll, l.tasks.racedAppend
	l.tasks.mu.Unlock()
	p, err := makePlan(ctx, doc, newHistory(data), t)
	if err != nil {
		return nil, err
	}
	p.file = file
	return p, nil
}

// secure makes the save durable that the plan takes over. It is slow, and no
// business of the log's goroutine.
func (l *Log) secure(p *plan) error {
	if len(p.records)+len(p.gone) == 0 {
		return nil
	}
	return l.tasks.secure()
}

// terms returns what a plan needs to know beside the files and the plan before.
func (o *Options) terms() terms {
	return terms{opts: o, seen: math.MaxUint64, merged: sync.OnceValues(func() (map[string]int, error) { return adoptedBefore(o.FS, o.Dir) })}
}

// carryOut does what the plan says, on the log's goroutine (or before it
// began). What was taken over goes to the journal first, so that nothing is taken
// over twice if the power fails in between. The error means that the disk failed.
func (l *Log) carryOut(snap snapshot, p *plan) (carry, error) {
	if !l.tasks.isStill(snap.id) || p.file != l.journal.file || !l.stillFits(p) {
		return carry{}, nil
	}
	l.seq = max(l.seq, p.maxSeq)
	l.tasks.setForeign() // what is committed now goes to tasks.md behind what is put back
	committed, trouble, err := l.commitPlan(p)
	if trouble != nil || err != nil {
		return carry{done: true, trouble: trouble}, err
	}
	c := carry{committed: committed}
	if p.file == l.journal.file { // else it was put back, and what the file lacks is found anew
		err = l.putBack(snap, p, &c)
	}
	if err == nil && (c.done || c.committed) {
		l.tell(p)
	}
	return c, err
}

// stillFits asks once more whether the fold can take the records, if there were
// others since the plan was made.
func (l *Log) stillFits(p *plan) bool {
	check, _ := l.opts.begin()
	if l.journal.size == p.end || check == nil {
		return true
	}
	list := make([]*Section, len(p.records))
	for i := range p.records {
		enc, err := Encode(&p.records[i])
		if err != nil || check(enc) != nil {
			return false
		}
		list[i] = enc
	}
	return l.opts.CheckBatch == nil || len(l.opts.CheckBatch(list)) == 0
}

// commitPlan makes the plan's records durable and applies them.
func (l *Log) commitPlan(p *plan) (committed bool, trouble, err error) {
	ask := p.gone != nil && (l.gone == nil || !maps.Equal(p.gone, l.gone))
	if len(p.records) == 0 && !ask {
		return false, nil, nil
	}
	var deleted []Record
	u := l.newUpdate(func(tx *Tx) error {
		for i := range p.records {
			tx.Append(&p.records[i])
		}
		if ask {
			deleted = l.opts.OnDelete(p.gone)
		}
		for i := range deleted {
			tx.Append(&deleted[i])
		}
		return nil
	})
	if _, err := l.commit([]*update{u}); err != nil {
		return false, nil, err
	}
	if err := <-u.done; err != nil { // the disk is full, say
		return false, err, nil
	}
	if ask {
		l.gone = p.gone
		p.deleted(deleted)
	}
	return true, nil, nil
}

// deleted notes what became of records that a person has deleted.
func (p *plan) deleted(records []Record) {
	p.records = append(p.records, records...)
	for i := range records {
		if r := &records[i]; r.Kind != KindControl {
			p.notices = append(p.notices, Notice{Text: fmt.Sprintf("%s: %s %s: deleted by hand", TasksName, r.Kind, r.ID)})
		}
	}
}

// sort puts the findings in the order of the file.
func (p *plan) sort() {
	slices.SortStableFunc(p.findings, func(a, b *SyntaxError) int { return cmp.Compare(a.Line, b.Line) })
}

// tell passes on what the plan found, each finding once as long as it lasts.
func (l *Log) tell(p *plan) {
	p.sort()
	l.mu.Lock()
	before := l.findings
	l.findings = p.findings
	l.mu.Unlock()
	if p.old.count > 0 && p.old.count != l.old {
		p.notices = append(p.notices, Notice{Text: fmt.Sprintf("%s:%d: %s from before the compaction; edits in them have no effect",
			TasksName, p.old.line, plural(p.old.count, "section is", "sections are"))})
	}
	l.held, l.old = p.held, p.old.count
	told := map[string]bool{}
	for _, f := range before {
		told[f.Error()] = true
	}
	for _, n := range p.notices {
		if n.Finding == nil || !told[n.Finding.Error()] {
			l.note(n)
		}
	}
}

// putBack appends to tasks.md what a stale save has dropped and what was
// committed since the plan was made, and notes the file as seen.
func (l *Log) putBack(snap snapshot, p *plan, c *carry) error {
	from := p.end
	if p.missing >= 0 {
		from = p.missing + int64(p.inFile)
	}
	var data []byte
	if from < l.journal.size {
		data = make([]byte, l.journal.size-from)
		if _, err := l.journal.file.ReadAt(data, from); err != nil {
			return err
		}
	}
	if !hasText(data) {
		data = nil
	}
	if c.done, c.trouble = l.tasks.appendTo(snap, p.inFile > 0, data, p.newest+1, l.seq); c.done && c.trouble == nil && p.dropped > 0 {
		p.notices = append([]Notice{{Text: fmt.Sprintf("%s: %d records were missing (an old buffer was saved?) and have been appended again; to delete the task added last, save the file once as it is now, and then without its section", TasksName, p.dropped)}}, p.notices...)
	}
	return nil
}

// rebuildIfLost writes the journal anew from tasks.md if there is none, or one in
// which nothing was ever written: a person has put his tasks.md into a new directory.
func (l *Log) rebuildIfLost() error {
	path := filepath.Join(l.opts.Dir, journalName)
	fi, err := l.opts.FS.Stat(path)
	empty := err == nil && fi.Size() <= int64(len(emptyJournal))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && !empty {
		return err
	}
	snap, err := l.tasks.read(context.Background())
	var bad *FileError
	if errors.As(err, &bad) {
		bad.Lost = !empty
	}
	if err != nil {
		return err
	}
	doc := Parse(snap.data)
	if doc.Version > FormatVersion {
		return newerFormat(l.tasks.path, doc.Version)
	}
	doc.Sections = slices.DeleteFunc(doc.Sections, func(s Section) bool { return s.Seq > maxSeq-maxLeap }) // see isTyped
	out, known, err := journalOf(doc)
	if err != nil {
		return err
	}
	if empty && len(known) == 0 {
		return nil
	}
	if len(known) > 0 {
		l.note(Notice{Text: fmt.Sprintf("there was no journal: it was rebuilt with %d records from %s", len(known), TasksName)})
	}
	return durable.WriteFile(l.opts.FS, path, out)
}

// copiesIn returns the digests of sections that a person copied: their seq is
// another record's.
func copiesIn(doc *Document) map[string]bool {
	copies := map[string]bool{}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Get(KeyAdopts) != nil && (s.Get(KeyCopies) != nil || copies[firstOf(s.Value(KeyEdits))]) {
			copies[s.Value(KeyAdopts)] = true
		}
	}
	return copies
}

// firstOf returns the digest in the name of an adopted section.
func firstOf(name string) string {
	digest, _, _ := strings.Cut(name, ".")
	return digest
}

func nameOfRecord(r *Record) string { return string(r.Kind) + " " + r.ID }
