package attempt

import "stint/coordinator/admission"

// Attempts carry out what the dispatcher has started. Their methods may be called by any
// goroutine.
type Attempts struct {
	*admission.Admission
	shortages *Shortages
}

// New returns the attempts at the tasks of an admission's store.
func New(a *admission.Admission, s *Shortages) *Attempts { return &Attempts{a, s} }
