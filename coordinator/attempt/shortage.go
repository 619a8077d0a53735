package attempt

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger/journal"
	"stint/state"
)

// A shortage is the machine's and not a task's: it keeps all runs from beginning. So a run that meets one is
// queued again as it was, and at growing intervals one finds out whether that is over.

// The first and the longest wait until a task finds out whether a shortage is over.
const (
	firstProbe = time.Second
	lastProbe  = 5 * time.Minute
)

// Shortages are what the machine lacks. Their methods may be called by any goroutine.
type Shortages struct {
	store *queue.Store

	mu      sync.Mutex // guards what follows
	present *lacking   // nil: nothing lacks
	before  string     // what the last one was that is over, and since when that is
	over    time.Time
}

// A lacking is a present shortage.
type lacking struct {
	task.Shortage
	wait    time.Duration
	journal bool // it is the journal that could not be written: its next write tells whether that is over
}

// Present returns what is lacking, since when, and when a task tries it; ok is false if nothing is.
func (l *Shortages) Present() (s task.Shortage, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.present == nil {
		return s, false
	}
	return l.present.Shortage, true
}

// met notes a shortage. Once it is known, only a probe, or a write to the journal that is one,
// says more: when the next one comes. To try the journal again costs nothing.
func (l *Shortages) met(n syscall.Errno, isProbe, journal bool) {
	dir, now := l.store.Config.StateDir, l.store.Config.Now()
	what := task.Shortages[n]
	var fs unix.Statfs_t
	if n == syscall.ENOSPC && unix.Statfs(dir, &fs) == nil && fs.Files > 0 && fs.Ffree == 0 {
		what = "no inodes are left on the disk of DIR"
	}
	what = strings.Replace(what, "DIR", dir, 1)
	l.mu.Lock()
	begins := l.present == nil
	switch {
	case begins:
		l.present = &lacking{Shortage: task.Shortage{Since: now}, wait: firstProbe, journal: journal}
	case !isProbe || l.present.journal != journal:
		l.mu.Unlock()
		return
	case !journal:
		l.present.wait = min(2*l.present.wait, lastProbe)
	}
	l.present.What, l.present.Next = what, now.Add(spread(&l.store.Config, float64(l.present.wait), lastProbe))
	l.mu.Unlock()
	if begins {
		l.store.SetShort(true)
		l.store.Config.Log.Error(what + ": no task is started until that is over; one at a time tries it")
	}
}

// ends ends the present shortage if it is one that is over.
func (l *Shortages) ends(isOver func(*lacking) bool) {
	l.mu.Lock()
	s, now := l.present, l.store.Config.Now()
	over := s != nil && isOver(s)
	if over {
		l.present, l.before, l.over = nil, s.What, now
	}
	l.mu.Unlock()
	if over {
		l.store.SetShort(false)
		l.store.Config.Log.Warn("tasks are started again: the shortage is over", "what", s.What, "lasted", now.Sub(s.Since).Round(time.Second).String())
		l.store.Wake()
	}
}

// blame makes an interruption of it that an agent has ended with an error while the machine lacked something,
// or just after that: it may have met that itself, which its exit code does not say. begun is when its run
// did. The task uses up one of its retries, of which there is an end, and nothing else.
func (l *Shortages) blame(begun time.Time, out *task.Outcome) {
	const shortLasts = 2 * time.Second // all tasks that have waited start at once, and each needs more than its start
	l.mu.Lock()
	what := ""
	if l.present != nil {
		what = l.present.What
	} else if begun.Before(l.over.Add(shortLasts)) {
		what = l.before
	}
	l.mu.Unlock()
	if what != "" {
		out.Class, out.Error = state.ClassInterrupted, what+", and "+out.Error
	}
}

// started notes that a run is at work. One that had begun before the shortage says nothing about it.
func (l *Shortages) started(begun time.Time) {
	l.ends(func(s *lacking) bool { return !s.journal && begun.After(s.Since) })
}

// Written notes how a write to the journal ended: whether its disk has room.
func (l *Shortages) Written(err error) {
	switch {
	case errors.Is(err, journal.ErrFull):
		l.met(syscall.ENOSPC, true, true)
	case err == nil:
		l.ends(func(s *lacking) bool { return s.journal })
	}
}
