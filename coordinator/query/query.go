// Package query is the read side of a master: lists and single tasks, why one waits, its runs,
// prompts and files, sessions, usage, metrics, a search of the notes, and a preview of what a
// submit would do. It changes nothing. What it asks of the runs at work, the dispatcher answers
// ([Live]).
package query

import (
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/state/lanes"
)

// A Query answers what is asked of a master's tasks, and changes nothing. Its methods may be
// called by any goroutine.
type Query struct {
	Counters *Counters

	tasks     *queue.Store
	admission *admission.Admission
	attempts  *attempt.Attempts
	live      Live
	start     time.Time // of the master
}

// Live is what is asked of the runs at work. The dispatcher has them.
type Live interface {
	// Limits returns what bounds the tasks that run at the same time.
	Limits() lanes.Limits
	// RunOf returns the run of a task, which may be just being started or ended; nil if it
	// has none.
	RunOf(id string) *attempt.Run
}

// New returns the read side of a master that starts now.
func New(s *queue.Store, adm *admission.Admission, a *attempt.Attempts, live Live) *Query {
	return &Query{Counters: newCounters(s.Config.Agents), tasks: s, admission: adm, attempts: a, live: live, start: s.Config.Now()}
}
