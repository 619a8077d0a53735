package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/follow"
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
	nearEnd      = 64 << 10        // bytes of new records that the last step is left with, unless they come too fast
	catchUps     = 50
)

// compactions has one in it while any log of this process is compacted: each needs memory, and sets how often it is collected.
var compactions = make(chan struct{}, 1)

// A Compaction says how a log is compacted.
type Compaction struct {
	Dry bool // only say what would be done
	// Quiet is for how long nobody else must have saved tasks.md: who did may save it once more from the same buffer.
	Quiet time.Duration

	// New returns an empty fold, which nobody else sees. It reads older records by read.
	New func(read Reader) Fold
	// Plan says what is to be kept of a fold, and calls out with what goes to the archive.
	Plan func(fold Fold, out func(ledger.Moved) error) (ledger.Keep, error)
	// Take makes a fold the one that Apply feeds. Locker is held.
	Take func(fold Fold)
}

// A Fold is what records make.
type Fold interface {
	// Archive notes a record that was moved to the archive.
	Archive(e ledger.ArchiveEntry)
	// Apply folds a record. The section is valid during the call.
	Apply(s *ledger.Section) error
}

// A Reader reads a record of the journal by its offset.
type Reader interface {
	SectionAt(off int64) (*ledger.Section, error)
}

// Compact writes both files anew with the records that the plan keeps, and moves the others into the archive. All of it is made
// beside the log, of the journal as it was at one moment, the cut, from which on numbers are set aside for the merged records. At
// the end the log stops for a moment, while what was written since is put behind them and the new journal gets its name. The fold
// is then the one that was made of that.
//
// It is refused, with a *RefusedError, while something in tasks.md waits for its repair or a follower has not read everything. If
// another hand changes tasks.md meanwhile, that is taken over, and the compaction begins anew. Any other error is the plan's or
// the disk's; only when the disk failed at the last step has the log stopped ([Log.Err]).
//
// The rename of the new journal is the moment at which the compaction is done. What the archive has of one that was cut off
// before, no journal's mark names; a tasks.md that was not written anew after it is a buffer from before the compaction.
func (l *Log) Compact(ctx context.Context, how Compaction) (ledger.CompactReport, error) {
	select {
	case compactions <- struct{}{}:
		defer func() { <-compactions }()
	case <-ctx.Done():
		return ledger.CompactReport{}, context.Cause(ctx)
	}
	l.compacting.Lock() // Close waits for it
	defer l.compacting.Unlock()
	defer debug.SetGCPercent(debug.SetGCPercent(80)) // for a moment there is a second fold, and much that is soon forgotten
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(l.ctx, func() { stop(ErrClosed) })()
	for range compactTries {
		if err := l.readyToCompact(ctx); err != nil {
			return ledger.CompactReport{}, err
		}
		c := &compactor{log: l, ctx: ctx, how: how}
		err := c.run()
		if !errors.Is(err, errAgain) {
			return c.report, err
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
	return l.awaitFollowers(ctx, l.journal.durable.Load())
}

// awaitFollowers waits until all have read the journal up to size.
func (l *Log) awaitFollowers(ctx context.Context, size int64) error {
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
	return slices.ContainsFunc(l.followers(), func(f *follow.Follower) bool { return f.IsBehind(size) })
}

// A compactor runs one compaction.
type compactor struct {
	log    *Log
	ctx    context.Context
	how    Compaction
	report ledger.CompactReport

	at      time.Time
	old     *beside      // the journal up to the cut
	cut     int64        // its size there
	through uint64       // its last number there
	spare   uint64       // the last of the numbers that are set aside
	lacks   salvage.Gaps // before they were
	tasks   durable.ID   // tasks.md, to which nothing is appended meanwhile

	merged uint64          // the number of the last merged record
	ends   []int64         // of the version line, the mark and the merged records in the new journal
	stays  map[string]bool // tasks that have no place in the new tasks.md yet
	next   *beside         // the new journal
	file   durable.File    // of it
	out    *archive.Writer // what went to the archive
	copied int64           // the old journal is in it up to here
	draft  durable.File    // the new tasks.md; nil if there is none
	marks  int             // of that; see [tasksfile.Snapshot]
	live   durable.File    // the journal; but for what another hand does
	late   int64           // where in it begins what came meanwhile and tasks.md does not have
	first  uint64          // the number of that
	done   bool            // the new journal has its name
	maybe  bool            // or may have it
}

// A beside is a journal with a fold that nobody else sees yet.
type beside struct {
	*journal
	facts
	ctx     context.Context // ends what is read; nil once it is the log's
	fold    Fold
	mark    mark.Mark
	records int
	adopted []byte          // the records that took over what people wrote
	gone    map[string]bool // tasks that are in the archive as they were at the cut
	misses  bool            // some record changes one of them
}

// SectionAt implements [Reader].
func (b *beside) SectionAt(off int64) (*ledger.Section, error) {
	if b.ctx != nil && b.ctx.Err() != nil {
		return nil, context.Cause(b.ctx)
	}
	return b.sectionAt(off)
}

// beside returns a file with a fold of its first bytes, to which the archive has these entries.
func (c *compactor) beside(file durable.File, size int64, entries []ledger.ArchiveEntry) (*beside, error) {
	j := c.log.journal
	b := &beside{journal: &journal{fs: j.fs, name: j.name, path: j.path, file: file}, ctx: c.ctx}
	b.fold = c.how.New(b)
	for i := range entries {
		b.fold.Archive(entries[i])
	}
	return b, b.feed(size)
}

// feed folds the records up to offset end, which are whole.
func (b *beside) feed(end int64) error {
	from := b.size
	b.setSize(end)
	n, found, err := ledger.ReadJournal(io.NewSectionReader(b.file, from, end-from), end-from, func(s *ledger.Section) bool {
		s.Off += from
		if b.records++; b.records == 1 {
			b.mark, _ = mark.In(s)
		}
		if s.Get(ledger.KeyAdopts) != nil {
			b.adopted = append(append(b.adopted, s.Raw...), '\n')
		}
		b.misses = b.misses || b.gone[s.Name()]
		b.facts.read(s)
		_ = b.fold.Apply(s) // one that is refused has no effect
		return b.ctx.Err() == nil
	})
	if err == nil && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	if err == nil && (n != end-from || len(found) > 0) {
		err = fmt.Errorf("%s is damaged behind offset %d: stint fsck", b.path, from+n)
	}
	if err == nil && b.misses {
		err = errAgain
	}
	return err
}

// run is the whole of it.
func (c *compactor) run() (err error) {
	l := c.log
	onLog := func(f func() (refused, failed error)) (err error) {
		failed := l.aside(func() (failed error) {
			err, failed = f()
			return failed
		})
		return errors.Join(err, failed)
	}
	l.looking.Lock()
	err = onLog(c.begin)
	l.looking.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		l.journal.mu.RLock()
		isOurs := l.journal.file == c.old.file
		l.journal.mu.RUnlock()
		if err != nil && !c.done && c.ctx.Err() == nil && !(isOurs && l.tasks.Is(c.tasks)) {
			err = errAgain // what went wrong may come of that
		}
		c.beforeRelease()
		err = errors.Join(err, c.drop(), l.aside(c.release))
	}()
	if err := c.write(); err != nil {
		return fmt.Errorf("nothing was compacted: %w", err)
	}
	if c.how.Dry || c.report.Archive == "" {
		return nil
	}
	if err := l.awaitFollowers(c.ctx, c.cut); err != nil {
		return err
	}
	for end, tries := l.Size(), 0; end-c.copied > nearEnd && tries < catchUps; end, tries = l.Size(), tries+1 {
		if err := c.catchUp(end); err != nil {
			return err
		}
	}
	l.looking.Lock() // nothing is compared with the old journal and carried out afterwards
	defer l.looking.Unlock()
	if err := onLog(c.finish); err != nil {
		return err
	}
	// The journal is compacted already, so nothing that goes wrong here loses anything: tasks.md is then a buffer from before
	// the compaction, and what a person has saved in this moment is taken over by the next look.
	if err := l.tasks.Swap(c.tasks, c.draft, c.merged, c.marks, l.old > 0); err != nil && !errors.Is(err, tasksfile.ErrChanged) {
		l.note(ledger.Notice{Text: fmt.Sprintf("%s could not be written anew after the compaction (%v); the merged records are appended to it instead", l.opts.Files.Ledger(), err)})
	}
	c.draft, l.old = nil, 0
	return nil
}

// begin makes the cut, on the log's goroutine, while nobody else looks at tasks.md.
func (c *compactor) begin() (refused, _ error) {
	l := c.log
	if l.tasks.Changed() {
		return errAgain, nil
	}
	if list := l.Findings(); len(list) > 0 {
		return notNow("repair it first: stint fsck", "%v", list[0]), nil
	}
	if l.opts.now().Sub(l.byHand).Abs() < c.how.Quiet { // a time far ahead is none
		return notNow("", "%s was saved by another hand less than %s ago", l.opts.Files.Ledger(), c.how.Quiet), nil
	}
	c.at, c.cut, c.copied, c.through, c.lacks = l.opts.now(), l.journal.size, l.journal.size, l.seq, l.lacks
	c.old = &beside{journal: &journal{file: l.journal.file}}
	c.report = ledger.CompactReport{Before: c.cut, After: c.cut}
	c.tasks = l.tasks.Hold()
	l.seq += 2*l.known.Records + 64 // of few tasks there are two, and of some controls there was none
	c.spare = l.seq
	l.lacks.Skip(c.through+1, c.spare)
	c.live, c.late, c.first = c.old.file, c.cut, c.spare+1
	return nil, nil
}

// beforeRelease does most of what is slow in release while the log goes on.
func (c *compactor) beforeRelease() {
	l, end, last := c.log, int64(0), uint64(0)
	_ = l.aside(func() error { // a log that has stopped says so to the next one
		if l.journal.file == c.live {
			end, last = l.journal.size, l.seq
		}
		return nil
	})
	_ = c.appendLate(end, last) // what it did not read is read once more
}

// release ends what begin has begun, on the log's goroutine.
func (c *compactor) release() error {
	l := c.log
	switch {
	case l.journal.file != c.live: // another hand has changed it
		c.late = l.journal.size
		l.tasks.SetForeign()
	case !c.done && l.seq == c.spare: // no number was given meanwhile
		l.seq, l.lacks = c.through, c.lacks
	}
	l.tasks.Release()
	return c.appendLate(l.journal.size, l.seq)
}

// appendLate appends to tasks.md what came meanwhile, up to that offset and number.
func (c *compactor) appendLate(end int64, last uint64) error {
	if end <= c.late {
		return nil
	}
	data := make([]byte, end-c.late)
	if _, err := c.live.ReadAt(data, c.late); err != nil {
		return err
	}
	c.log.tasks.AppendHeld(data, c.first, last, c.log.note)
	c.late, c.first = end, last+1
	return nil
}

// drop removes what was written for nothing, and closes what is not used any more.
func (c *compactor) drop() (err error) {
	fsys := c.log.opts.FS
	if c.draft != nil {
		err = errors.Join(c.draft.Close(), durable.Drop(fsys, c.log.tasks.DraftPath()))
	}
	if c.out != nil && !c.maybe {
		err = errors.Join(err, c.out.Drop())
	}
	switch {
	case c.done:
		err = errors.Join(err, c.old.file.Close()) // which frees all of it, and takes its time
	case c.next != nil:
		err = errors.Join(err, c.next.file.Close(), durable.Drop(fsys, c.next.path+".new"))
	}
	return err
}

// write makes everything anew beside the log.
func (c *compactor) write() (err error) {
	l, fsys, dry := c.log, c.log.opts.FS, c.how.Dry
	entries, ends, err := archive.Load(fsys, l.opts.Dir, l.opts.Files)
	if err == nil {
		c.old, err = c.beside(c.old.file, c.cut, entries)
	}
	if err != nil {
		return err
	}
	name := l.opts.Files.Archive(c.at)
	out, gone := archive.NewWriter(fsys, l.opts.Dir, name, ends), map[string]bool{}
	c.out = out
	if !dry && len(c.old.adopted) > 0 { // their digests are needed
		_, err = out.Write(c.old.adopted)
	}
	var keep ledger.Keep
	if err == nil {
		keep, err = c.how.Plan(c.old.fold, func(m ledger.Moved) error {
			if c.report.Archived++; dry || c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			m.Record.Seq = c.through + 1
			m.Record.Add(ledger.KeyArchived, ledger.Stamp(c.at))
			gone[m.Record.Name()] = true
			return out.Put(&m)
		})
	}
	c.report.Merged = len(keep)
	isNews := c.report.Archived > 0 || c.old.records != min(1, int(c.old.mark.Seq))+c.old.mark.Merged
	if err = out.Close(err); err != nil || !isNews {
		return err
	}
	c.report.Archive = name
	if dry {
		err := c.encode(io.Discard, keep)
		c.report.After = c.ends[len(c.ends)-1]
		return err
	}
	if entries = append(entries, out.Entries...); ends.Index == 0 { // it is not whole
		out.Entries = entries
	}
	if err := archive.WriteIndex(fsys, l.opts.Dir, l.opts.Files, c.through, out.Ends, out.Entries); err != nil {
		return err
	}
	file, err := durable.WriteNew(fsys, l.journal.path+".new", durable.FileMode, func(w io.Writer) error { return c.encode(w, keep) })
	if err != nil {
		return err
	}
	c.old.fold = nil
	if c.next, err = c.beside(file, c.ends[len(c.ends)-1], entries); err != nil {
		return err
	}
	c.file, c.next.gone = file, gone
	if c.draft, err = l.tasks.Draft(c.rewrite); err != nil {
		return err
	}
	return c.verify()
}

// encode writes the new journal. An error of w is for whoever flushes it.
func (c *compactor) encode(w io.Writer, keep ledger.Keep) (err error) {
	begin, text := mark.Record(c.through, len(keep), cmp.Or(c.out.File, c.report.Archive), c.out.Size, c.at), []byte(ledger.EmptyJournal)
	_, _ = w.Write(text)
	c.ends, c.stays = []int64{int64(len(text))}, map[string]bool{}
	for i := -1; i < len(keep); i++ {
		r := begin
		if i >= 0 {
			r, err = keep[i]()
		}
		r.Seq = begin.Seq + uint64(i+1)
		if err = cmp.Or(err, context.Cause(c.ctx)); err == nil {
			text, err = ledger.AppendRecord(text[:0], &r)
		}
		if err != nil {
			return fmt.Errorf("merge %s %s: %w", r.Kind, r.ID, err)
		}
		_, _ = w.Write(text)
		c.merged, c.ends = r.Seq, append(c.ends, c.ends[i+1]+int64(len(text)))
		c.stays[r.Name()] = r.Kind != ledger.KindControl
	}
	if c.merged > c.spare {
		err = fmt.Errorf("%d records are too many", len(keep))
	}
	return err
}

// rewrite writes what tasks.md becomes: the text outside of sections as it stands, and the merged records in the places where the
// sections of their tasks began. Places are filled in the order of the records, so that the order of the file is that of the
// journal; the records for which there is no place stand at the end. An error of w is for whoever flushes it.
func (c *compactor) rewrite(tasks io.ReaderAt, w io.Writer) error {
	x, err := reconcile.ReadTexts(c.ctx, tasks, c.old.file, c.tasks.Size, c.cut, &c.old.known)
	if err != nil {
		return err
	}
	for _, f := range x.Doc.Findings {
		f.File = c.log.opts.Files.Ledger()
		return notNow("repair it first: stint fsck", "%v", f)
	}
	merged := bufio.NewReaderSize(io.NewSectionReader(c.next.file, c.ends[0], c.next.size-c.ends[0]), 64<<10)
	next, pos, data := 0, 0, x.Doc.Data
	put := func(n int) {
		for n += next; next < min(n, len(c.ends)-1); next++ {
			_, _ = io.CopyN(w, merged, c.ends[next+1]-c.ends[next]) // what cannot be read is found missing by verify
		}
	}
	place := func(s *ledger.Section) (more bool) {
		if name := s.Name(); c.stays[name] {
			if put(1); next == 1 { // the mark goes with the first one
				put(1)
			}
			c.stays[name] = false
		}
		return c.ctx.Err() == nil
	}
	write := func(text []byte) {
		c.marks += tasksfile.Solid(text)
		_, _ = w.Write(text)
	}
	upTo := func(end int) {
		for ; len(x.Out) > 0 && x.Out[0].At <= end; x.Out = x.Out[1:] {
			write(data[pos:x.Out[0].At])
			pos = x.Out[0].At
			_, _, rerr := ledger.ReadJournal(io.NewSectionReader(c.old.file, x.Out[0].Off, x.Out[0].Size), x.Out[0].Size, place)
			err = errors.Join(err, rerr)
		}
		write(data[pos:end])
		pos = end
	}
	for i := range x.Doc.Sections {
		s := &x.Doc.Sections[i]
		upTo(int(s.Off))
		place(s)
		write(s.Text())
		pos += len(s.Raw)
		if line, next, ok := ledger.CutLine(data, pos); s.Seq > 0 && ok && !ledger.HasText(line) {
			pos = next // stint writes an empty line behind a record
		}
	}
	if upTo(len(data)); !bytes.HasSuffix(data, []byte("\n")) {
		_, _ = io.WriteString(w, "\n")
	}
	put(len(c.ends))
	return cmp.Or(err, context.Cause(c.ctx))
}

// verify compares what tasks.md is to become with the new journal as a start does: there must be nothing to do.
func (c *compactor) verify() error {
	fi, err := c.draft.Stat()
	if err != nil {
		return err
	}
	x, err := reconcile.ReadTexts(c.ctx, c.draft, c.next.file, fi.Size(), c.next.size, &c.next.known)
	if err != nil {
		return err
	}
	p, err := reconcile.Compare(c.ctx, x, c.log.opts.planInput())
	if err == nil && (len(p.Findings)+len(p.Records)+len(p.Again)+len(p.Gone)+p.Old > 0 || p.Missing >= 0) {
		err = notNow("repair it first: stint fsck", "%s cannot be written anew without touching your text: it would not have the records that are wanted %v", p.File, p.Findings)
	}
	return err
}

// catchUp puts what the old journal has up to offset end behind the merged records.
func (c *compactor) catchUp(end int64) error {
	if end == c.copied {
		return nil
	}
	n, err := io.Copy(c.next.file, io.NewSectionReader(c.old.file, c.copied, end-c.copied))
	if err == nil {
		err = c.next.file.Datasync()
	}
	if c.copied += n; err != nil {
		return err
	}
	return c.next.feed(c.next.size + n)
}

// finish is the last step, on the log's goroutine. failed says that the disk failed when nobody knows what is there.
func (c *compactor) finish() (refused, failed error) {
	l := c.log
	if l.journal.file != c.old.file || l.tasks.Changed() || l.anyBehind(c.cut) {
		return errAgain, nil
	}
	if err := c.catchUp(l.journal.size); err != nil {
		return fmt.Errorf("nothing was compacted: %w", err), nil
	}
	if !l.tasks.Is(c.tasks) { // what was saved meanwhile would have no effect
		return errAgain, nil
	}
	c.maybe = true
	if err := l.opts.FS.Rename(l.journal.path+".new", l.journal.path); err != nil {
		now, serr := durable.IDAt(l.opts.FS, l.journal.path)
		if serr == nil && l.journal.is(now) {
			c.maybe = false
			return fmt.Errorf("nothing was compacted: %w", err), nil
		}
		return nil, errors.Join(err, serr)
	}
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return nil, fmt.Errorf("the new journal may be gone after a power cut: %w", err)
	}
	c.report.Before, c.report.After, c.done = l.journal.size, c.next.size, true
	if l.seq == c.spare { // no number was given meanwhile
		l.seq = c.merged
	}
	c.live, c.late, c.first = c.file, c.ends[len(c.ends)-1], c.merged+1
	l.opts.Locker.Lock()
	l.journal.change(c.next.file, c.next.size)
	l.facts, l.stale = c.next.facts, false
	c.how.Take(c.next.fold)
	*c.next = beside{journal: l.journal} // all that its fold needs
	l.opts.Locker.Unlock()
	if err := l.readEnd(); err != nil {
		return nil, err
	}
	for _, f := range l.followers() {
		f.Replaced()
	}
	l.gone = map[string]bool{}
	return nil, nil
}

// refold goes on with another file that has the journal's name, and makes the fold anew from data, which was written there, while
// nobody can look.
func (l *Log) refold(file durable.File, data []byte) (err error) {
	entries, _, err := archive.Load(l.opts.FS, l.opts.Dir, l.opts.Files)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.mu.Lock()
	l.damage = nil
	l.mu.Unlock()
	for _, f := range ledger.CheckJournal(data, func(*ledger.Section) bool { return true }) {
		if f.File = l.journal.name; f.Torn == 0 {
			l.addFinding(f)
		}
	}
	l.opts.Locker.Lock()
	defer l.opts.Locker.Unlock()
	err = l.journal.change(file, l.journal.size).Close() // whatever was only in that file is in data
	l.opts.OnRefoldStart()
	for _, e := range entries {
		l.opts.Archived(e)
	}
	l.facts, l.stale, l.recent = facts{}, false, nil
	l.journal.near[0].Store(&window{file: file, data: data}) // another hand may change the file meanwhile
	ledger.EachRecord(data, func(s *ledger.Section) {        // what is left of a change is all that there is of it
		l.seq = max(l.seq, s.Seq) // numbers are not given twice, though their records may be lost
		_ = l.apply(s)
	})
	l.journal.near[0].Store(nil)
	l.journal.setSize(int64(len(data)))
	l.remember(data)
	l.opts.OnRefoldEnd()
	for _, f := range l.followers() {
		f.Replaced()
	}
	return err
}
