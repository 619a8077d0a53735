package fold

import (
	"time"

	"stint/state"
	"stint/state/lanes"
)

// Queue returns the tasks that wait in the lane of that key, in the order in which
// they will run, without their texts but with titles. Running ones are not among
// them. The error is that of the Reader.
func (s *State) Queue(key string) (tasks []state.Task, err error) {
	for _, n := range s.QueueOf(key) {
		t, err := s.row(n)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// NativeOwner returns the agent whose native session has that id, as far as the
// sessions that are known tell. One that the agent did not know is not its own.
func (s *State) NativeOwner(native string) (agent string, ok bool) {
	return s.OwnerOf(native, func(n uint32) bool { // its last task failed because the agent did not know it
		var t state.Folded
		return s.Entries.At(n).Status() == state.Failed && s.read(n, &t, state.KeepNone) == nil && t.Reason == state.ClassSessionLost
	})
}

// Why says in one sentence why a task does not run now, or how it ended, and, of one
// that another task has queued, why that did. Times are in the zone of now. It gives
// the first reason that must go away, though there may be more behind it.
func (s *State) Why(id string, now time.Time, lim lanes.Limits) string {
	n := s.Number(id)
	switch {
	case n == 0:
		return "there is no task " + id
	case s.Live(n) != nil:
		return s.WhyLive(n, now, lim) + s.whyQueued(n)
	}
	var t state.Folded
	if s.read(n, &t, state.KeepNone) != nil {
		t = state.Folded{} // what the entry says is all that is known
	}
	return s.WhyEnded(n, &t.Task, now) + s.whyQueued(n)
}

// whyQueued says which task has queued another one, and why.
func (s *State) whyQueued(n uint32) string {
	parent := s.family.parents[n].id
	if parent == "" {
		return ""
	}
	var t state.Folded
	if now, err := s.nowOf(s.ID(n)); err == nil {
		t = now
	}
	switch {
	case t.Trigger == state.OnFailure:
		return "; it was queued because " + parent + " failed"
	case t.Trigger == state.OnIssue:
		return "; it was queued because of the findings about " + parent
	case t.Trigger == state.ByAgent:
		return "; the agent of " + parent + " has queued it"
	}
	return "; it was queued by " + parent
}
