package ledger

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// lookEvery is how often tasks.md is looked at when nothing tells of a change:
// watches fail on some file systems, and their number is limited.
const lookEvery = 2 * time.Second

// watch takes over what others change in tasks.md until ctx ends. It watches the
// directory, because most editors replace the file.
func (l *Log) watch(ctx context.Context) {
	events, faults, stop := l.events()
	defer stop()
	var told string // the trouble that was reported last
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
			if filepath.Base(e.Name) != TasksName {
				continue
			}
		case _, ok := <-faults: // an overflow, say: look
			if !ok {
				faults = nil
			}
		case <-tick.C:
		}
		trouble := ""
		if err := l.takeOver(ctx); err != nil && ctx.Err() == nil {
			trouble = fmt.Sprintf("%s was not taken over: %v", TasksName, err)
		}
		if trouble != told && trouble != "" {
			l.note(Notice{Text: trouble})
		}
		told = trouble
	}
}

// events gives the changes in the state directory; a nil channel if they cannot
// be watched.
func (l *Log) events() (<-chan fsnotify.Event, <-chan error, func()) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(l.opts.Dir); err == nil {
			return w.Events, w.Errors, func() { _ = w.Close() } // nothing is lost with a watch
		}
		_ = w.Close()
	}
	l.note(Notice{Text: fmt.Sprintf("cannot watch %s (%v); edits are seen within %s", l.opts.Dir, err, lookEvery)})
	return nil, nil, func() {}
}

// takeOver reconciles if another hand has changed tasks.md and has finished
// doing so.
func (l *Log) takeOver(ctx context.Context) error {
	for l.tasks.changed() {
		if !l.settled(ctx) {
			return nil
		}
		snap, err := l.tasks.read()
		if err != nil {
			return err
		}
		p, err := l.planFor(snap)
		if err != nil {
			return err
		}
		done := false
		err = l.enqueue(&update{done: make(chan error, 1), side: func() (err error) {
			done, err = l.carryOut(snap, p)
			return err
		}})
		if done || err != nil {
			return err
		}
	}
	return nil
}

// settled waits until tasks.md has rested for a while, also where it is gone
// (read makes it anew then). It gives false if ctx ends.
func (l *Log) settled(ctx context.Context) bool {
	for last := l.tasks.now(); ; {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(settle):
		}
		now := l.tasks.now()
		if now == last {
			return true
		}
		last = now
	}
}
