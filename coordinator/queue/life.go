package queue

import (
	"cmp"
	"math"
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
		defer s.life.mu.Unlock()
		s.life.calls--
		s.life.lastCall = s.Config.Now()
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

// RecoverTimeout bounds how long the old processes of a run may take to die.
const RecoverTimeout = 30 * time.Second

// EndLimit bounds how long a run with that grace time is waited for once it is to end.
func EndLimit(grace time.Duration) time.Duration { return 2*grace + RecoverTimeout }

// Timeout returns how long a run of a task may take; 0: without an end.
func (s *Store) Timeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.Timeout); err == nil {
		return d
	}
	return s.Workspace(t.Workspace).Timeout
}

// VerifyTimeout returns how long a task's verify command may take; 0: without an end.
func (s *Store) VerifyTimeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.VerifyTimeout); err == nil {
		return d
	}
	return s.Workspace(t.Workspace).VerifyTimeout
}

// MaxIterations returns how many iterations a task's verify loop may have.
func (s *Store) MaxIterations(t *state.Task) int {
	return cmp.Or(t.MaxIterations, s.Workspace(t.Workspace).MaxIterations)
}

// Backoff is the wait after the n-th failure (from 0): base·2^n, at most most, and of that a
// random part between half and all.
func (s *Store) Backoff(n int, most time.Duration) time.Duration {
	return s.Spread(min(float64(s.Config.BackoffBase)*math.Pow(2, float64(min(n, 30))), float64(most)))
}

// Spread returns a random part of a wait between half and all.
func (s *Store) Spread(d float64) time.Duration {
	return time.Duration(d * (0.5 + 0.5*s.Config.Rand()))
}
