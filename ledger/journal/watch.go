package journal

import (
	"context"
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
			case name == ledger.TasksName, e.Name == l.opts.Dir:
			case name == ledger.JournalName && !e.Has(fsnotify.Write): // it was moved, removed or replaced
			default: // unless another hand has made the journal shorter
				if fi, err := l.opts.FS.Stat(l.journal.path); name != ledger.JournalName || err != nil || fi.Size() >= l.Size() {
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
		if err := l.Settle(ctx); err != nil && ctx.Err() == nil {
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
