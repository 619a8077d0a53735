package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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

// follow writes what changes, until record end is in the mirror, and beats in between.
func (s *session) follow(ctx context.Context, end uint64) error {
	s.mirror.is(task.MirrorFollowing)
	f := s.src.Follow(s.at.seq)
	defer func() { _ = f.Close() }() // only read from
	for beat := time.Now().Add(beatEvery); s.at.seq < end; {
		ids, b, err := s.changes(ctx, f, beat, end)
		if err == nil && b.to != nil {
			err = s.putTasks(ctx, ids, b)
		}
		if err == nil && !time.Now().Before(beat) {
			beat = time.Now().Add(beatEvery)
			err = s.beat(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// changes returns the tasks that the next record has changed, and those that are there behind it, up to one of number end; and
// the batch that they belong to. It waits for that record until the next beat: then the batch has no place.
func (s *session) changes(ctx context.Context, f *follow.Follower, beat time.Time, end uint64) (ids []string, b *batch, err error) {
	waiting, cancel := context.WithDeadline(ctx, beat)
	defer cancel()
	b = &batch{since: s.o.Now()}
	var last *ledger.Section
	known, hasAccounts := map[string]bool{}, false
	for len(ids) < maxTasks && (last == nil || b.to.seq < end) {
		sec, err := f.Next(waiting)
		if last == nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return nil, b, nil
		}
		if last == nil && err != nil {
			return nil, nil, err
		}
		if err != nil {
			break // nothing more is there, or the error comes again
		}
		switch id := string(sec.ID); {
		case sec.Kind == ledger.KindControl && id == mark.Restore:
			return nil, nil, errRestored
		case sec.Kind == ledger.KindControl:
			hasAccounts = hasAccounts || strings.HasPrefix(id, state.ControlAccount)
		case sec.Kind == ledger.KindTask && !sec.IsNote() && !known[id]:
			known[id] = true
			ids = append(ids, id)
		}
		if f.Place() < sec.Seq {
			continue // it is a mark: the cursor moves with what was merged, which comes
		}
		if at, err := state.ParseTime(sec.Value(state.KeyUpdatedAt)); last == nil && err == nil && !at.IsZero() && at.Before(b.since) {
			b.since = at
		}
		last, b.to = sec, &place{seq: f.Place(), digest: digestOf(sec), generation: s.at.generation}
		cancel() // from now on Next returns what is there, and does not wait
	}
	if b.to.seq > last.Seq { // nothing of what was merged comes
		if b.to.digest, err = digestAt(ctx, s.src, b.to.seq); err != nil {
			return nil, nil, err
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
		if size += rows.size; size > maxBytes && len(last.tasks) > 0 {
			if err := s.put(ctx, &batch{tasks: last.tasks, since: last.since}); err != nil {
				return err
			}
			last.tasks, size = nil, rows.size
		}
		last.tasks = append(last.tasks, rows)
	}
	return s.put(ctx, last)
}

// read returns the rows of a task; nil if there is none of that id any more.
func (s *session) read(ctx context.Context, id string) (*taskRows, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	im, err := s.src.TaskRecord(id)
	if errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		return nil, nil
	}
	var rows *taskRows
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
