package admission

import (
	"stint/coordinator/queue"
	"stint/state"
)

// An Admission decides about what clients ask for, and appends it to the ledger. Its methods
// may be called by any goroutine.
type Admission struct {
	*queue.Store
	live  Live
	waits waits
}

// Live is what is asked of the runs at work. The dispatcher has them.
type Live interface {
	// TaskOf returns a task as the run that it has knows it, whose workspace is without
	// links; nil if none is at work.
	TaskOf(id string) *state.Task
	// Cancel ends the run of a task with a cause, if there is one.
	Cancel(id string, cause error)
}

// New returns the admission to a store.
func New(s *queue.Store, live Live) *Admission {
	return &Admission{Store: s, live: live, waits: waits{byRun: map[string]int{}}}
}
