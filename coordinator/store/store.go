// Package store keeps a ledger and its fold together. It is the heart of the coordinator:
// whoever reads or changes anything does it here.
//
//   - [Store.View] reads the fold. Nothing changes it meanwhile.
//   - [Store.Update] decides on the log's goroutine, where the fold has everything that was
//     acknowledged, and appends records. It returns when they are durable and folded.
//   - [Store.Exclusive] is Update alone in its batch: for a decision over the whole fold, such
//     as what to start next, that must see all changes before it.
//
// What is folded is a parameter: a Store[*fold.State] holds tasks. The package knows neither
// tasks nor anything else that a record means. A function that needs the fold takes it as an
// argument, so the compiler sees to it that it is called where the fold may be used.
//
// The functions that View, Update and Exclusive are given run with the store's lock held. They
// must not call the store again, nor wait for anything.
package store

import (
	"context"
	"sync"
	"time"

	"stint/ledger"
	"stint/ledger/journal"
	"stint/ledger/plain"
)

// Options say which ledger a store opens, and how its records are folded into an S. Apply
// and Ready are called with the lock held.
type Options[S journal.Fold] struct {
	// Ledger is passed on. The store sets Locker, Started, Apply, Archived, OnRefoldStart and
	// OnRefoldEnd; the others that read the fold call View.
	Ledger journal.Options

	// New returns an empty fold, which reads older records of the journal through read. A compaction calls it without the lock.
	New func(read journal.Reader) S
	// Apply folds one record. isNews is false for what was in the ledger when it was opened
	// or compacted. The error says why the record has no effect.
	Apply func(fold S, s *ledger.Section, isNews bool) error
	// Ready is told that the fold has all that is in the ledger: at the end of Open, before
	// it returns, and of each compaction, which begins a new fold. nil: nobody asks.
	Ready func(fold S, isCompacted bool)
	// Code is that of [journal.Options] for the fold, and for all else that Apply changes where nothing is news.
	Code func(fold S, c *plain.Coder)
}

// A Store is a log with its fold. Its methods may be called by any goroutine; but those below they are the log's.
type Store[S journal.Fold] struct {
	*journal.Log // set by Open
	opts         Options[S]

	mu     sync.Mutex // guards fold and isNews
	fold   S
	isNews bool
}

// New returns a store that is yet to be opened, and is not used before. What is read of it until then is an empty fold.
func New[S journal.Fold](opts Options[S]) *Store[S] {
	s := &Store[S]{opts: opts}
	s.fold = opts.New(s)
	return s
}

// Open reads the ledger, folds it, takes over what was edited by hand meanwhile, and starts
// the log. The caller holds the lock of the state directory until Close has returned.
func (s *Store[S]) Open() error {
	opts := &s.opts
	l := opts.Ledger
	l.Locker = &s.mu
	l.Started = func(log *journal.Log) { s.Log = log }
	l.Apply = func(sec *ledger.Section) error { return s.opts.Apply(s.fold, sec, s.isNews) }
	l.Archived = func(e ledger.ArchiveEntry) { s.fold.Archive(e) }
	l.OnRefoldStart = func() { s.fold, s.isNews = s.opts.New(s), false }
	l.OnRefoldEnd = func() { s.ready(true) }
	if opts.Code != nil {
		l.Code = func(c *plain.Coder) { opts.Code(s.fold, c) }
	}
	if _, err := journal.Open(l); err != nil {
		return err
	}
	s.View(func(S) { s.ready(false) })
	return nil
}

// ready notes that what is folded from here on is news. The lock is held.
func (s *Store[S]) ready(isCompacted bool) {
	s.isNews = true
	if s.opts.Ready != nil {
		s.opts.Ready(s.fold, isCompacted)
	}
}

// View calls f with the fold, which does not change meanwhile. f must not keep it.
func (s *Store[S]) View(f func(fold S)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.fold)
}

// Read returns what f reads from the fold of a store; see [Store.View].
func Read[S journal.Fold, T any](s *Store[S], f func(fold S) T) (v T) {
	s.View(func(fold S) { v = f(fold) })
	return v
}

// Update calls f with the fold and makes the records that it appends durable. It returns when they are folded, or with f's
// error. f may be called more than once, so it begins anew each time. The errors are those of [journal.Log.Update].
func (s *Store[S]) Update(ctx context.Context, f func(fold S, tx *ledger.Tx) error) error {
	return s.Log.Update(ctx, s.locked(f))
}

// Exclusive is Update for a decision over the whole fold: no other change shares its batch.
func (s *Store[S]) Exclusive(ctx context.Context, f func(fold S, tx *ledger.Tx) error) error {
	return s.Log.Exclusive(ctx, s.locked(f))
}

func (s *Store[S]) locked(f func(fold S, tx *ledger.Tx) error) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return f(s.fold, tx)
	}
}

// Compact merges the records of each task, as plan says, which is called with a fold of its own, without the lock.
// See [journal.Log.Compact].
func (s *Store[S]) Compact(ctx context.Context, dry bool, quiet time.Duration, plan func(fold S, out func(ledger.Moved) error) (ledger.Keep, error)) (ledger.CompactReport, error) {
	return s.Log.Compact(ctx, journal.Compaction{
		Dry: dry, Quiet: quiet,
		New:  func(read journal.Reader) journal.Fold { return s.opts.New(read) },
		Plan: func(fold journal.Fold, out func(ledger.Moved) error) (ledger.Keep, error) { return plan(fold.(S), out) },
		Take: func(fold journal.Fold) {
			s.fold = fold.(S)
			s.ready(true)
		},
	})
}

// A Feed hands values to subscribers. One who lags behind is cut off, and must look anew:
// a slow reader never delays the rest. The zero Feed is ready for use.
type Feed[T any] struct {
	mu   sync.Mutex // guards subs
	subs map[chan T]bool
}

// Subscribe returns the values that are published from now on. A reader who lags behind by more than buffer
// is cut off: the channel is closed. cancel ends the subscription; it may be called more than once.
func (f *Feed[T]) Subscribe(buffer int) (values <-chan T, cancel func()) {
	ch := make(chan T, buffer)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = map[chan T]bool{}
	}
	f.subs[ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.drop(ch)
	}
}

// Publish calls make for the value and hands it to all subscribers, if there are any.
func (f *Feed[T]) Publish(make func() T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subs) == 0 {
		return
	}
	v := make()
	for ch := range f.subs {
		select {
		case ch <- v:
		default:
			f.drop(ch)
		}
	}
}

// Close ends all subscriptions.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.subs {
		f.drop(ch)
	}
}

func (f *Feed[T]) drop(ch chan T) {
	if f.subs[ch] {
		delete(f.subs, ch)
		close(ch)
	}
}
