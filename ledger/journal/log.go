// Package journal is the log of a state directory: the only writer of journal.md, and the one that appends to tasks.md.
//
// [Open] replays journal.md into a fold and takes over what people changed in tasks.md meanwhile. After that one goroutine owns
// the journal: it takes all updates that wait ([Log.Update], [Log.Exclusive]), makes one write and one fdatasync for them,
// folds their records, answers, and appends the same bytes to tasks.md. Beside it, [Log.Reconcile] and the watch compare
// tasks.md with the journal (package reconcile) and apply the plan on that goroutine. [Log.Compact] writes both files anew and
// moves what has ended into archive/. A [follow.Follower] reads the journal by seq, also that of another process.
//
// What another hand does to journal.md is undone before anything more is acknowledged, and kept aside.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/follow"
	"stint/ledger/plain"
	"stint/ledger/reconcile"
	"stint/ledger/salvage"
	"stint/ledger/tasksfile"
)

// Errors that a caller of [Log.Update] decides on.
var (
	ErrFull   = errors.New("no space left for the ledger; nothing was acknowledged")
	ErrClosed = follow.ErrClosed

	errNotWritten = errors.New("nothing was written")
)

// Options say where a log lies and who folds its records.
type Options struct {
	Dir   string       // state directory; it exists, and the caller holds its Lock
	Files ledger.Files // which of its ledgers
	FS    durable.FS   // nil: the machine's

	// Started is given the log before anything else is called, so that Apply can
	// read older records by [Log.SectionAt]. nil: nobody asks.
	Started func(*Log)
	// Apply is given every record in order: on Open those on disk, then each batch once it is durable. It is called with Locker
	// held. The section is a view that is valid during the call. The error says that the record has no effect.
	Apply  func(*ledger.Section) error
	Locker sync.Locker

	// Archived is given each entry of the archive's index, in order, before any Apply:
	// on Open and after OnRefoldStart. Locker is held.
	Archived func(ledger.ArchiveEntry)
	// OnRefoldStart says that the journal was put back: the fold begins anew, Archived and Apply
	// of all records follow, and OnRefoldEnd ends it. Locker is held from OnRefoldStart to OnRefoldEnd.
	OnRefoldStart func()
	OnRefoldEnd   func()
	// Code writes all that was folded as plain bytes, or reads it where nothing was folded yet, for the cache of a ledger:
	// on Close, and on Open instead of Archived and Apply. Locker is held. nil: there is no cache.
	Code func(*plain.Coder)
	// Now returns the time of an edit that is taken over, and of a compaction, and the times for Observe. nil: time.Now.
	Now func() time.Time

	reconcile.Rules // which edits by hand are taken over

	// OnDelete is asked for the records that say what becomes of records whose sections a person has deleted: gone has "Kind
	// id" of all records that have no section in tasks.md any more, those that were deleted earlier too. It is called on the
	// log's goroutine without Locker, and when nothing is gone but something was before. nil: deleting a section means nothing.
	OnDelete func(gone map[string]bool) []ledger.Record
	// Notify hears of edits that were taken over and of findings. It is called by
	// Open and by the log's own goroutines, and must not call the log. nil: nobody.
	Notify func(ledger.Notice)
	// Observe hears what each write to the journal has taken, just before its waiters are answered. It is
	// called by Open and on the log's goroutine, without Locker, and must not call the log. nil: nobody.
	Observe func(*Commit)
	// Watch makes the log take over edits while it is open.
	Watch bool
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// A Log is the only writer of journal.md and appends to tasks.md. Its goroutine owns both files.
type Log struct {
	opts    Options
	journal *journal        // owned by the log's goroutine; sectionAt by anyone
	dir     durable.ID      // the state directory that was opened
	seq     uint64          // last one given; owned by the log's goroutine
	facts                   // owned by the log's goroutine
	rebuilt bool            // Open has made the journal of tasks.md alone
	refused map[uint64]bool // records that had no effect when the journal was replayed on Open; then nil
	stale   bool            // the fold lacks what the journal has; owned by the log's goroutine
	recent  []byte          // the end of the journal, perhaps from within a record on; owned by the log's goroutine
	resumed string          // the stamps of the cache that Open has gone on from
	memory  []byte          // for the next batch; owned by the log's goroutine
	tasks   *tasksfile.File
	gone    map[string]bool // what Options.OnDelete was last told; owned by the log's goroutine

	looking sync.Mutex // held while tasks.md is compared and taken over; guards the next two
	old     int        // sections from before the compaction or the restore that were last seen
	byHand  time.Time  // when another hand was last seen to have saved tasks.md

	mu       sync.Mutex // guards what follows
	queue    []*update
	closed   bool
	err      error                     // why the log stopped
	damage   []*ledger.SyntaxError     // in the journal
	findings []*ledger.SyntaxError     // in tasks.md
	unread   *ledger.SyntaxError       // why tasks.md is not taken over at present; nil if it is
	open     map[*follow.Follower]bool // the open followers of this log

	wake chan struct{}   // capacity 1: something is in queue, or closed is set
	done chan struct{}   // closed when the log's goroutine has ended
	ctx  context.Context // ends with Close
	stop context.CancelFunc

	compacting sync.Mutex     // held while the log is compacted, and by Close
	side       sync.WaitGroup // the watcher and the syncer
}

// facts are what the log knows of its journal, beside the fold.
type facts struct {
	lacks salvage.Gaps
	known reconcile.Known
}

func (k *facts) read(s *ledger.Section) {
	k.lacks.Read(s)
	k.known.Read(s)
}

// An update is a change that waits for its batch, or something else that must happen on the log's goroutine.
type update struct {
	f     func(*ledger.Tx) error
	alone bool         // f decides on all of the fold: nothing shares its batch
	side  func() error // instead of f; an error means that the disk failed
	tx    ledger.Tx
	begun time.Time // of f
	done  chan error
}

// Open replays the journal through Apply, takes over what a person changed in tasks.md meanwhile, and starts the log.
func Open(opts Options) (*Log, error) {
	opts.FS = cmp.Or(opts.FS, durable.OS)
	l := &Log{opts: opts, open: map[*follow.Follower]bool{}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := l.openFiles(); err != nil {
		if l.journal != nil && l.journal.file != nil {
			err = errors.Join(err, l.journal.file.Close())
		}
		return nil, err
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	go l.run()
	l.side.Go(func() { l.tasks.SyncEverySecond(l.ctx, l.note) })
	if opts.Watch {
		l.side.Go(func() { l.watch(l.ctx) })
	}
	return l, nil
}

func (l *Log) openFiles() error {
	err := CheckLayout(l.opts.FS, l.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) { // it is a new one
		err = durable.WriteFile(l.opts.FS, filepath.Join(l.opts.Dir, "format"), fmt.Appendf(nil, "%d\n", ledger.FormatVersion))
	}
	if err != nil {
		return err
	}
	if err := finishRestore(l.opts.FS, l.opts.Dir, l.opts.Files); err != nil {
		return err
	}
	l.tasks = tasksfile.New(l.opts.FS, l.opts.Dir, l.opts.Files)
	if err := l.ensureJournal(); err != nil {
		return err
	}
	dir, err := l.opts.FS.Stat(l.opts.Dir + "/.") // it may be reached by a link
	if err != nil {
		return err
	}
	l.dir = durable.IDOf(dir)
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil { // whoever made the journal may have come to an end before its name was durable
		return err
	}
	l.journal = &journal{fs: l.opts.FS, name: l.opts.Files.Journal(), path: filepath.Join(l.opts.Dir, l.opts.Files.Journal())}
	var fi fs.FileInfo
	if l.journal.file, fi, err = tasksfile.Open(l.opts.FS, l.journal.path, os.O_RDWR|os.O_APPEND); err != nil {
		return err
	}
	if l.opts.Started != nil {
		l.opts.Started(l)
	}
	if l.resume(fi.Size()) {
		return l.journal.file.Datasync() // as after a replay
	}
	entries, ends, err := archive.Load(l.opts.FS, l.opts.Dir, l.opts.Files)
	if err != nil {
		return err
	}
	if ends.Index == 0 && len(entries) > 0 {
		l.note(ledger.Notice{Text: fmt.Sprintf("%s is not whole: the archive's files have %d tasks, and the next compaction writes it anew", filepath.Join(archive.Dir, l.opts.Files.Index()), len(entries))})
	}
	if f := ends.Lacks(l.opts.FS, l.opts.Dir); f != nil {
		l.note(ledger.Notice{Text: f.Error()})
	}
	l.opts.Locker.Lock()
	for _, e := range entries {
		l.opts.Archived(e)
	}
	l.opts.Locker.Unlock()
	compared := l.compare(fi.Size())
	defer compared.Wait()
	l.refused = map[uint64]bool{}
	if l.seq, err = l.journal.replay(func(s *ledger.Section) {
		l.opts.Locker.Lock()
		defer l.opts.Locker.Unlock()
		if l.apply(s) != nil {
			l.refused[s.Seq] = true
		}
	}, l.addFinding, l.note); err != nil {
		return err
	}
	if err := l.readEnd(); err != nil {
		return err
	}
	return l.reconcileAtStart(compared)
}

// readEnd notes the recent records.
func (l *Log) readEnd() (err error) {
	size := min(l.journal.size, maxRecent)
	l.recent, err = io.ReadAll(io.NewSectionReader(l.journal.file, l.journal.size-size, size))
	return err
}

// CheckLayout refuses a state directory that a newer stint wrote. Its error wraps fs.ErrNotExist where no log was opened yet.
func CheckLayout(fsys durable.FS, dir string) error {
	path := filepath.Join(dir, "format")
	data, err := durable.ReadFile(fsys, path)
	if err != nil {
		return err
	}
	v, err := strconv.Atoi(string(bytes.TrimSpace(data)))
	if err != nil {
		return fmt.Errorf("%s does not hold a version number; this stint writes %d there", path, ledger.FormatVersion)
	}
	return ledger.CheckFormat(path, v)
}

// apply folds a record that the journal has, under Locker. An error says that it has no effect.
func (l *Log) apply(s *ledger.Section) error {
	l.facts.read(s)
	return l.opts.Apply(s)
}

// Update calls f on the log's goroutine, where nothing changes the fold meanwhile, and makes the records that f appends
// durable. It returns when they have been applied, or with f's error. f may be called more than once, so it must begin anew
// each time. After ErrFull nothing was kept; after any other error of the disk the log has stopped ([Log.Err]).
func (l *Log) Update(ctx context.Context, f func(*ledger.Tx) error) error {
	return l.update(ctx, f, false)
}

// Exclusive is [Log.Update] for a decision over the whole fold, such as what to start next. Updates of one
// batch decide on the fold as it was before the batch, so f has a batch of its own: what was acknowledged
// before it is in the fold, and what decides after it sees its records.
func (l *Log) Exclusive(ctx context.Context, f func(*ledger.Tx) error) error {
	return l.update(ctx, f, true)
}

func (l *Log) update(ctx context.Context, f func(*ledger.Tx) error, alone bool) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return l.enqueue(&update{f: f, alone: alone, begun: l.opts.now(), done: make(chan error, 1)})
}

// aside calls f on the log's goroutine, between two batches. An error means that the disk failed.
func (l *Log) aside(f func() error) error {
	return l.enqueue(&update{side: f, done: make(chan error, 1)})
}

// enqueue waits for the answer whatever happens to the caller: once an update was taken, the disk decides.
func (l *Log) enqueue(u *update) error {
	l.mu.Lock()
	if l.closed {
		defer l.mu.Unlock()
		return errors.Join(ErrClosed, l.err)
	}
	l.queue = append(l.queue, u)
	l.mu.Unlock()
	l.poke()
	return <-u.done
}

func (l *Log) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the log's goroutine.
func (l *Log) run() {
	defer close(l.done)
	var again []*update // updates whose claims were taken in the last batch
	for {
		l.waitForMore(runtime.Gosched)
		l.mu.Lock()
		waiting := append(again, l.queue...)
		l.queue = nil
		closed := l.closed
		l.mu.Unlock()
		if len(waiting) == 0 {
			if closed {
				return
			}
			<-l.wake
			continue
		}
		var err error
		if again, err = l.commit(waiting); err != nil {
			l.fail(err, again)
			return
		}
	}
}

// maxYields bounds how often waitForMore lets others go first: writers that always find
// time for one more must not keep those waiting that have asked.
const maxYields = 4

// waitForMore lets goroutines that can run go first, by yield, a few times as long as that brings more
// updates: these share one fdatasync then. Where nobody else is at work it costs nothing.
func (l *Log) waitForMore(yield func()) {
	before := 0
	for range maxYields {
		l.mu.Lock()
		n := len(l.queue)
		l.mu.Unlock()
		if n == before {
			return
		}
		before = n
		yield()
	}
}

// maxBatch bounds the bytes of one write.
const maxBatch = 8 << 20

// commit makes one batch of as many updates as go together, and returns the others. An error means that the
// disk failed and the log must stop; then the updates that were in the batch have been answered.
func (l *Log) commit(waiting []*update) (again []*update, err error) {
	if err := l.guard(); err != nil { // before anybody decides by what cannot be read
		return waiting, err
	}
	b := &batch{seq: l.seq, claimed: map[string]bool{}, bytes: l.memory[:0]}
	for i, u := range waiting {
		if (u.alone || u.side != nil) && len(b.taken) > 0 { // it comes next, whatever else waits
			again = slices.Concat(waiting[i:i+1], again, waiting[i+1:])
			break
		}
		if u.side != nil {
			err := u.side()
			waiting[i] = nil // a compaction has hold of several times the ledger
			u.done <- err
			return waiting[i+1:], err
		}
		if !b.take(u) {
			again = append(again, u)
		}
		if u.alone || len(b.bytes) > maxBatch {
			again = append(again, waiting[i+1:]...)
			break
		}
	}
	if len(b.bytes) == 0 {
		for _, u := range b.taken {
			u.done <- nil
		}
		return again, nil
	}
	took := Commit{Records: int(b.seq - l.seq)}
	took.Sync, err = l.keep(b.bytes)
	if err != nil {
		told, fatal := err, err
		if errors.Is(err, errNotWritten) {
			fatal = nil // the log need not stop
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				told = fmt.Errorf("%w (%w)", ErrFull, err)
			}
		}
		l.answer(b, &took, told)
		return again, fatal
	}
	l.remember(b.bytes)
	first := l.seq + 1
	l.seq = b.seq
	if !l.applyBatch(b.bytes, l.journal.size-int64(len(b.bytes))) && l.journal.doubted.Load() {
		l.stale = true // what they build upon could not be read
		err = l.guard()
	}
	l.answer(b, &took, err)
	if err != nil {
		return again, err
	}
	for _, f := range l.followers() {
		f.Poke() // there is more
	}
	l.tasks.Append(b.bytes, first, l.seq, l.note)
	if cap(b.bytes) <= 1<<20 { // not that of a long list
		l.memory = b.bytes
	}
	return again, nil
}

// keep writes a batch into the journal, where the next start finds it: into the file that
// has the journal's name, behind what was written before.
func (l *Log) keep(batch []byte) (took time.Duration, err error) {
	for range guardTries {
		before := l.journal.size
		if took, err = l.journal.append(batch, l.opts.now); err != nil || l.journal.holdsPlace() {
			return took, err
		}
		l.journal.setSize(before) // nobody was told of the batch
		if err = l.guard(); err != nil {
			return took, err
		}
	}
	return took, fmt.Errorf("%s is changed by another hand all the time", l.journal.path)
}

// A batch is what goes to the disk in one write.
type batch struct {
	claimed map[string]bool
	taken   []*update
	bytes   []byte
	seq     uint64
	count   int // sum of those of the updates that are taken
}

// take asks an update for its records and adds them. It returns false if the update must wait for the next batch.
func (b *batch) take(u *update) bool {
	u.tx.Reset(b.count)
	if err := u.f(&u.tx); err != nil {
		u.done <- err
		return true
	}
	if slices.ContainsFunc(u.tx.Claims, func(c string) bool { return b.claimed[c] }) {
		return false
	}
	size, seq, records := len(b.bytes), b.seq, u.tx.Records
	b.bytes = slices.Grow(b.bytes, u.tx.Size())
	for i := range records {
		seq++
		records[i].Seq = seq
		var err error
		if b.bytes, err = ledger.AppendPart(b.bytes, &records[i], len(records)-1-i); err != nil {
			b.bytes = b.bytes[:size]
			u.done <- err
			return true
		}
	}
	for _, c := range u.tx.Claims {
		b.claimed[c] = true
	}
	b.seq = seq
	b.count += u.tx.Counted
	b.taken = append(b.taken, u)
	return true
}

// A Commit is what one write to the journal has taken.
type Commit struct {
	Records int             // that were written
	Sync    time.Duration   // of the fdatasync
	Waits   []time.Duration // of each change, an edit that is taken over too, from its beginning to its answer
	Err     error           // nil, or why nothing was kept; it wraps ErrFull where the disk is full
}

// answer tells the observer what the batch took, and then those who wait for it.
func (l *Log) answer(b *batch, took *Commit, err error) {
	if l.opts.Observe != nil {
		now := l.opts.now()
		for _, u := range b.taken {
			took.Waits = append(took.Waits, now.Sub(u.begun))
		}
		took.Err = err
		l.opts.Observe(took)
	}
	for _, u := range b.taken {
		u.done <- err
	}
}

// applyBatch folds the bytes that were written at off, read back as on replay. It reports
// whether all records had an effect: one that the fold refuses has none.
func (l *Log) applyBatch(data []byte, off int64) (all bool) {
	l.opts.Locker.Lock()
	defer l.opts.Locker.Unlock()
	all = true
	var s ledger.Section
	for pos := 0; pos < len(data); {
		n, more, err := ledger.ScanPiece(data[pos:], &s)
		if err != nil {
			panic("ledger: a record just written does not parse: " + err.Error())
		}
		if s.Off = off + int64(pos); more >= 0 {
			l.known.Read(&s)
			all = l.opts.Apply(&s) == nil && all
		}
		pos += n
	}
	return all
}

// fail stops the log for good: what is on the disk is not known any more, and only a restart reads it anew.
func (l *Log) fail(err error, waiting []*update) {
	l.mu.Lock()
	l.closed, l.err = true, err
	waiting = append(waiting, l.queue...)
	l.queue = nil
	l.mu.Unlock()
	for _, u := range waiting {
		u.done <- errors.Join(ErrClosed, err)
	}
}

// Done is closed when the log takes no more updates: after Close, or because the disk failed ([Log.Err]).
func (l *Log) Done() <-chan struct{} { return l.done }

// Err returns why the log stopped; nil if it was closed or still runs.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Size returns the bytes of the journal that are durable.
func (l *Log) Size() int64 { return l.journal.durable.Load() }

// HasDoubled reports whether there are twice as many records as the last compaction has left. Locker is held.
func (l *Log) HasDoubled() bool { return l.known.Records > 2*l.known.Merged+1 }

// SectionAt reads one record of the journal by its offset ([ledger.Section].Off). An offset holds until a
// compaction: who takes one from the fold holds Locker until the record was read.
func (l *Log) SectionAt(off int64) (*ledger.Section, error) { return l.journal.sectionAt(off) }

// Close answers what waits and closes the files. What tasks.md lacks then because another hand has changed
// it, the next Open brings. Close does not free the Lock, which is the caller's.
func (l *Log) Close() error {
	l.stop()
	l.compacting.Lock()
	defer l.compacting.Unlock()
	l.side.Wait()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.poke()
	<-l.done
	var err error
	if l.Err() == nil {
		if err = l.guard(); err != nil {
			l.fail(err, nil)
		}
	}
	if err = errors.Join(err, l.tasks.Sync()); err == nil && l.Err() == nil {
		l.writeIndex()
	}
	return errors.Join(err, l.journal.file.Close())
}

func (l *Log) note(n ledger.Notice) {
	if l.opts.Notify != nil {
		l.opts.Notify(n)
	}
}

func (l *Log) addFinding(e *ledger.SyntaxError) {
	l.mu.Lock()
	l.damage = append(l.damage, e)
	l.mu.Unlock()
	l.note(ledger.Notice{Finding: e, Text: e.Error()})
}

// Findings returns what is wrong in the ledger at present, by file and line.
func (l *Log) Findings() []*ledger.SyntaxError {
	l.mu.Lock()
	list := slices.Concat(l.damage, l.findings)
	if l.unread != nil {
		list = append(list, l.unread)
	}
	l.mu.Unlock()
	slices.SortStableFunc(list, func(a, b *ledger.SyntaxError) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return list
}

// Follow returns the records of the log after that seq, as soon as they are durable. Close ends it.
func (l *Log) Follow(after uint64) *follow.Follower {
	f := follow.New(l.opts.FS, l.journal.path, after, &follow.Log{
		Done: l.done,
		Size: l.Size,
		Is: func(id durable.ID) bool {
			l.journal.mu.RLock()
			defer l.journal.mu.RUnlock()
			return l.journal.is(id)
		},
		Closed: func(f *follow.Follower) {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.open, f)
		},
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[f] = true
	return f
}

// followers returns the open followers of the log.
func (l *Log) followers() []*follow.Follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}
