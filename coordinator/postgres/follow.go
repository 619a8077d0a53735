package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/follow"
	"stint/ledger/mark"
	"stint/state"
)

// beatEvery is how often a session says that it lives.
const beatEvery = 5 * time.Second

// errRestored means that a person has rolled the ledger back: the mirror is made anew.
var errRestored = errors.New("the ledger was restored")

// A record is what a session needs of one of the journal.
type record struct {
	seq      uint64 // the place behind it
	digest   []byte
	task     string // that it is about; "": none
	account  bool   // it is about an account
	restored bool   // a person has rolled the ledger back
	at       time.Time
}

// follow writes what changes, until record end is in the mirror, and beats in between. The journal is read on meanwhile:
// a compaction waits for who reads it, and not for the database.
func (s *session) follow(ctx context.Context, end uint64) (err error) {
	s.mirror.is(task.MirrorFollowing)
	records, done := make(chan record, 4*maxTasks), make(chan error, 1)
	reading, cancel := context.WithCancel(ctx)
	go func(after uint64) { done <- s.readRecords(reading, after, end, records) }(s.at.seq)
	defer func() {
		cancel()
		if rerr := <-done; err == nil {
			err = rerr
		}
	}()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case r, ok := <-records:
			if !ok {
				return nil
			}
			ids, b, err := s.changes(ctx, r, records)
			if err == nil {
				err = s.putTasks(ctx, ids, b)
			}
			if err != nil {
				return err
			}
		case <-beat.C:
			if err := s.beat(ctx); err != nil {
				return err
			}
		}
	}
}

// readRecords hands on the records behind one, until one of number end was read.
func (s *session) readRecords(ctx context.Context, after, end uint64, to chan<- record) error {
	defer close(to)
	f := s.src.Follow(after)
	defer func() { _ = f.Close() }() // only read from
	for after < end {
		sec, err := f.Next(ctx)
		if err != nil {
			return err
		}
		r, id := record{seq: f.Place(), digest: digestOf(sec), at: s.o.Now()}, string(sec.ID)
		if at, err := state.ParseTime(sec.Value(state.KeyUpdatedAt)); err == nil && !at.IsZero() && at.Before(r.at) {
			r.at = at
		}
		switch {
		case sec.Kind == ledger.KindTask && !sec.IsNote():
			r.task = id
		case sec.Kind == ledger.KindControl:
			r.restored, r.account = id == mark.Restore, strings.HasPrefix(id, state.ControlAccount)
		}
		switch after = r.seq; {
		case after < sec.Seq:
			continue // it is a mark: the cursor moves with what was merged, which comes
		case after > sec.Seq: // nothing of that comes
			if r.digest, err = digestAt(ctx, s.src, after); err != nil {
				return err
			}
		}
		select {
		case to <- r:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// changes returns the tasks that a record has changed, and those that are there behind it, and the batch that they belong to.
func (s *session) changes(ctx context.Context, r record, more <-chan record) (ids []string, b *batch, err error) {
	b = &batch{since: r.at}
	known, hasAccounts := map[string]bool{}, false
	for ok := true; ok; {
		if r.restored {
			return nil, nil, errRestored
		}
		if hasAccounts = hasAccounts || r.account; r.task != "" && !known[r.task] {
			known[r.task] = true
			ids = append(ids, r.task)
		}
		if b.to = (&place{seq: r.seq, digest: r.digest, generation: s.at.generation}); len(ids) == maxTasks {
			break
		}
		select {
		case r, ok = <-more:
		default:
			ok = false
		}
	}
	// A follower may get a record a moment before the source has folded it. A source that was read once may be older than
	// the journal now: then it is to be read again.
	for end := time.Now().Add(foldWait); s.src.Seq() < b.to.seq; {
		if !s.mirror.lasts || time.Now().After(end) {
			return nil, nil, errMoved
		}
		if err := task.Sleep(ctx, foldPoll); err != nil {
			return nil, nil, err
		}
	}
	if hasAccounts {
		b.accounts = s.src.Accounts()
	}
	return ids, b, nil
}

// Bounds of a wait for the fold.
const (
	foldPoll = time.Millisecond
	foldWait = 5 * time.Second
)

// putTasks writes tasks as they are now: in one batch, or where they are large in several, of which last is the last.
func (s *session) putTasks(ctx context.Context, ids []string, last *batch) error {
	size := 0
	for _, id := range ids {
		rows, err := s.read(ctx, id)
		if err != nil {
			return err
		}
		if rows == nil {
			continue
		}
		if size += rows.Size; size > maxBytes && len(last.tasks) > 0 {
			if err := s.put(ctx, &batch{tasks: last.tasks, since: last.since}); err != nil {
				return err
			}
			last.tasks, size = nil, rows.Size
		}
		last.tasks = append(last.tasks, rows)
	}
	return s.put(ctx, last)
}

// read returns the rows of a task; nil if there is none of that id any more.
func (s *session) read(ctx context.Context, id string) (*tables.Rows, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	im, err := s.src.TaskRecord(id)
	if errors.Is(err, &task.Error{Code: task.CodeNotFound}) || im.Task.SharedID != "" { // the shared task has the rows of its twin
		return nil, nil
	}
	var rows *tables.Rows
	if err == nil {
		rows, err = s.rows(&im)
	}
	if err == nil || errors.Is(err, follow.ErrClosed) || ctx.Err() != nil {
		return rows, err
	}
	// It cannot be read here: the mirror stops, as that may pass, or if it does not, goes on without it.
	err = &task.Error{Code: task.CodeUnavailable, Message: fmt.Sprintf("task %s cannot be read for the mirror: %v", id, err), Hint: "stint fsck"}
	if !s.mirror.unreadable(id) {
		return nil, err
	}
	s.mirror.skipped(id, err)
	return nil, nil
}
