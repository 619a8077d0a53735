package journal

import "time"

// Tests have a cache of the smallest ledger too: each log that is opened again where nothing has changed goes on from it.
func init() { minIndexed = 0 }

// Resumed reports whether Open has found all in the cache.
func (l *Log) Resumed() bool { return l.resumed != "" }

// Waiting returns how many updates wait for the log's goroutine.
func (l *Log) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// Gather says how often a log lets others go first that come with one more change each
// time, at most that often.
func Gather(most int) (n int) {
	l := Log{queue: []*update{{}}}
	l.waitForMore(func() {
		if n++; n < most {
			l.queue = append(l.queue, &update{})
		}
	})
	return n
}

// SavedByHand returns when another hand was last seen to have saved tasks.md.
func (l *Log) SavedByHand() time.Time {
	l.looking.Lock()
	defer l.looking.Unlock()
	return l.byHand
}

// Behind reports whether tasks.md was changed by another hand (or could not be
// written) and is yet to be reconciled.
func (l *Log) Behind() bool { return l.tasks.Changed() }

// Remembers returns how many archived tasks the reader of a compacted fold has in memory.
func Remembers(r Reader) int { return len(r.(*beside).gone) }
