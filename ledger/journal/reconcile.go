package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/reconcile"
	"stint/ledger/tasksfile"

	"github.com/fsnotify/fsnotify"
)

// planned is a plan with the journal that it was made of: in another one records have other places.
type planned struct {
	*reconcile.Plan
	file durable.File
}

// applyResult is what came of applying a plan.
type applyResult struct {
	done      bool  // false: tasks.md has changed since it was read, and must be read again
	committed bool  // the plan's records are in the journal
	trouble   error // what is to be tried again later
}

// A comparison of tasks.md with so many bytes of the journal goes on beside the replay.
type comparison struct {
	sync.WaitGroup
	size int64
	see  func() // nil: tasks.md is to be read
}

// compare begins it.
func (l *Log) compare(size int64) *comparison {
	c, head := &comparison{size: size}, int64(len(ledger.JournalLine)+1)
	records := io.NewSectionReader(l.journal.file, head, size-head)
	c.Go(func() { c.see, _ = l.tasks.EndsWith(records) }) // who reads it then meets the error too
	return c
}

// A view is the two files at one moment.
type view struct {
	snap  tasksfile.Snapshot
	texts *reconcile.Texts
	file  durable.File // the journal
}

// look reads what differs in the two files. aside calls a function on the log's goroutine, if that runs.
func (l *Log) look(ctx context.Context, aside func(func() error) error) (v view, err error) {
	v.snap, err = l.tasks.ReadBy(func(f io.ReaderAt, size int64) ([]byte, error) {
		var end int64
		var known reconcile.Known
		err := aside(func() error { // the journal has all that tasks.md has
			v.file, end, known = l.journal.file, l.journal.size, l.known
			return nil
		})
		l.journal.mu.RLock()
		defer l.journal.mu.RUnlock()
		if err == nil && v.file != l.journal.file {
			err = errAgain
		}
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		simple := &known
		if state, _ := l.tasks.State(v.snap); len(l.damage)+len(l.refused) > 0 || state.Raced > 0 {
			simple = nil
		}
		l.mu.Unlock()
		if v.texts, err = reconcile.ReadTexts(ctx, f, v.file, size, end, simple); err != nil {
			return nil, err
		}
		return v.texts.Doc.Data, ledger.CheckFormat(l.tasks.Path(), v.texts.Doc.Version)
	})
	if err == nil {
		_, records, _ := ledger.CutLine(v.texts.Journal, 0)
		v.snap.Marks = tasksfile.Solid(v.snap.Data) - tasksfile.Solid(v.texts.Journal[records:])
	}
	return v, err
}

// reconcileAtStart takes over what was changed while no log was open.
func (l *Log) reconcileAtStart(c *comparison) error {
	l.tasks.SetNewest(l.seq)
	if len(l.known.Edited)+len(l.damage) == 0 { // else the same bytes may still be an edit that was taken back
		if c.Wait(); c.size != l.journal.size { // it had a torn tail
			c = l.compare(l.journal.size)
			c.Wait()
		}
		if c.see != nil {
			c.see()
			if l.opts.OnDelete == nil {
				return nil
			}
			// No section is missing: those of records that were deleted earlier may be there again.
			_, _, err := l.commitPlan(&planned{Plan: &reconcile.Plan{Gone: map[string]bool{}}}) // where there is no room, the next look asks again
			return err
		}
	}
	ctx := context.Background()
	rest, stop := l.untilRest(ctx) // an editor may be at work just now
	defer stop()
	var v view
	var p *planned
	var err error
	look := func() error {
		v, err = l.look(ctx, func(f func() error) error { return f() })
		return err
	}
	for rested := true; rested; {
		rested = l.tasks.Rest(rest)
		for cut := true; cut; {
			if err = look(); err == nil {
				cut, err = l.tasks.CutVoid(v.snap)
			}
			if err != nil {
				return err
			}
		}
		if err = l.restoreMissing(v.texts.Doc); err == nil && v.file != l.journal.file {
			err = look()
		}
		if err == nil {
			p, err = l.planFor(ctx, v, false)
		}
		if err != nil {
			return err
		}
		if p.InFile > 0 || l.tasks.Stays(rest, v.snap) { // what a crash has cut off, nobody goes on writing
			break
		}
	}
	l.byHand = time.Unix(0, v.snap.ID.Mtime) // when it was saved is not known better
	res := applyResult{trouble: l.secure(p)}
	if res.trouble == nil {
		res, err = l.applyPlan(v.snap, p)
	}
	if res.trouble != nil {
		l.tasks.SetForeign()
		l.note(ledger.Notice{Text: fmt.Sprintf("%s was not taken over: %v", l.opts.Files.Ledger(), res.trouble)})
	}
	return err
}

// restLimit is how long those who wait for an answer wait for tasks.md to come to rest.
const restLimit = 8 * time.Second

// untilRest ends with ctx, or when restLimit is over, with the error that says so.
func (l *Log) untilRest(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, restLimit, notNow("try again", "%s is being changed all the time", l.opts.Files.Ledger()))
}

// planFor compares. The caller holds looking, but at start.
func (l *Log) planFor(ctx context.Context, v view, accept bool) (*planned, error) {
	in := l.opts.planInput()
	in.Accept = accept
	state, isSeen := l.tasks.State(v.snap)
	if !isSeen {
		l.byHand = l.opts.now() // a save may bring an old time: mv, cp -p, rsync -t
	}
	in.Seen, in.SavedAll, in.SavedRest, in.Raced = state.Newest, state.SavedAll, state.Rest, state.Raced
	p, err := reconcile.Compare(ctx, v.texts, in)
	return &planned{p, v.file}, err
}

// planInput returns what a plan needs to know beside the files and the plan before.
func (o *Options) planInput() reconcile.Input {
	return reconcile.Input{
		Rules: o.Rules, Files: o.Files, Now: o.now(), Deletes: o.OnDelete != nil, Seen: math.MaxUint64,
		Adopted: sync.OnceValues(func() (map[string]int, error) { return archive.Adopted(o.FS, o.Dir, o.Files) }),
	}
}

// secure makes the save durable that the plan takes over. It is slow, and no business of the log's goroutine.
func (l *Log) secure(p *planned) error {
	if len(p.Records)+len(p.Gone) == 0 {
		return nil
	}
	return l.tasks.Secure()
}

// applyPlan does what the plan says, on the log's goroutine (or before it began). What was taken over goes to the journal
// first, so that nothing is taken over twice if the power fails in between. The error means that the disk failed.
func (l *Log) applyPlan(snap tasksfile.Snapshot, p *planned) (res applyResult, err error) {
	if !l.tasks.Is(snap.ID) || p.file != l.journal.file || l.journal.size != p.End && !p.StillFits(&l.opts.Rules) {
		return res, nil
	}
	l.seq = max(l.seq, p.MaxSeq)
	l.tasks.SetForeign() // what is committed now goes to tasks.md behind what is put back
	committed, trouble, err := l.commitPlan(p)
	if trouble != nil || err != nil {
		return applyResult{done: true, trouble: trouble}, err
	}
	res.committed = committed
	if p.file == l.journal.file { // else it was put back, and what the file lacks is found anew
		from := p.End
		if p.Missing >= 0 { // what a stale save has dropped is appended again
			from = p.Missing + int64(p.InFile)
		}
		data := make([]byte, max(0, l.journal.size-from))
		if _, err := l.journal.file.ReadAt(data, from); err != nil && len(data) > 0 {
			return res, err
		}
		snap.Marks += tasksfile.Solid(data[:max(0, p.End-from)]) + tasksfile.Solid(p.Again)
		if data = append(data, p.Again...); !ledger.HasText(data) {
			data = nil
		}
		if res.done, res.trouble = l.tasks.AppendTo(snap, p.InFile > 0, data, p.Newest+1, l.seq, p.Rest); res.done && res.trouble == nil && p.Dropped > 0 {
			text := p.File + ": " + ledger.Plural(p.Dropped, "record was missing (an old buffer was saved?) and has", "records were missing (an old buffer was saved?) and have") + " been appended again"
			if id, isTask := strings.CutPrefix(p.Last, string(ledger.KindTask)+" "); isTask {
				text += "; to delete the task added last: stint cancel " + id
			}
			p.Notices = slices.Insert(p.Notices, 0, ledger.Notice{Text: text})
		}
	}
	if !res.done && !res.committed {
		return res, nil
	}
	p.Sort()
	l.mu.Lock()
	known := map[string]bool{} // each finding is told once as long as it lasts
	for _, f := range l.findings {
		known[f.Error()] = true
	}
	l.findings = p.Findings
	l.mu.Unlock()
	if p.Old > 0 && p.Old != l.old {
		p.Notices = append(p.Notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: %s from before the compaction or the restore; what is there has no effect",
			l.opts.Files.Ledger(), p.OldLine, ledger.Plural(p.Old, "section is", "sections are"))})
	}
	l.old = p.Old
	for _, n := range p.Notices {
		if n.Finding == nil || !known[n.Finding.Error()] {
			l.note(n)
		}
	}
	return res, nil
}

// commitPlan makes the plan's records durable and applies them.
func (l *Log) commitPlan(p *planned) (committed bool, trouble, err error) {
	ask := p.Gone != nil && (l.gone == nil || !maps.Equal(p.Gone, l.gone))
	if len(p.Records) == 0 && !ask {
		return false, nil, nil
	}
	var deleted []ledger.Record
	u := &update{begun: l.opts.now(), done: make(chan error, 1), f: func(tx *ledger.Tx) error {
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
	}}
	if _, err := l.commit([]*update{u}); err != nil {
		return false, nil, err
	}
	if err := <-u.done; err != nil { // the disk is full, say
		return false, err, nil
	}
	if ask {
		l.gone = p.Gone
		p.Records = append(p.Records, deleted...)
		for i := range deleted {
			if r := &deleted[i]; r.Kind != ledger.KindControl {
				p.Notices = append(p.Notices, ledger.Notice{Text: fmt.Sprintf("%s: %s: deleted by hand", l.opts.Files.Ledger(), r.Name())})
			}
		}
	}
	return true, nil, nil
}

// Reconcile takes over tasks.md without waiting for a watch to report a save, as soon as the file rests, and returns what it did.
// With accept it also takes what is quarantined as the work of a formatter. It may be called by any goroutine but the log's own.
func (l *Log) Reconcile(ctx context.Context, accept bool) (reconcile.Report, error) {
	rest, stop := l.untilRest(ctx)
	defer stop()
	return l.reconcile(ctx, rest, true, accept)
}

// ReconcileNow takes over what another hand has written into tasks.md until now, by the rules of the watch and before it comes
// to that. It waits for an editor at work until ctx ends, and costs next to nothing where there is nothing.
func (l *Log) ReconcileNow(ctx context.Context) error {
	_, err := l.reconcile(ctx, ctx, false, false)
	return err
}

// reconcile takes over what another hand has finished changing in tasks.md; for that it waits
// until rest ends. With always it also looks at a file that nobody seems to have changed.
func (l *Log) reconcile(ctx, rest context.Context, always, accept bool) (r reconcile.Report, err error) {
	for always || l.tasks.Changed() {
		if !l.tasks.Rest(rest) {
			return r, context.Cause(rest)
		}
		if err := l.nudge(); err != nil { // what is missing is made anew, but not the state directory
			return r, err
		}
		res, p, err := l.reconcileOnce(ctx, rest, always, accept)
		if p != nil && (res.done || res.committed) {
			r.Add(p.Plan)
		}
		if err = errors.Join(err, res.trouble); res.done || err != nil {
			return r, err
		}
	}
	return r, nil
}

// reconcileOnce compares tasks.md as it is now and does what is to be done.
func (l *Log) reconcileOnce(ctx, rest context.Context, always, accept bool) (res applyResult, p *planned, err error) {
	l.looking.Lock()
	defer l.looking.Unlock()
	if !always && !l.tasks.Changed() { // another look was first, or the cut of a compaction
		return applyResult{done: true}, nil, nil
	}
	v, err := l.look(ctx, l.aside)
	if errors.Is(err, errAgain) || err == nil && !l.tasks.Stays(rest, v.snap) {
		return res, nil, nil
	}
	if err != nil {
		return res, nil, err
	}
	if p, err = l.planFor(ctx, v, accept); err == nil {
		err = l.secure(p)
	}
	if err != nil {
		return res, nil, err
	}
	err = l.aside(func() (err error) {
		res, err = l.applyPlan(v.snap, p)
		return err
	})
	return res, p, err
}

// nudge lets the log's goroutine see that the journal holds its place.
func (l *Log) nudge() error {
	return l.aside(func() error { return nil })
}

// Preview returns what Reconcile would do if these were journal.md and tasks.md. It writes nothing, and of
// opts only Dir and Rules count. Without a journal, which is nil then, it returns the findings alone.
func Preview(opts Options, records, tasks []byte) (r reconcile.Report, err error) {
	opts.OnDelete = nil
	doc := ledger.Parse(tasks)
	if records == nil {
		p := &reconcile.Plan{File: opts.Files.Ledger()}
		p.Parsed(doc.Findings)
		r.Add(p)
		return r, nil
	}
	ledgerErr := ledger.CheckFormat(filepath.Join(opts.Dir, opts.Files.Ledger()), doc.Version)
	if err := cmp.Or(ledgerErr, ledger.CheckFormat(filepath.Join(opts.Dir, opts.Files.Journal()), ledger.VersionOf(records))); err != nil {
		return r, err
	}
	texts := &reconcile.Texts{Doc: doc, Journal: records, End: int64(len(records))}
	p, err := reconcile.Compare(context.Background(), texts, opts.planInput())
	if err != nil {
		return r, err
	}
	p.Sort()
	r.Add(p)
	return r, nil
}

// lookEvery is how often tasks.md is looked at when nothing tells of a change: watches fail on some file
// systems, and their number is limited. It is also how long the file must have rested before it is read to
// see whether it is what was written: no file system's clock has longer ticks.
const lookEvery = 2 * time.Second

// watch takes over what others change in tasks.md until ctx ends. It watches the directory, because most editors replace the file.
func (l *Log) watch(ctx context.Context) {
	var events <-chan fsnotify.Event // nil where they cannot be watched
	var faults <-chan error
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = w.Close() }() // nothing is lost with a watch
		err = w.Add(l.opts.Dir)
		events, faults = w.Events, w.Errors
	}
	if err != nil {
		l.note(ledger.Notice{Text: fmt.Sprintf("cannot watch %s (%v); edits are seen within %s", l.opts.Dir, err, lookEvery)})
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events = nil
			}
			switch name := filepath.Base(e.Name); {
			case name == l.opts.Files.Ledger(), e.Name == l.opts.Dir:
			case name == l.opts.Files.Journal() && !e.Has(fsnotify.Write): // it was moved, removed or replaced
			default: // unless another hand has made the journal shorter
				if fi, err := l.opts.FS.Stat(l.journal.path); name != l.opts.Files.Journal() || err != nil || fi.Size() >= l.Size() {
					continue
				}
			}
		case _, ok := <-faults: // an overflow, say: look
			if !ok {
				faults = nil
			}
		case <-tick.C:
		}
		if l.nudge() != nil {
			return // the log has stopped
		}
		var now *ledger.SyntaxError
		if err := l.ReconcileNow(ctx); err != nil && ctx.Err() == nil {
			now = &ledger.SyntaxError{File: l.opts.Files.Ledger(), Msg: err.Error()}
		}
		l.mu.Lock()
		before := l.unread
		l.unread = now
		l.mu.Unlock()
		if now != nil && (before == nil || *before != *now) {
			l.note(ledger.Notice{Finding: now, Text: fmt.Sprintf("%s was not taken over: %s", l.opts.Files.Ledger(), now.Msg)})
		}
	}
}
