// Package queue is the tasks of one state directory, on disk and in memory: a [Store] is their ledger and its fold
// ([store.Store]), with what every room that works on them needs: who follows changes, errors that people understand, the lock of
// the directory, compaction, and what a person has edited. It decides nothing about tasks: admission, dispatch and attempt do.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"stint/coordinator/rundir"
	"stint/coordinator/store"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/journal"
	"stint/session"
	"stint/state"
	"stint/state/fold"
)

// A Store is the tasks of a state directory: their ledger, its fold, and what everybody needs who works on them.
// Any goroutine may call its methods, but within View, Update or Exclusive only those with a fold.
type Store struct {
	*store.Store[*fold.State]
	store.Feed[*task.Change] // the changes of tasks, published while the fold is locked

	Config   Config         // with all defaults; never changed, but for Beside
	Home     string         // the state directory without links
	sessions *session.Store // sessions.json

	unlock func() error // nil: the lock is the caller's

	// The next three belong to the fold: they are used while it is locked.
	hooks    Hooks             // from OpenLocked on such as do nothing
	rejected []string          // records that the fold refused
	orphans  map[string]string // task to run: a person has changed the status of a running task

	life life

	mu      sync.Mutex // guards the next three
	lastErr string
	shortAt time.Time // when trouble was met last that is for want of something
	isShort bool      // the machine lacks something now

	defaults []state.AccountConfig // where none are configured: that of each agent

	spending spending
}

// Hooks are what a [Store] calls on the log's goroutine. Each must be set.
type Hooks struct {
	// Committed is told what each write to the journal took. No lock is held.
	Committed func(*journal.Commit)
	// Changed is told how a record has changed a task, except while the ledger is compacted, Taken that a person has
	// taken a task out of its run, and Wake that anything has changed. They are called while the fold is locked: they
	// must not call the store, nor wait.
	Changed func(before, after *state.Task)
	Taken   func(id string)
	Wake    func()
}

// Listen sets what is called from now on.
func (s *Store) Listen(h Hooks) {
	s.View(func(st *fold.State) {
		s.hooks = h
		st.OnChange(h.Changed)
	})
}

// committed reports what a write has taken.
func (s *Store) committed(w *journal.Commit) {
	Read(s, func(*fold.State) Hooks { return s.hooks }).Committed(w)
}

// apply folds one record.
func (s *Store) apply(st *fold.State, sec *ledger.Section, isNews bool) error {
	var before state.Task
	if !isNews && st.Seq() == 0 { // the fold begins anew
		s.rejected = nil
	}
	if sec.Value(ledger.KeyBy) == ledger.ByHand {
		before, _ = st.Peek(string(sec.ID))
	}
	if err := st.Apply(sec); err != nil {
		text := fmt.Sprintf("record %d was not folded: %v", sec.Seq, err)
		s.rejected = append(s.rejected, text)
		if isNews {
			s.Config.Log.Warn(text)
		}
		return err
	}
	if before.Status == state.Running {
		if after, _ := st.Peek(string(sec.ID)); after.Status != state.Running {
			s.orphans[string(sec.ID)] = before.RunID // its run must be proved dead like that of any interrupted task
			if isNews {
				s.hooks.Taken(string(sec.ID))
			}
		}
	}
	if !isNews {
		return nil
	}
	id := string(sec.ID)
	switch {
	case sec.Kind == ledger.KindTask:
		s.Publish(func() *task.Change {
			t, _ := st.Peek(id)
			return &task.Change{Seq: sec.Seq, Task: t}
		})
	case !st.Covers(sec.Seq - 1):
		s.publishResync(st)
	}
	s.hooks.Wake()
	return nil
}

// ready begins to report changes: what was read until now is old. After a compaction who follows lists anew: the
// records have other numbers, and those that readers know mean nothing any more.
func (s *Store) ready(st *fold.State, isCompacted bool) {
	st.OnChange(s.hooks.Changed)
	if isCompacted {
		s.publishResync(st)
		s.hooks.Wake()
	}
}

func (s *Store) publishResync(st *fold.State) {
	s.Publish(func() *task.Change { return &task.Change{Seq: st.Seq(), Resync: true} })
}

// SubscribeAfter returns the changes of tasks for a reader who knows all up to record after, and is to miss nothing that came
// since, nor to get it twice. missed has the tasks that have changed, in the order of their newest records, each once and as it is
// now; it is a Resync alone if that cannot be told. If there are too many it has the first of them, and changes is nil: the reader
// asks again, with the number of the last one. A reader who lags behind by more than buffer is cut off: the channel is closed.
func (s *Store) SubscribeAfter(after uint64, buffer int) (missed []*task.Change, changes <-chan *task.Change, cancel func()) {
	const maxMissed = 256 // a task has 1 KB, and all readers of a master that was away come back at once
	s.View(func(st *fold.State) {
		if !st.Covers(after) {
			missed = []*task.Change{{Seq: st.Seq(), Resync: true}}
		} else {
			for newest, t := range st.Since(after) {
				if missed = append(missed, &task.Change{Seq: newest, Task: t}); len(missed) == maxMissed {
					cancel = func() {}
					return
				}
			}
		}
		changes, cancel = s.Subscribe(buffer)
	})
	return missed, changes, cancel
}

// Read returns what f reads from the fold of a store.
func Read[T any](s *Store, f func(*fold.State) T) T { return store.Read(s.Store, f) }

// Seq returns the number of the newest record: who lists then and follows from there misses nothing.
func (s *Store) Seq() uint64 { return Read(s, (*fold.State).Seq) }

// Orphans returns, by task, the runs that an edit took from it while no master ran: they may be alive.
func (s *Store) Orphans() map[string]string {
	return Read(s, func(*fold.State) map[string]string { return maps.Clone(s.orphans) })
}

// Rejected returns a sentence for each record that has no effect, and why.
func (s *Store) Rejected() []string {
	return Read(s, func(*fold.State) []string { return slices.Clone(s.rejected) })
}

// Update is [store.Store.Update] with the errors of this package: CodeFull where the disk
// is full, CodeStopped where the store is closed.
func (s *Store) Update(ctx context.Context, f func(*fold.State, *ledger.Tx) error) error {
	return s.errorOf(s.Store.Update(ctx, f))
}

// Exclusive is Update for a decision over all tasks; see [store.Store.Exclusive].
func (s *Store) Exclusive(ctx context.Context, f func(*fold.State, *ledger.Tx) error) error {
	return s.errorOf(s.Store.Exclusive(ctx, f))
}

func (s *Store) errorOf(err error) error {
	refused, isRefused := errors.AsType[*journal.RefusedError](err)
	switch {
	case isRefused:
		return &task.Error{Code: task.CodeConflict, Message: refused.Why, Hint: cmp.Or(refused.Hint, "try again")}
	case errors.Is(err, journal.ErrFull), errors.Is(err, syscall.ENOSPC): // a compaction needs room for a second file
		return s.FullError()
	case errors.Is(err, journal.ErrClosed):
		return s.StoppedError()
	}
	return err
}

// FullError returns the error for when the disk is full.
func (s *Store) FullError() error {
	return &task.Error{Code: task.CodeFull, Message: fmt.Sprintf("the disk of %s is full; nothing was kept", s.Config.StateDir), Hint: "make room and try again"}
}

// StoppedError returns why the master takes no changes any more.
func (s *Store) StoppedError() error {
	switch err := s.Err(); {
	case s.IsGone():
		return &task.Error{Code: task.CodeStopped, Message: fmt.Sprintf("the master has stopped: %v", err), Hint: "the next command starts another one"}
	case err != nil:
		return &task.Error{Code: task.CodeStopped, Message: fmt.Sprintf("the master has stopped because its ledger cannot be written: %v", err), Hint: "check the disk, then: stint serve"}
	}
	return &task.Error{Code: task.CodeStopped, Message: "the master is stopping", Hint: "try again"}
}

// IsGone reports that the state directory is: what has its name now is not ours to write to.
func (s *Store) IsGone() bool { return errors.Is(s.Err(), journal.ErrGone) }

// TryAgain is how soon something is tried again that the machine had no room for.
const TryAgain = time.Second

// WaitForRoom waits a moment before what is tried again for which the machine had no room. It
// reports whether to try: not if ctx or the store has ended. what and err go to the log.
func (s *Store) WaitForRoom(ctx context.Context, what string, err error) bool {
	s.Trouble(what+" waits for what the machine lacks", err)
	select {
	case <-s.Done():
		return false
	case <-ctx.Done():
		return false
	case <-time.After(TryAgain):
		return true
	}
}

// UpdateWhenRoom makes a change, by Update or Exclusive, and waits for room where the disk is
// full: what has happened must not be lost. It gives up when ctx ends or the store does.
func (s *Store) UpdateWhenRoom(ctx context.Context, what string, isExclusive bool, f func(*fold.State, *ledger.Tx) error) error {
	change := s.Update
	if isExclusive {
		change = s.Exclusive
	}
	for {
		err := change(context.Background(), f)
		if !errors.Is(err, &task.Error{Code: task.CodeFull}) || !s.WaitForRoom(ctx, what, err) {
			return err
		}
	}
}

// FailedFor is how long an error of the disk says something about the next write.
const FailedFor = 30 * time.Second

// Trouble notes an error that is no task's own: it goes to the log and to LastError. While the
// machine lacks something, many things fail again and again: the first one is logged.
func (s *Store) Trouble(what string, err error) {
	level, now := slog.LevelError, s.Config.Now()
	s.mu.Lock()
	if task.ShortageOf(err) != 0 || errors.Is(err, &task.Error{Code: task.CodeFull}) {
		if s.isShort || now.Sub(s.shortAt) < FailedFor {
			level = slog.LevelDebug
		}
		s.shortAt = now
	}
	s.lastErr = s.Config.Redact.String(fmt.Sprintf("%s: %v", what, err))
	s.mu.Unlock()
	s.Config.Log.Log(context.Background(), level, what, "error", err)
}

// SetShort notes whether the machine lacks something at present, of which the log tells once.
func (s *Store) SetShort(is bool) {
	s.mu.Lock()
	s.isShort = is
	s.mu.Unlock()
}

// TroubleUnlessStopped is Trouble, unless err only says that the store takes no more changes.
func (s *Store) TroubleUnlessStopped(what string, err error) {
	if err != nil && !errors.Is(err, &task.Error{Code: task.CodeStopped}) {
		s.Trouble(what, err)
	}
}

// LastError returns the last error that was no task's own; "" if there was none.
func (s *Store) LastError() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}

// FindIn returns the id that ref stands for: a whole id, any unique piece of one, or @last.
// The error has CodeNotFound or CodeAmbiguous.
func FindIn(st *fold.State, ref string) (string, error) {
	switch found := st.Find(ref); len(found) {
	case 0:
		return "", notFound(ref)
	case 1:
		return found[0], nil
	default:
		for i, id := range found {
			t, _, _ := st.Task(id) // without it, the id must do
			found[i] = strings.TrimSpace(state.ShortID(id) + " " + state.Cut(t.Title, 40))
		}
		return "", task.Ambiguous("tasks", ref, found)
	}
}

func notFound(ref string) error {
	return &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("there is no task %q", ref), Hint: "stint ls"}
}

// PeekIn returns a task without its texts, by its id.
func PeekIn(st *fold.State, id string) (state.Task, error) {
	t, ok := st.Peek(id)
	if !ok {
		return t, notFound(id)
	}
	return t, nil
}

// WholeIn returns a task with its texts, which it reads from the journal or the archive.
func (s *Store) WholeIn(st *fold.State, id string) (t state.Task, err error) {
	if e, ok := st.Archived(id); ok {
		t, _, err = ReadArchived(s.Config.StateDir, e)
	} else if t, ok, err = st.Task(id); err == nil && !ok {
		err = notFound(id)
	}
	t.FollowUps = st.FollowUps(id)
	return t, err
}

// Find is [FindIn] of the store's fold.
func (s *Store) Find(ref string) (id string, err error) {
	s.View(func(st *fold.State) { id, err = FindIn(st, ref) })
	return id, err
}

// Peek is [PeekIn] of the store's fold.
func (s *Store) Peek(id string) (t state.Task, err error) {
	s.View(func(st *fold.State) { t, err = PeekIn(st, id) })
	return t, err
}

// Whole is [Store.WholeIn] of the store's fold.
func (s *Store) Whole(id string) (t state.Task, err error) {
	s.View(func(st *fold.State) { t, err = s.WholeIn(st, id) })
	return t, err
}

// Until waits for a state of a task, and returns the whole task then.
func (s *Store) Until(ctx context.Context, id string, is func(*state.Task) bool) (state.Task, error) {
	changes, stop := s.Subscribe(64)
	defer func() { stop() }()
	for isNews := true; ; {
		if isNews {
			if t, err := s.Peek(id); err != nil {
				return t, err
			} else if is(&t) {
				return s.Whole(id)
			}
		}
		select {
		case <-ctx.Done():
			return state.Task{}, context.Cause(ctx)
		case <-s.Done():
			return state.Task{}, s.StoppedError()
		case change, isOpen := <-changes:
			if isNews = !isOpen || change.Task.ID == id; !isOpen { // we were too slow
				changes, stop = s.Subscribe(64)
			}
		}
	}
}

// KeepSessions has sessions.json written, which may lack what a run in that lane has changed. It has
// no session of a task's own lane.
func (s *Store) KeepSessions(lane string) {
	if !strings.HasPrefix(lane, state.LanePrefixTask) {
		s.sessions.Changed()
	}
}

// Close ends what Open began. last is called before the state directory is unlocked.
func (s *Store) Close(last ...func()) error {
	s.Feed.Close()
	err := errors.Join(s.Store.Close(), s.sessions.Close())
	for _, f := range last {
		f()
	}
	if s.unlock != nil {
		err = errors.Join(err, s.unlock())
	}
	return err
}

// RunDir returns the directory of a run's files.
func (s *Store) RunDir(runID string) string { return rundir.Dir(s.Config.StateDir, runID) }

// OpenWork is [rundir.OpenWork] of what is configured.
func (s *Store) OpenWork() (*os.Root, error) {
	return rundir.OpenWork(s.Config.WorkDir, s.Config.StateDir)
}

// A life is what a master knows about its own end.
type life struct {
	mu       sync.Mutex // guards calls and lastCall, also while the others are set because of them
	calls    int        // that are at work
	lastCall time.Time
	leaving  atomic.Bool // nothing more is started
	closing  atomic.Bool // nothing more is accepted that is to be run
}

// Call notes that a client is being served, until end is called: an idle master does not exit meanwhile.
func (s *Store) Call() (end func()) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.life.calls++
	return func() {
		s.life.mu.Lock()
		defer s.life.mu.Unlock()
		s.life.calls--
		s.life.lastCall = s.Config.Now()
	}
}

// NoteUse notes that the master was of use until now: its idle time begins.
func (s *Store) NoteUse() { s.Call()() }

// Leave makes the master start nothing more: it exits when the runs at work have ended.
func (s *Store) Leave() { s.life.leaving.Store(true) }

// Shut makes the master accept nothing more that is to be run: that is for the next one.
func (s *Store) Shut() {
	s.life.leaving.Store(true)
	s.life.closing.Store(true)
}

// ShutIfDone is Shut if there is nothing to stay for, and reports whether it was: Leave was called, or nobody has called for so
// long that an idle master exits. isIdle says whether nothing is to be done. No call can begin between the question and the end.
func (s *Store) ShutIfDone(isIdle bool) bool {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	quiet := s.life.calls == 0 && s.Config.Now().Sub(s.life.lastCall) >= s.Config.IdleExit
	isDone := s.IsLeaving() || s.Config.IdleExit > 0 && isIdle && quiet
	if isDone {
		s.Shut()
	}
	return isDone
}

// IsLeaving reports whether nothing more is started.
func (s *Store) IsLeaving() bool { return s.life.leaving.Load() }

// IsShut reports whether nothing more is accepted that is to be run.
func (s *Store) IsShut() bool { return s.life.closing.Load() }

// Wake makes the dispatcher look again.
func (s *Store) Wake() { s.View(func(*fold.State) { s.hooks.Wake() }) }
