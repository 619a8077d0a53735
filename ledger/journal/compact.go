package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/mark"
	"stint/ledger/reconcile"
	"stint/ledger/salvage"
	"stint/ledger/tasksfile"
)

// A RefusedError says why a log was not compacted. Nothing was changed.
type RefusedError struct {
	Why  string
	Hint string // what to do; "" if it is to be tried again later
}

func (e *RefusedError) Error() string {
	if e.Hint == "" {
		return e.Why
	}
	return e.Why + "; " + e.Hint
}

func notNow(hint, format string, args ...any) error {
	return &RefusedError{Why: fmt.Sprintf(format, args...), Hint: hint}
}

// errAgain says that something changed in the moment before a compaction.
var errAgain = errors.New("changed meanwhile")

const (
	compactTries = 5
	followWait   = 5 * time.Second // for followers that have not read everything
)

// Compact writes both files anew with the records that the fold wants to keep, and moves everything else into
// the archive. plan is called on the log's goroutine, where nothing changes meanwhile, and perhaps more than
// once; it must not call the log but for SectionAt. The fold is then made anew ([Options.OnRefoldStart]).
//
// It is refused, with a *RefusedError, while something in tasks.md waits for its repair or a follower has not read everything.
// Any other error is plan's or the disk's; only when the disk failed at the last step has the log stopped ([Log.Err]).
//
// The rename of the new journal is the moment at which the compaction is done. What the archive has of one that was cut off
// before, no journal's mark names; a tasks.md that was not written anew after it is a buffer from before the compaction.
func (l *Log) Compact(ctx context.Context, plan func() (ledger.Keep, error)) (ledger.CompactReport, error) {
	for range compactTries {
		if err := l.readyToCompact(ctx); err != nil {
			return ledger.CompactReport{}, err
		}
		c := &compactor{log: l, ctx: ctx, plan: plan}
		l.looking.Lock() // a plan that was made of the old journal must not be carried out afterwards
		err := l.aside(c.run)
		l.looking.Unlock()
		if err != nil {
			return ledger.CompactReport{}, err
		}
		if !errors.Is(c.refused, errAgain) {
			return c.report, c.refused
		}
	}
	return ledger.CompactReport{}, notNow("try again", "%s is being changed all the time", l.opts.Files.Ledger())
}

// readyToCompact takes over what people changed, and waits for the followers.
func (l *Log) readyToCompact(ctx context.Context) error {
	rest, stop := l.untilRest(ctx)
	defer stop()
	l.tasks.DoubtAppended()
	if _, err := l.reconcile(ctx, rest, false, false); err != nil { // it waits for an editor that is at work
		return err
	}
	l.looking.Lock()
	quarantined := l.quarantined
	l.looking.Unlock()
	if quarantined > 0 {
		return notNow("stint edit --accept, or undo the change", "%d sections of %s are quarantined because a formatter seems to have changed them", quarantined, l.opts.Files.Ledger())
	}
	size := l.journal.durable.Load()
	read, cancel := context.WithTimeoutCause(ctx, followWait, notNow("", "a reader of the journal has not read everything yet; what it misses must not be moved away"))
	defer cancel()
	for l.anyBehind(size) {
		select {
		case <-read.Done():
			return context.Cause(read)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (l *Log) anyBehind(size int64) bool {
	for _, f := range l.followers() {
		if f.IsBehind(size) {
			return true
		}
	}
	return false
}

// A compactor runs one compaction, on the log's goroutine.
type compactor struct {
	log  *Log
	ctx  context.Context
	plan func() (ledger.Keep, error)

	report  ledger.CompactReport
	refused error

	data    []byte             // the old journal
	old     []byte             // the part of it that goes to the archive
	snap    tasksfile.Snapshot // tasks.md
	doc     *ledger.Document
	keep    ledger.Keep
	at      time.Time
	texts   [][]byte // the new records, the mark first
	journal []byte
	tasks   []byte
}

// run is the whole of it. An error means that the disk failed at a moment when nobody knows what is there.
func (c *compactor) run() error {
	c.refused = c.prepare()
	if c.refused != nil || c.keep.Dry || c.report.Archive == "" {
		return nil
	}
	if err := c.archiveAll(); err != nil {
		c.refused = fmt.Errorf("nothing was compacted: the archive cannot be written: %w", err)
		return nil
	}
	l, tmp := c.log, c.log.journal.path+".new"
	file, err := durable.WriteNew(l.opts.FS, tmp, c.journal, durable.FileMode)
	if err != nil {
		c.refused = fmt.Errorf("nothing was compacted: %w", err)
		return nil
	}
	if !l.tasks.Is(c.snap.ID) { // what was saved meanwhile would have no effect
		c.refused = errors.Join(errAgain, file.Close(), durable.Drop(l.opts.FS, tmp))
		return nil
	}
	if err := l.opts.FS.Rename(tmp, l.journal.path); err != nil {
		now, serr := durable.IDAt(l.opts.FS, l.journal.path)
		if serr == nil && l.journal.is(now) {
			c.refused = errors.Join(fmt.Errorf("nothing was compacted: %w", err), file.Close(), durable.Drop(l.opts.FS, tmp))
			return nil
		}
		return errors.Join(err, serr, file.Close())
	}
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return errors.Join(fmt.Errorf("the new journal may be gone after a power cut: %w", err), file.Close())
	}
	var damage error
	err = l.refold(file, c.journal, func(e *ledger.SyntaxError) { damage = errors.Join(damage, e) })
	if err = errors.Join(err, damage); err != nil {
		return err
	}
	l.gone, l.quarantined, l.old = map[string]bool{}, 0, 0
	// The journal is compacted already, so nothing that goes wrong here loses anything: tasks.md is then a buffer from before
	// the compaction, and what a person has saved in this moment is taken over by the next look.
	_, records, _ := ledger.CutLine(c.journal, 0)
	if err := l.tasks.Swap(c.snap, c.tasks, l.seq, tasksfile.Solid(c.tasks)-tasksfile.Solid(c.journal[records:])); err != nil && !errors.Is(err, tasksfile.ErrChanged) {
		l.note(ledger.Notice{Text: fmt.Sprintf("%s could not be written anew after the compaction (%v); the merged records are appended to it instead", l.opts.Files.Ledger(), err)})
	}
	return nil
}

// prepare makes everything that is to be written, and refuses if that cannot be.
func (c *compactor) prepare() error {
	l := c.log
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if l.tasks.Changed() || l.anyBehind(l.journal.size) {
		return errAgain
	}
	var err error
	if c.snap, err = l.tasks.Read(c.ctx); err != nil {
		return err
	}
	if c.data, _, err = l.journal.read(); err != nil {
		return err
	}
	c.doc = ledger.Parse(c.snap.Data)
	for _, f := range c.doc.Findings {
		f.File = l.opts.Files.Ledger()
	}
	if list := append(l.Findings(), c.doc.Findings...); len(list) > 0 {
		return notNow("repair it first: stint fsck", "%v", list[0])
	}
	if l.tasks.Changed() || !l.tasks.Is(c.snap.ID) {
		return errAgain
	}
	if c.keep, err = c.plan(); err != nil {
		return err
	}
	if c.keep.Quiet > 0 && l.opts.now().Sub(l.byHand) < c.keep.Quiet {
		return notNow("", "%s was saved by another hand less than %s ago", l.opts.Files.Ledger(), c.keep.Quiet)
	}
	c.report = ledger.CompactReport{Before: l.journal.size, After: l.journal.size, Merged: len(c.keep.Records)}
	m, end := mark.Of(c.data)
	isMark := end > 0
	if !isMark {
		_, end, _ = ledger.CutLine(c.data, 0)
	}
	c.old = c.data[end:]
	if next := m.Seq; isMark { // what the compaction before has merged is in the archive already
		c.old = nil
		for _, p := range ledger.Pieces(c.data[end:]) {
			if next++; p.Seq != next || next > m.Seq+uint64(m.Merged) {
				c.old = c.data[end+p.Off:]
				break
			}
		}
	}
	if !ledger.HasText(c.old) && len(c.keep.Out) == 0 {
		return nil
	}
	c.at = l.opts.now()
	if err := c.encode(); err != nil {
		return err
	}
	c.report.After, c.report.Archived, c.report.Archive = int64(len(c.journal)), len(c.keep.Out), l.opts.Files.Archive(c.at)
	c.tasks = rewrite(c.doc, c.keep.Records, c.texts)
	return c.verify()
}

// encode makes the new records and the new journal of them.
func (c *compactor) encode() error {
	begin := mark.Record(c.log.seq, len(c.keep.Records), c.log.opts.Files.Archive(c.at), c.at)
	c.journal = []byte(ledger.EmptyJournal)
	for i, r := range slices.Concat([]ledger.Record{begin}, c.keep.Records) {
		r.Seq = begin.Seq + uint64(i)
		from := len(c.journal)
		var err error
		if c.journal, err = ledger.AppendRecord(c.journal, &r); err != nil {
			return fmt.Errorf("merge %s %s: %w", r.Kind, r.ID, err)
		}
		c.texts = append(c.texts, c.journal[from:len(c.journal):len(c.journal)])
	}
	return nil
}

// verify parses what tasks.md is to become: it must have just the records of the new journal.
func (c *compactor) verify() error {
	doc := ledger.Parse(c.tasks)
	for _, f := range doc.Findings {
		return notNow("repair it first: stint fsck", "%s cannot be written anew without touching your text: line %d of it would read: %s", c.log.opts.Files.Ledger(), f.Line, f.Msg)
	}
	same := len(doc.Sections) == len(c.texts)
	for i := 0; same && i < len(c.texts); i++ {
		same = bytes.Equal(bytes.TrimSpace(doc.Sections[i].Raw), bytes.TrimSpace(c.texts[i]))
	}
	if !same {
		return notNow("repair it first: stint fsck", "%s cannot be written anew without touching your text: it would have %d records, not %d", c.log.opts.Files.Ledger(), len(doc.Sections), len(c.texts))
	}
	return nil
}

// rewrite returns what tasks.md becomes: the text outside of sections as it stands, and the merged records in the places where the
// sections of their tasks began. The first of texts is the mark; the others belong to records. Places are filled in the order of
// the records, so that the order of the file is that of the journal; the records for which there is no place stand at the end.
func rewrite(doc *ledger.Document, records []ledger.Record, texts [][]byte) []byte {
	stays := map[string]bool{} // tasks that have no place yet
	for i := range records {
		stays[records[i].Name()] = records[i].Kind != ledger.KindControl
	}
	var out []byte
	put := func(n int) {
		for _, text := range texts[:n] {
			if len(out) > 0 && out[len(out)-1] != '\n' {
				out = append(out, '\n')
			}
			out = append(out, text...)
		}
		texts = texts[n:]
	}
	pos, next := 0, 2 // the mark goes with the first one
	for i := range doc.Sections {
		s := &doc.Sections[i]
		out = append(out, doc.Data[pos:s.Off]...)
		if name := s.Name(); stays[name] {
			put(next)
			stays[name], next = false, 1
		}
		out = append(out, s.Text()...)
		pos = int(s.Off) + len(s.Raw)
		if line, next, ok := ledger.CutLine(doc.Data, pos); s.Seq > 0 && ok && !ledger.HasText(line) {
			pos = next // stint writes an empty line behind a record
		}
	}
	out = append(out, doc.Data[pos:]...)
	put(len(texts))
	return bytes.TrimSuffix(out, []byte("\n")) // it stands before what is appended
}

// archiveAll writes what is gone into the archive, and then into its index what is needed of that every day,
// all of it durable. An error has changed nothing that counts.
func (c *compactor) archiveAll() error {
	l, fsys := c.log, c.log.opts.FS
	dir := filepath.Join(l.opts.Dir, archive.Dir)
	if err := durable.MkdirAll(fsys, dir); err != nil {
		return err
	}
	entries, indexEnd := []ledger.ArchiveEntry(nil), l.indexEnd
	if fi, err := fsys.Stat(filepath.Join(dir, l.opts.Files.Index())); err != nil || fi.Size() < indexEnd || indexEnd == 0 { // it is not whole, and is written anew
		if entries, indexEnd, err = archive.Load(fsys, l.opts.Dir, l.opts.Files); err != nil {
			return err
		}
	}
	file := filepath.Join(dir, c.report.Archive)
	end, data := int64(0), []byte(ledger.VersionLine+"\n\n")
	switch fi, err := fsys.Stat(file); {
	case err == nil && fi.Size() > 0:
		end, data = fi.Size(), []byte("\n") // a crash may have cut the last line off
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	data = append(append(data, bytes.TrimLeft(c.old, "\n")...), '\n')
	for _, m := range c.keep.Out {
		m.Record.Seq = l.seq + 1
		m.Record.Add(ledger.KeyArchived, ledger.Stamp(c.at))
		m.Entry.File, m.Entry.Off = c.report.Archive, end+int64(len(data))
		entries = append(entries, m.Entry)
		var err error
		if data, err = ledger.AppendRecord(data, &m.Record); err != nil {
			return fmt.Errorf("%s %s: %w", m.Record.Kind, m.Record.ID, err)
		}
	}
	if err := archive.WriteBehind(fsys, file, end, data); err != nil {
		return err
	}
	if err := archive.WriteIndex(fsys, l.opts.Dir, l.opts.Files, l.seq, indexEnd, entries); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// refold goes on with another file that has the journal's name, and makes the fold anew
// from data, which was written there, while nobody can look. Damage that stays goes to report.
func (l *Log) refold(file durable.File, data []byte, report func(*ledger.SyntaxError)) (err error) {
	entries, end, err := archive.Load(l.opts.FS, l.opts.Dir, l.opts.Files)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.mu.Lock()
	l.damage = nil
	l.mu.Unlock()
	for _, f := range ledger.CheckJournal(data, func(*ledger.Section) bool { return true }) {
		if f.File = l.journal.name; f.Torn == 0 {
			report(f)
		}
	}
	l.opts.Locker.Lock()
	defer l.opts.Locker.Unlock()
	l.journal.mu.Lock()
	old := l.journal.file
	l.journal.file = file
	l.journal.mu.Unlock()
	err = old.Close() // whatever was only in that file is in data
	l.opts.OnRefoldStart()
	l.giveArchive(entries, end)
	l.edited, l.stale, l.lacks, l.known, l.recent = false, false, salvage.Gaps{}, reconcile.Known{}, recent{}
	l.journal.near[0].Store(&window{file: file, data: data}) // another hand may change the file meanwhile
	ledger.EachRecord(data, func(s *ledger.Section) {        // what is left of a change is all that there is of it
		l.seq = max(l.seq, s.Seq) // numbers are not given twice, though their records may be lost
		_ = l.apply(s)
	})
	l.journal.near[0].Store(nil)
	l.journal.setSize(int64(len(data)))
	l.recent.add(data[max(0, len(data)-maxRecent):])
	l.opts.OnRefoldEnd()
	for _, f := range l.followers() {
		f.Replaced()
	}
	return err
}
