package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"stint/ledger"

	"github.com/fsnotify/fsnotify"
)

// lookEvery is how often tasks.md is looked at when nothing tells of a change:
// watches fail on some file systems, and their number is limited. It is also how long
// the file must have rested before it is read to see whether it is what was written: no
// file system's clock has longer ticks.
const lookEvery = 2 * time.Second

// watch takes over what others change in tasks.md until ctx ends. It watches the
// directory, because most editors replace the file.
func (l *Log) watch(ctx context.Context) {
	events, faults, stop := l.events()
	defer stop()
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
			case name == ledger.TasksName, e.Name == l.opts.Dir:
			case name == ledger.JournalName && (!e.Has(fsnotify.Write) || l.journal.isShort()): // it was moved, removed, replaced or cut
			default:
				continue
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
		if err := l.takeOver(ctx, ctx); err != nil && ctx.Err() == nil {
			now = &ledger.SyntaxError{File: ledger.TasksName, Msg: err.Error()}
		}
		l.mu.Lock()
		before := l.unread
		l.unread = now
		l.mu.Unlock()
		if now != nil && (before == nil || *before != *now) {
			l.note(ledger.Notice{Finding: now, Text: fmt.Sprintf("%s was not taken over: %s", ledger.TasksName, now.Msg)})
		}
	}
}

// events returns the changes in the state directory; a nil channel if they cannot
// be watched.
func (l *Log) events() (<-chan fsnotify.Event, <-chan error, func()) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(l.opts.Dir); err == nil {
			return w.Events, w.Errors, func() { _ = w.Close() } // nothing is lost with a watch
		}
		_ = w.Close()
	}
	l.note(ledger.Notice{Text: fmt.Sprintf("cannot watch %s (%v); edits are seen within %s", l.opts.Dir, err, lookEvery)})
	return nil, nil, func() {}
}

// takeOver reconciles if another hand has changed tasks.md and has finished
// doing so; for that it waits until rest ends.
func (l *Log) takeOver(ctx, rest context.Context) error {
	for l.tasks.changed() {
		if !l.settled(rest) {
			return nil
		}
		if gone := (fileID{}); l.tasks.isStill(gone) && !l.stays(rest, gone, settleCut-settle) {
			continue // an editor that moves the old file away first is writing the new one
		}
		if err := l.nudge(); err != nil { // what is missing is made anew, but not the state directory
			return err
		}
		snap, err := l.tasks.read(ctx)
		if err != nil {
			return err
		}
		if !l.stays(rest, snap.id, l.tasks.restOf(snap)-settle) {
			continue
		}
		l.looking.Lock()
		c, _, err := l.look(ctx, snap, false)
		l.looking.Unlock()
		if err := errors.Join(err, c.trouble); c.done || err != nil {
			return err
		}
	}
	return nil
}

// look compares a state of tasks.md and carries out what is to be done. The
// caller holds looking.
func (l *Log) look(ctx context.Context, snap snapshot, accept bool) (c carry, p *planned, err error) {
	if err := l.nudge(); err != nil { // what is compared must be the journal
		return carry{}, nil, err
	}
	doc, err := l.parse(ctx, snap)
	if err != nil {
		return carry{}, nil, err
	}
	p, err = l.planFor(ctx, snap, doc, accept)
	if err == nil {
		err = l.secure(p)
	}
	if err != nil {
		return carry{}, nil, err
	}
	err = l.enqueue(&update{done: make(chan error, 1), side: func() (err error) {
		c, err = l.carryOut(snap, p)
		return err
	}})
	return c, p, err
}

// nudge lets the log's goroutine see that the journal holds its place.
func (l *Log) nudge() error {
	return l.enqueue(&update{done: make(chan error, 1), side: func() error { return nil }})
}

// restLimit is how long those who wait for an answer wait for tasks.md to come to rest.
const restLimit = 8 * time.Second

// untilRest ends with ctx, or when restLimit is over, with the error that says so.
func untilRest(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, restLimit, notNow("try again", "%s is being changed all the time", ledger.TasksName))
}

// settled waits until tasks.md has rested for a while, also where it is gone
// (read makes it anew then). It returns false if ctx ends.
func (l *Log) settled(ctx context.Context) bool {
	for ctx.Err() == nil {
		if l.stays(ctx, l.tasks.now(), settle) {
			return true
		}
	}
	return false
}

// rested waits until tasks.md has rested, if another hand has changed it just now.
// It returns false if ctx ends.
func (l *Log) rested(ctx context.Context) bool {
	age := time.Since(time.Unix(0, l.tasks.now().mtime))
	return age < 0 || age >= settle || !l.tasks.changed() || l.settled(ctx)
}

// stays reports whether tasks.md stays in the state id for that long; false if ctx ends.
func (l *Log) stays(ctx context.Context, id fileID, long time.Duration) bool {
	for ; long > 0; long -= settle {
		if !wait(ctx, settle) || !l.tasks.isStill(id) {
			return false
		}
	}
	return true
}

// wait returns false if ctx ends before d is over.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
