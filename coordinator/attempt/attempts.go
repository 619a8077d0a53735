// Package attempt runs one attempt at a task: a chain of runs, which are an agent's
// turn, the verify command and the turn after it, as long as that does not pass, and, where it
// is configured, an evaluator's look at the answer. It builds the prompt, locks the session,
// is notified of what the agent reports, decides by one table ([Attempts.judge]) what becomes of the
// task, and records that with its follow-up in one change.
//
// It knows nothing of other runs at work: the dispatcher above starts an attempt and waits for
// its end. What keeps every run of the machine from beginning is noted in [Shortages].
package attempt

import (
	"stint/coordinator/admission"
	"stint/coordinator/queue"
)

// Attempts run what the dispatcher has started. Their methods may be called by any
// goroutine.
type Attempts struct {
	tasks     *queue.Store
	admission *admission.Admission
	shortages *Shortages
	beside    beside
}

// New returns the attempts at the tasks of a store. Their follow-ups go through the
// admission to it.
func New(s *queue.Store, a *admission.Admission, short *Shortages) *Attempts {
	return &Attempts{
		tasks: s, admission: a, shortages: short,
		beside: beside{open: map[string]string{}, last: map[string]string{}},
	}
}
