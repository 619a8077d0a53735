package coordinator

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"stint/ledger"
	"stint/state"
)

// A shortage is the machine's and not a task's: what keeps one run from beginning keeps
// all others from it. So a run that meets one is queued again as it was, no more tasks
// are started, and at growing intervals one finds out whether that is over.

// shortages are the errors of a machine that has used up something which comes back:
// room on the disk, open files, processes, memory.
var shortages = []syscall.Errno{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM,
}

// ShortageOf returns the error of the system by which err says that the machine lacks
// something that comes back, so that the same may succeed a while later; 0 if it does not.
func ShortageOf(err error) syscall.Errno {
	for _, s := range shortages {
		if errors.Is(err, s) {
			return s
		}
	}
	return 0
}

// The first and the longest wait until a task finds out whether a shortage is over.
const (
	firstProbe = time.Second
	lastProbe  = 5 * time.Minute
)

// shortMeans says in plain words what is lacking.
var shortMeans = map[syscall.Errno]string{
	syscall.ENOSPC: "no room is left on the disk of %s",
	syscall.EDQUOT: "the disk quota for %s is used up",
	syscall.EMFILE: "stint has as many files open as it may (ulimit -n)",
	syscall.ENFILE: "the machine has as many files open as it can",
	syscall.EAGAIN: "no more processes can be started",
	syscall.ENOMEM: "the machine has no memory left",
}

// lack says what is lacking, which of a disk may be inodes.
func (c *Coordinator) lack(n syscall.Errno) string {
	text := shortMeans[n]
	var fs unix.Statfs_t
	if n == syscall.ENOSPC && unix.Statfs(c.cfg.StateDir, &fs) == nil && fs.Files > 0 && fs.Ffree == 0 {
		text = "no inodes are left on the disk of %s"
	}
	if n == syscall.ENOSPC || n == syscall.EDQUOT {
		text = fmt.Sprintf(text, c.cfg.StateDir)
	}
	return text
}

// A lacking is a present shortage.
type lacking struct {
	Shortage
	wait    time.Duration
	journal bool // it is the journal that could not be written: its next write tells whether that is over
}

// Shortage tells of what the machine lacks while tasks wait for it; nil if nothing.
func (c *Coordinator) Shortage() *Shortage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shortage()
}

// shortage is Shortage. mu is held.
func (c *Coordinator) shortage() *Shortage {
	lim := c.limits()
	if lim.Short == "" || c.state.Counts()[state.Queued] == 0 {
		return nil
	}
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	if c.short == nil {
		return nil
	}
	s := c.short.Shortage
	s.Next = lim.Again
	return &s
}

// lacks notes that a run could not begin for want of something. Only a probe says more
// than the run before it.
func (c *Coordinator) lacks(n syscall.Errno, isProbe bool) {
	what := c.lack(n)
	c.noteShortage(func(s *lacking, now time.Time) *lacking {
		switch {
		case s == nil:
			s = &lacking{Shortage: Shortage{Since: now}, wait: firstProbe}
		case isProbe:
			s.wait = min(2*s.wait, lastProbe)
		default:
			return s
		}
		s.What, s.Next = what, now.Add(c.spread(float64(s.wait)))
		return s
	})
}

// journalWritten notes whether the journal's disk has room. To try that again costs
// nothing, so it is not long until then.
func (c *Coordinator) journalWritten(err error) {
	isFull := errors.Is(err, ledger.ErrFull)
	c.runsMu.Lock()
	s := c.short
	changes := s == nil && isFull || s != nil && s.journal && (isFull || err == nil)
	c.runsMu.Unlock()
	if !changes { // nearly always
		return
	}
	what := c.lack(syscall.ENOSPC)
	c.noteShortage(func(s *lacking, now time.Time) *lacking {
		switch {
		case s == nil && isFull:
			s = &lacking{Shortage: Shortage{Since: now}, journal: true}
		case s == nil || !s.journal || !isFull && err != nil:
			return s
		case !isFull:
			return nil
		}
		s.What, s.Next = what, now.Add(lookAgain)
		return s
	})
}

// regains notes that a run has what it needs to begin: its agent or command is at work.
// One that had begun before says nothing about what is lacking since.
func (c *Coordinator) regains(r *run) {
	c.noteShortage(func(s *lacking, _ time.Time) *lacking {
		if s != nil && !s.journal && r.begun.After(s.Since) {
			return nil
		}
		return s
	})
}

// noteShortage changes the present shortage, nil for none, and logs its begin and its end.
func (c *Coordinator) noteShortage(change func(*lacking, time.Time) *lacking) {
	now := c.cfg.Now()
	c.runsMu.Lock()
	was := c.short
	c.short = change(was, now)
	is := c.short
	c.runsMu.Unlock()
	switch {
	case was == nil && is != nil:
		c.log.Error(is.What + ": no task is started until that is over; one at a time tries it")
	case was != nil && is == nil:
		c.log.Warn("tasks are started again: the shortage is over", "what", was.What, "lasted", now.Sub(was.Since).Round(time.Second))
	}
	if was == nil || is == nil {
		c.poke()
	}
}
