package journal

import (
	"bytes"
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

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/reconcile"
)

// planned is a plan with the journal that it was made of: in another one records have
// other places.
type planned struct {
	*reconcile.Plan
	file durable.File
}

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
	var p *planned
	for range patience {
		if snap, p, err = l.planAtStart(ctx); err != nil {
			return err
		}
		age := time.Since(time.Unix(0, snap.id.mtime))
		if p.InFile > 0 || age < 0 || l.stays(ctx, snap.id, l.tasks.restOf(snap)-settle-age) { // what a crash has cut off, nobody goes on writing
			break
		}
	}
	c := carry{trouble: l.secure(p)}
	if c.trouble == nil {
		c, err = l.carryOut(snap, p)
	}
	if c.trouble != nil {
		l.tasks.setForeign()
		l.note(ledger.Notice{Text: fmt.Sprintf("%s was not taken over: %v", ledger.TasksName, c.trouble)})
	}
	return err
}

// planAtStart reads tasks.md, gives the journal back what it has lost, and compares.
func (l *Log) planAtStart(ctx context.Context) (snap snapshot, p *planned, err error) {
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
	_, _, err := l.commitPlan(&planned{Plan: &reconcile.Plan{Gone: map[string]bool{}}}) // where there is no room, the next look asks again
	return err
}

// parse reads the sections of a state of tasks.md.
func (l *Log) parse(ctx context.Context, snap snapshot) (*ledger.Document, error) {
	doc, err := ledger.ParseContext(ctx, snap.data)
	if err == nil && doc.Version > ledger.FormatVersion {
		err = ledger.NewerFormat(l.tasks.path, doc.Version)
	}
	return doc, err
}

// planFor reads the journal and compares. Whoever calls it holds looking, but at start.
func (l *Log) planFor(ctx context.Context, snap snapshot, doc *ledger.Document, accept bool) (*planned, error) {
	data, file, err := l.journal.read()
	if err != nil {
		return nil, err
	}
	t := l.opts.terms()
	t.Held, t.Accept = l.held, accept
	l.tasks.mu.Lock()
	if l.tasks.seen != snap.id {
		l.byHand = time.Unix(0, snap.id.mtime)
	}
	t.Seen, t.SavedAll, t.Raced = l.tasks.newest, l.tasks.savedAll, l.tasks.racedAppend
	l.tasks.mu.Unlock()
	p, err := reconcile.Compare(ctx, doc, data, t)
	if err != nil {
		return nil, err
	}
	return &planned{p, file}, nil
}

// secure makes the save durable that the plan takes over. It is slow, and no
// business of the log's goroutine.
func (l *Log) secure(p *planned) error {
	if len(p.Records)+len(p.Gone) == 0 {
		return nil
	}
	return l.tasks.secure()
}

// terms returns what a plan needs to know beside the files and the plan before.
func (o *Options) terms() reconcile.Input {
	return reconcile.Input{Rules: o.Rules, Now: o.now(), Deletes: o.OnDelete != nil, Seen: math.MaxUint64, Merged: sync.OnceValues(func() (map[string]int, error) { return adoptedBefore(o.FS, o.Dir) })}
}

// carryOut does what the plan says, on the log's goroutine (or before it
// began). What was taken over goes to the journal first, so that nothing is taken
// over twice if the power fails in between. The error means that the disk failed.
func (l *Log) carryOut(snap snapshot, p *planned) (carry, error) {
	if !l.tasks.isStill(snap.id) || p.file != l.journal.file || l.journal.size != p.End && !p.StillFits(&l.opts.Rules) {
		return carry{}, nil
	}
	l.seq = max(l.seq, p.MaxSeq)
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

// commitPlan makes the plan's records durable and applies them.
func (l *Log) commitPlan(p *planned) (committed bool, trouble, err error) {
	ask := p.Gone != nil && (l.gone == nil || !maps.Equal(p.Gone, l.gone))
	if len(p.Records) == 0 && !ask {
		return false, nil, nil
	}
	var deleted []ledger.Record
	u := l.newUpdate(func(tx *ledger.Tx) error {
		for i := range p.Records {
			tx.Append(&p.Records[i])
		}
		if ask {
			deleted = l.opts.OnDelete(p.Gone)
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
		l.gone = p.Gone
		p.Deleted(deleted)
	}
	return true, nil, nil
}

// tell passes on what the plan found, each finding once as long as it lasts.
func (l *Log) tell(p *planned) {
	p.Sort()
	l.mu.Lock()
	before := l.findings
	l.findings = p.Findings
	l.mu.Unlock()
	if p.Old > 0 && p.Old != l.old {
		p.Notices = append(p.Notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: %s from before the compaction; edits in them have no effect",
			ledger.TasksName, p.OldLine, ledger.Plural(p.Old, "section is", "sections are"))})
	}
	l.held, l.old = p.Held, p.Old
	told := map[string]bool{}
	for _, f := range before {
		told[f.Error()] = true
	}
	for _, n := range p.Notices {
		if n.Finding == nil || !told[n.Finding.Error()] {
			l.note(n)
		}
	}
}

// putBack appends to tasks.md what a stale save has dropped and what was
// committed since the plan was made, and notes the file as seen.
func (l *Log) putBack(snap snapshot, p *planned, c *carry) error {
	from := p.End
	if p.Missing >= 0 {
		from = p.Missing + int64(p.InFile)
	}
	var data []byte
	if from < l.journal.size {
		data = make([]byte, l.journal.size-from)
		if _, err := l.journal.file.ReadAt(data, from); err != nil {
			return err
		}
	}
	if !ledger.HasText(data) {
		data = nil
	}
	if c.done, c.trouble = l.tasks.appendTo(snap, p.InFile > 0, data, p.Newest+1, l.seq); c.done && c.trouble == nil && p.Dropped > 0 {
		p.Notices = append([]ledger.Notice{{Text: fmt.Sprintf("%s: %d records were missing (an old buffer was saved?) and have been appended again; to delete the task added last, save the file once as it is now, and then without its section", ledger.TasksName, p.Dropped)}}, p.Notices...)
	}
	return nil
}

// rebuildIfLost writes the journal anew from tasks.md if there is none, or one in
// which nothing was ever written: a person has put his tasks.md into a new directory.
func (l *Log) rebuildIfLost() error {
	path := filepath.Join(l.opts.Dir, ledger.JournalName)
	fi, err := l.opts.FS.Stat(path)
	empty := err == nil && fi.Size() <= int64(len(ledger.EmptyJournal))
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
	doc := ledger.Parse(snap.data)
	if doc.Version > ledger.FormatVersion {
		return ledger.NewerFormat(l.tasks.path, doc.Version)
	}
	doc.Sections = slices.DeleteFunc(doc.Sections, func(s ledger.Section) bool { return s.Seq > ledger.MaxSeq-ledger.MaxLeap }) // see isTyped
	out, known, err := journalOf(doc)
	if err != nil {
		return err
	}
	if empty && len(known) == 0 {
		return nil
	}
	if len(known) > 0 {
		l.note(ledger.Notice{Text: fmt.Sprintf("there was no journal: it was rebuilt with %d records from %s", len(known), ledger.TasksName)})
	}
	return durable.WriteFile(l.opts.FS, path, out)
}

// copiesIn returns the digests of sections that a person copied: their seq is
// another record's.
func copiesIn(doc *ledger.Document) map[string]bool {
	copies := map[string]bool{}
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Get(ledger.KeyAdopts) != nil && (s.Get(ledger.KeyCopies) != nil || copies[firstOf(s.Value(ledger.KeyEdits))]) {
			copies[s.Value(ledger.KeyAdopts)] = true
		}
	}
	return copies
}

// firstOf returns the digest in the name of an adopted section.
func firstOf(name string) string {
	digest, _, _ := strings.Cut(name, ".")
	return digest
}
