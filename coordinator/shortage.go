package coordinator

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A shortage is the machine's and not a task's: what keeps one run from beginning keeps
// all others from it. So a run that meets one is queued again as it was, no more tasks
// are started, and at growing intervals one finds out whether that is over.

// The first and the longest wait until a task finds out whether a shortage is over.
const (
	firstProbe = time.Second
	lastProbe  = 5 * time.Minute
)

// shortOf says in plain words what is lacking; DIR is the state directory.
var shortOf = map[syscall.Errno]string{
	syscall.ENOSPC: "no room is left on the disk of DIR",
	syscall.EDQUOT: "the disk quota for DIR is used up",
	syscall.EMFILE: "stint has as many files open as it may (ulimit -n)",
	syscall.ENFILE: "the machine has as many files open as it can",
	syscall.EAGAIN: "no more processes can be started",
	syscall.ENOMEM: "the machine has no memory left",
}

// lack says what is lacking, which of a disk may be inodes.
func (c *Coordinator) lack(n syscall.Errno) string {
	text := shortOf[n]
	var fs unix.Statfs_t
	if n == syscall.ENOSPC && unix.Statfs(c.Config.StateDir, &fs) == nil && fs.Files > 0 && fs.Ffree == 0 {
		text = "no inodes are left on the disk of DIR"
	}
	return strings.Replace(text, "DIR", c.Config.StateDir, 1)
}

// A lacking is a present shortage.
type lacking struct {
	task.Shortage
	wait    time.Duration
	journal bool // it is the journal that could not be written: its next write tells whether that is over
}

// Shortage tells of what the machine lacks while tasks wait for it; nil if nothing.
func (c *Coordinator) Shortage() *task.Shortage {
	lim, waiting := c.limits(), task.Read(c.Store, (*fold.State).Queued)
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	if c.short == nil || waiting == 0 {
		return nil
	}
	return &task.Shortage{What: c.short.What, Since: c.short.Since, Next: lim.Again}
}

// lacks notes a shortage. Once it is known, only a probe, or a write to the journal that
// is one, says more: when the next one comes. To try the journal again costs nothing.
func (c *Coordinator) lacks(n syscall.Errno, isProbe, journal bool) {
	what, now := c.lack(n), c.Config.Now()
	c.runsMu.Lock()
	s := c.short
	begins := s == nil
	switch {
	case begins:
		s = &lacking{Shortage: task.Shortage{Since: now}, wait: firstProbe, journal: journal}
	case !isProbe || s.journal != journal:
		c.runsMu.Unlock()
		return
	case !journal:
		s.wait = min(2*s.wait, lastProbe)
	}
	s.What, s.Next = what, now.Add(c.spread(float64(s.wait)))
	c.short = s
	c.runsMu.Unlock()
	if begins {
		c.SetShort(true)
		c.Config.Log.Error(what + ": no task is started until that is over; one at a time tries it")
	}
}

// regains ends the present shortage if it is one that is over.
func (c *Coordinator) regains(isOver func(*lacking) bool) {
	c.runsMu.Lock()
	s := c.short
	over := s != nil && isOver(s)
	if over {
		c.short, c.wasShort, c.shortOver = nil, s, c.Config.Now()
	}
	c.runsMu.Unlock()
	if over {
		c.SetShort(false)
		c.Config.Log.Warn("tasks are started again: the shortage is over", "what", s.What, "lasted", c.Config.Now().Sub(s.Since).Round(time.Second).String())
		c.poke()
	}
}

// shortLasts is how long after a shortage agents may still meet it: all tasks that have
// waited are started at once then, and each needs more than its start.
const shortLasts = 2 * time.Second

// blameShortage makes an interruption of it that an agent has ended with an error while the
// machine lacked something, or just after that: it may have met that itself, which its
// exit code does not say. The task uses up one of its retries, of which there is an end,
// and nothing else.
func (c *Coordinator) blameShortage(r *run, out *task.Outcome) {
	c.runsMu.Lock()
	s := c.short
	if s == nil && r.begun.Before(c.shortOver.Add(shortLasts)) {
		s = c.wasShort
	}
	c.runsMu.Unlock()
	if s != nil {
		out.Class, out.Error = state.ClassInterrupted, s.What+", and "+out.Error
	}
}

// begun notes that the agent or the command of a run is at work. One that had begun before
// says nothing about what is lacking since.
func (c *Coordinator) begun(r *run) {
	c.regains(func(s *lacking) bool { return !s.journal && r.begun.After(s.Since) })
}

// journalWritten notes whether the journal's disk has room.
func (c *Coordinator) journalWritten(err error) {
	switch {
	case errors.Is(err, ledger.ErrFull):
		c.lacks(syscall.ENOSPC, true, true)
	case err == nil:
		c.regains(func(s *lacking) bool { return s.journal })
	}
}
