package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/session"
	"stint/state"
)

// A Coordinator is the master of one state directory. Its methods may be called
// by any goroutine.
type Coordinator struct {
	cfg    task.Config
	log    *slog.Logger
	ledger *ledger.Log
	unlock func() error
	store  *session.Store
	start  time.Time
	home   string // its path, without links

	fs        durable.FS // where the ledger lies; nil: the machine's, and only a test has another
	counters  *counters  // see Metrics
	noted     bool       // that this master has started a run; the dispatcher's
	unwatched bool       // edits are taken over at start only: a test with a clock of its own cannot wait for the kernel

	mu        sync.Mutex // guards the fields up to the next blank line, for reading too; the log holds it while it applies records
	state     *state.State
	subs      map[*subscriber]bool
	rejected  []string // records that the fold refused
	lastErr   string
	http      string              // where the master can be called by HTTP; "": nowhere
	httpErr   error               // why it cannot, though it should
	live      bool                // Open has returned: subscribers and runs are told of changes
	refolding bool                // the fold is made anew after a compaction: all of it was told before
	orphans   map[string]string   // task to run: a person has changed the status of a running task while no master ran
	waits     map[string][]string // by running task: those that clients within its run wait for

	runsMu    sync.Mutex            // guards the fields up to the next blank line
	runs      map[string]*run       // by task id: being started, at work, or being ended
	leftovers map[string]state.Task // verify commands of the last master that may still be alive, by run: task and lane
	clients   int                   // calls that are at work
	lastCall  time.Time
	short     *lacking // what the machine lacks; nil: nothing
	wasShort  *lacking // the one before, or nil, and when that was over
	shortOver time.Time
	shortAt   time.Time // when trouble was told of that last
	handover  bool      // nothing more is started
	closing   bool

	full    atomic.Bool    // the disk was, since the dispatcher asked last
	wake    chan struct{}  // capacity 1: the dispatcher must look
	ended   chan struct{}  // capacity 1: a run has ended
	running sync.WaitGroup // the runs' goroutines
}

// Open locks the state directory, replays the journal and takes over what was
// edited meanwhile. Nothing is started or ended before Run. The error is an *Error where a user can do something about it.
func Open(cfg task.Config) (*Coordinator, error) { return newCoordinator(cfg).open() }

func (c *Coordinator) open() (*Coordinator, error) {
	if err := prepareDir(c.cfg.StateDir); err != nil {
		return nil, err
	}
	unlock, err := ledger.Lock(c.cfg.StateDir)
	if err != nil {
		return nil, lockError(err)
	}
	c.unlock = unlock
	c.home = withoutLinks(c.cfg.StateDir)
	c.removeTemps()
	if err = c.openFiles(); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return c, nil
}

// tempAge is the age from which a temporary file is what a killed writer has left.
const tempAge = time.Hour

// removeTemps removes the temporary files that earlier masters and commands have left.
func (c *Coordinator) removeTemps() {
	for _, dir := range []string{c.cfg.StateDir, filepath.Dir(c.cfg.HeartbeatPath)} {
		if err := durable.RemoveTemps(dir, time.Now().Add(-tempAge)); err != nil { // by the clock of the files
			c.log.Warn("a temporary file was not removed", "error", err)
		}
	}
}

func newCoordinator(cfg task.Config) *Coordinator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.ID == nil {
		cfg.ID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.HeartbeatPath == "" {
		cfg.HeartbeatPath = filepath.Join(cfg.StateDir, "heartbeat.json")
	}
	c := &Coordinator{
		cfg: cfg, log: cfg.Log, start: cfg.Now(), lastCall: cfg.Now(),
		subs: map[*subscriber]bool{}, runs: map[string]*run{}, leftovers: map[string]state.Task{}, orphans: map[string]string{}, waits: map[string][]string{},
		wake: make(chan struct{}, 1), ended: make(chan struct{}, 1),
		counters: newCounters(cfg.Agents),
	}
	c.state = state.New(sections(func() *ledger.Log { return c.ledger }))
	return c
}

// sections lets a state read records by offset in a log that is opened after it is made.
type sections func() *ledger.Log

func (log sections) SectionAt(off int64) (*ledger.Section, error) { return log().SectionAt(off) }

func (c *Coordinator) openFiles() error {
	l, err := ledger.Open(ledger.Options{
		Dir: c.cfg.StateDir, FS: c.fs, Locker: &c.mu, Watch: !c.unwatched,
		Started: func(l *ledger.Log) { c.ledger = l },
		Apply:   c.apply, Begin: c.beginSave, Together: c.checkTogether, Notify: c.notice,
		Archived: c.archived, Reset: c.refold, Refolded: c.refolded, Now: c.cfg.Now,
		Guarded: guardedKeys, Copied: state.Copied, Deleted: c.deleted,
		Observe: func(w *ledger.Commit) {
			c.counters.commit(w, c.cfg.Now())
			c.journalWritten(w.Err)
		},
	})
	if err != nil {
		return err
	}
	c.ledger = l
	c.openStore()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goLive()
	return nil
}

// goLive begins to tell of changes: what was read until now is old. mu is held.
func (c *Coordinator) goLive() {
	c.live = true
	c.state.OnChange(c.counters.change)
}

// prepareDir makes the state directory and refuses one that others own or can read.
func prepareDir(dir string) error {
	fail := func(what string, hint string) error {
		return &task.Error{Code: task.CodeInvalid, Message: fmt.Sprintf("the state directory %s %s", dir, what), Hint: hint}
	}
	if err := durable.MkdirAll(durable.OS, dir); err != nil {
		return fail(fmt.Sprintf("cannot be made: %v", err), "set STINT_STATE_DIR to a directory of your own")
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return fail(fmt.Sprintf("cannot be read: %v", err), "set STINT_STATE_DIR to a directory of your own")
	}
	if owner := ownerOf(fi); owner >= 0 && owner != os.Geteuid() {
		return fail(fmt.Sprintf("belongs to user %d, not to you", owner), "set STINT_STATE_DIR to a directory of your own")
	}
	if fi.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, durable.DirMode); err != nil {
			return fail("can be read by others", "chmod 700 "+dir)
		}
	}
	for _, sub := range []string{"runs", "sessions"} {
		if err := durable.MkdirAll(durable.OS, filepath.Join(dir, sub)); err != nil {
			return fail(fmt.Sprintf("cannot be written: %v", err), "set STINT_STATE_DIR to a directory of your own")
		}
	}
	keepFormattersOff(dir)
	return nil
}

// keepFormattersOff tells Prettier, which many editors run when they save, to leave
// tasks.md alone: it rewrites prompts. A new directory gets the file once; whoever
// deletes it wants it so.
func keepFormattersOff(dir string) {
	if _, err := os.Lstat(filepath.Join(dir, "format")); err == nil {
		return
	}
	f, err := durable.Open(filepath.Join(dir, ".prettierrc"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FileMode)
	if err != nil {
		return // it is there, or the ledger will say what is wrong with the directory
	}
	_, _ = f.WriteString(`{"requirePragma": true}` + "\n") // a comfort: what a formatter changes is held anyway
	_ = f.Close()
}

func lockError(err error) error {
	var busy *ledger.BusyError
	if errors.As(err, &busy) {
		hint := "use that one, or end it"
		if busy.PID > 0 { // kill 0 would end the shell that it is typed into
			hint += fmt.Sprint(" with: kill ", busy.PID)
		}
		return &task.Error{Code: task.CodeBusy, Message: busy.Error(), Hint: hint}
	}
	return &task.Error{Code: task.CodeInvalid, Message: fmt.Sprintf("the state directory cannot be locked: %v", err), Hint: "stint doctor"}
}

// openStore opens sessions.json and makes it hold the sessions of the fold, which
// costs nothing where it does.
func (c *Coordinator) openStore() {
	store, found := session.Open(session.Options{
		Dir: c.cfg.StateDir, Interval: time.Second, Now: c.cfg.Now, Gone: c.isGone,
		OnError: func(err error) { c.trouble("sessions.json could not be written", err) },
	})
	c.store = store
	if found.Problem != nil {
		c.log.Warn("sessions.json is rebuilt from the ledger", "problem", found.Problem)
	}
	c.mu.Lock()
	var entries []session.Entry
	for _, s := range c.state.Sessions() {
		entries = append(entries, entryOf(s))
	}
	c.mu.Unlock()
	if err := store.Reset(entries); err != nil {
		c.trouble("sessions.json does not have all sessions", err)
	}
}

func entryOf(s state.Session) session.Entry {
	return session.Entry{Key: s.Key, Agent: s.Agent, Account: s.Account, SessionID: s.ID, Native: s.Native, UpdatedAt: s.UpdatedAt}
}

// trouble notes an error that is no task's own: it goes to the log and to Health. While
// the machine lacks something, many things fail again and again: the first one is logged.
func (c *Coordinator) trouble(what string, err error) {
	level, now := slog.LevelError, c.cfg.Now()
	isShort := ShortageOf(err) != 0 || errors.Is(err, &task.Error{Code: task.CodeFull})
	c.runsMu.Lock()
	if isShort && (c.short != nil || now.Sub(c.shortAt) < failedFor) {
		level = slog.LevelDebug
	}
	if isShort {
		c.shortAt = now
	}
	c.runsMu.Unlock()
	c.log.Log(context.Background(), level, what, "error", err)
	c.mu.Lock()
	c.lastErr = fmt.Sprintf("%s: %v", what, err)
	c.mu.Unlock()
}

// notice passes on what the ledger says about edits and findings.
func (c *Coordinator) notice(n ledger.Notice) {
	switch {
	case n.Damage:
		c.log.Warn(n.Text)
		c.mu.Lock()
		c.lastErr = n.Text
		c.mu.Unlock()
	case n.Finding != nil:
		c.log.Warn(n.Text)
	default:
		c.log.Info(n.Text)
	}
}

// apply folds one record. The log calls it with mu held, live and on replay.
func (c *Coordinator) apply(s *ledger.Section) error {
	if !c.live && !c.refolding && s.Value(ledger.KeyBy) == ledger.ByHand {
		defer c.noteOrphan(s)()
	}
	if err := c.state.Apply(s); err != nil {
		text := fmt.Sprintf("record %d was not folded: %v", s.Seq, err)
		c.rejected = append(c.rejected, text)
		if c.live {
			c.log.Warn(text)
		}
		return err
	}
	if !c.live {
		return nil
	}
	switch {
	case s.Kind == ledger.KindTask:
		c.changed(s)
	case !c.state.Covers(s.Seq - 1):
		c.publishResync()
	}
	c.poke()
	return nil
}

// noteOrphan looks whether a person's record takes a task out of its run while
// replay or reconcile at start applies it: what it gives is called afterwards.
// The old run must be proved dead like that of any interrupted task.
func (c *Coordinator) noteOrphan(s *ledger.Section) func() {
	id := string(s.ID)
	before, _ := c.state.Peek(id)
	return func() {
		if after, _ := c.state.Peek(id); before.Status == state.Running && after.Status != state.Running {
			c.orphans[id] = before.RunID
		}
	}
}

// beginSave begins to look at what people wrote in one save: records must be well
// formed, and the status that one sets must be able to follow the one before.
func (c *Coordinator) beginSave() (check func(*ledger.Section) error, implied func(*ledger.Record) []ledger.Pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	save := c.state.NewSave()
	check = func(s *ledger.Section) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return save.Check(s)
	}
	implied = func(r *ledger.Record) []ledger.Pair {
		c.mu.Lock()
		defer c.mu.Unlock()
		return save.LeftBehind(r)
	}
	return check, implied
}

// checkTogether says whether what a person wrote in one save can be taken over
// together.
func (c *Coordinator) checkTogether(list []*ledger.Section) map[int]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.CheckTogether(list)
}

// changed tells subscribers of a task's record, and ends a run whose task is no
// longer running: a person has edited it.
func (c *Coordinator) changed(s *ledger.Section) {
	c.runsMu.Lock()
	r := c.runs[string(s.ID)]
	c.runsMu.Unlock()
	if r == nil && len(c.subs) == 0 {
		return
	}
	t, ok := c.state.Peek(string(s.ID))
	if !ok {
		return
	}
	if r != nil && t.Status != state.Running {
		r.cancel(task.ErrCanceled)
	}
	c.publish(task.Change{Seq: s.Seq, Task: t})
}

func (c *Coordinator) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// update makes a change durable.
func (c *Coordinator) update(ctx context.Context, f func(*ledger.Tx) error) error {
	return c.told(c.ledger.Update(ctx, f))
}

// exclusive is update for a decision over the whole state; see [ledger.Log.Exclusive].
func (c *Coordinator) exclusive(ctx context.Context, f func(*ledger.Tx) error) error {
	return c.told(c.ledger.Exclusive(ctx, f))
}

// told turns the ledger's errors into ours.
func (c *Coordinator) told(err error) error {
	switch {
	case errors.Is(err, ledger.ErrFull):
		c.full.Store(true)
		return c.fullError()
	case errors.Is(err, ledger.ErrClosed):
		return c.stopped()
	}
	return err
}

func (c *Coordinator) fullError() error {
	return &task.Error{Code: task.CodeFull, Message: fmt.Sprintf("the disk of %s is full; nothing was kept", c.cfg.StateDir), Hint: "make room and try again"}
}

// insist makes a change, by update or exclusive, and waits for room where the disk is
// full: what has happened must not be lost. It gives up when ctx ends or the ledger does.
func (c *Coordinator) insist(ctx context.Context, what string, change func(context.Context, func(*ledger.Tx) error) error, f func(*ledger.Tx) error) error {
	for {
		err := change(context.Background(), f)
		if !errors.Is(err, &task.Error{Code: task.CodeFull}) {
			return err
		}
		if !c.waitAgain(ctx, what, err) {
			return err
		}
	}
}

// waitAgain lets what a run has left wait for what the machine lacks, and reports whether
// to try again.
func (c *Coordinator) waitAgain(ctx context.Context, what string, err error) bool {
	c.trouble(what+" waits for what the machine lacks", err)
	select {
	case <-c.ledger.Done():
		return false
	case <-ctx.Done():
		return false
	case <-time.After(lookAgain):
		return true
	}
}

// isGone reports that the state directory is: what has its name now is not ours to write to.
func (c *Coordinator) isGone() bool { return errors.Is(c.ledger.Err(), ledger.ErrGone) }

func (c *Coordinator) stopped() error {
	switch err := c.ledger.Err(); {
	case c.isGone():
		return &task.Error{Code: task.CodeStopped, Message: fmt.Sprintf("the master has stopped: %v", err), Hint: "the next command starts another one"}
	case err != nil:
		return &task.Error{Code: task.CodeStopped, Message: fmt.Sprintf("the master has stopped because its ledger cannot be written: %v", err), Hint: "check the disk, then: stint serve"}
	}
	return &task.Error{Code: task.CodeStopped, Message: "the master is going away", Hint: "try again"}
}

// Run recovers what was running, then dispatches until ctx ends, a handover was
// asked for and the runs have ended, or nothing was to be done for IdleExit. The
// error is not nil if the disk failed.
func (c *Coordinator) Run(ctx context.Context) error {
	beat := make(chan struct{})
	beatCtx, stopBeat := context.WithCancel(context.Background())
	go func() {
		defer close(beat)
		c.heartbeat(beatCtx)
	}()
	defer func() {
		stopBeat()
		<-beat
	}()
	c.enterSafeMode(ctx)
	proving, stopProving := context.WithCancel(ctx)
	c.recover(proving)
	c.recoverChecks(proving)
	var beside sync.WaitGroup
	beside.Go(func() { c.compactWhenLarge(beatCtx) })
	beside.Go(func() { c.lookForMissing(beatCtx) })
	defer func() {
		stopBeat()
		beside.Wait()
	}()
	c.dispatchUntil(ctx)
	stopProving()
	c.shutdown()
	if c.ledger.Err() == nil {
		c.forgetStarts()
	}
	return c.ledger.Err()
}

// EndLimit bounds how long a run with that grace time is waited for once it is to end.
func EndLimit(grace time.Duration) time.Duration { return 2*grace + recoverTimeout }

// shutdown gives runs the grace time to end by themselves, then ends them; they
// are recorded as interrupted and run again under the next master. One that does not
// end even so (the kernel does not let a process go, or a disk stays full) is left to
// the next master as a kill -9 would leave it.
func (c *Coordinator) shutdown() {
	c.runsMu.Lock()
	c.closing = true
	c.runsMu.Unlock()
	grace, last := time.NewTimer(c.cfg.Grace), time.NewTimer(EndLimit(c.cfg.Grace))
	defer grace.Stop()
	defer last.Stop()
	failed := c.ledger.Done()
	for c.busy() {
		select {
		case <-c.ended:
		case <-grace.C:
			c.cancelRuns(task.ErrShutdown)
		case <-failed:
			failed = nil
			c.cancelRuns(task.ErrShutdown)
		case <-last.C:
			c.log.Error("some runs cannot be ended: the next master looks after them", "tasks", c.busyTasks())
			return
		}
	}
	c.running.Wait()
}

// Hurry ends all runs at once, without the grace time of a shutdown.
func (c *Coordinator) Hurry() { c.cancelRuns(task.ErrShutdown) }

func (c *Coordinator) cancelRuns(cause error) {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	for _, r := range c.runs {
		r.cancel(cause)
	}
}

func (c *Coordinator) busy() bool { return len(c.busyTasks()) > 0 }

// busyTasks gives the ids of the tasks that have a run.
func (c *Coordinator) busyTasks() []string {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	return slices.Sorted(maps.Keys(c.runs))
}

// Close ends what Open began. Run must have returned.
func (c *Coordinator) Close() error {
	c.mu.Lock()
	for s := range c.subs {
		c.drop(s)
	}
	c.mu.Unlock()
	err := errors.Join(c.ledger.Close(), c.store.Close())
	if !c.isGone() {
		_ = os.Remove(c.cfg.HeartbeatPath) // it would say that we live
	}
	return errors.Join(err, c.unlock())
}
