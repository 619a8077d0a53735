package queue

import (
	"sync"
	"time"

	"stint/state/fold"
)

// A life is what a master knows about its own end.
type life struct {
	mu       sync.Mutex // guards what follows
	calls    int        // that are at work
	lastCall time.Time
	leaving  bool
	closing  bool
}

// Call notes that a client is being served, until end is called: an idle master does not exit
// meanwhile.
func (s *Store) Call() (end func()) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.life.calls++
	return func() {
		s.life.mu.Lock()
		defer s.life.mu.Unlock()
		s.life.calls--
		s.life.lastCall = s.Config.Now()
	}
}

// NoteUse notes that the master was of use until now: its idle time begins.
func (s *Store) NoteUse() { s.Call()() }

// IdleSince returns since when no client was served; ok is false if one is just being served.
func (s *Store) IdleSince() (since time.Time, ok bool) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return s.life.lastCall, s.life.calls == 0
}

// Leave makes the master start nothing more: it exits when the runs at work have ended.
func (s *Store) Leave() {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.life.leaving = true
}

// Shut makes the master accept nothing more that is to be run: what comes from here on is for
// the next master.
func (s *Store) Shut() {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.life.leaving, s.life.closing = true, true
}

// ShutIfDone is Shut if there is nothing to stay for, and reports whether it was: Leave was
// called, or nobody has called for so long that an idle master exits. isIdle says whether nothing is to be
// done. No call can begin between the question and the end.
func (s *Store) ShutIfDone(isIdle bool) bool {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	quiet := s.life.calls == 0 && s.Config.Now().Sub(s.life.lastCall) >= s.Config.IdleExit
	if s.life.leaving || s.Config.IdleExit > 0 && isIdle && quiet {
		s.life.leaving, s.life.closing = true, true
		return true
	}
	return false
}

// IsLeaving reports whether nothing more is started.
func (s *Store) IsLeaving() bool {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return s.life.leaving
}

// IsShut reports whether nothing more is accepted that is to be run.
func (s *Store) IsShut() bool {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return s.life.closing
}

// Wake makes the dispatcher look again.
func (s *Store) Wake() { s.View(func(*fold.State) { s.wake() }) }
