package task

import (
	"cmp"
	"sync"
	"time"

	"stint/state"
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
		s.life.calls--
		s.life.mu.Unlock()
		s.NoteUse()
	}
}

// NoteUse notes that the master was of use until now: its idle time begins.
func (s *Store) NoteUse() {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.life.lastCall = s.Config.Now()
}

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

// RecoverTimeout bounds how long the old processes of a run may take to die.
const RecoverTimeout = 30 * time.Second

// EndLimit bounds how long a run with that grace time is waited for once it is to end.
func EndLimit(grace time.Duration) time.Duration { return 2*grace + RecoverTimeout }

// Timeout returns how long a run of a task may take; 0: without an end.
func (s *Store) Timeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.Timeout); err == nil {
		return d
	}
	if d := s.Workspace(t.Workspace).Timeout; d != nil {
		return *d
	}
	return s.Config.Timeout
}

// VerifyTimeout returns how long a task's verify command may take; 0: without an end.
func (s *Store) VerifyTimeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.VerifyTimeout); err == nil {
		return d
	}
	if d := s.Workspace(t.Workspace).VerifyTimeout; d != nil {
		return *d
	}
	return s.Config.VerifyTimeout
}

// MaxIterations returns how many iterations a task's verify loop may have.
func (s *Store) MaxIterations(t *state.Task) int {
	return cmp.Or(t.MaxIterations, s.Workspace(t.Workspace).MaxIterations, s.Config.MaxIterations)
}
