package fold

import (
	"slices"

	"stint/state"
)

// A parent is the task that has queued another one.
type parent struct {
	id    string
	asked bool // its agent asked for that
}

// noteParent notes which task has queued task n, and why; "" if none has.
func (s *State) noteParent(n uint32, by string, why state.Trigger) {
	if by == "" {
		delete(s.family, n)
	} else {
		s.family[n] = parent{by, why == state.ByAgent}
	}
}

// parentOf returns the id of the task that has queued this one; "" if none has.
func (s *State) parentOf(id string) string {
	return s.family[s.Number(id)].id
}

// FollowUps returns the ids of the tasks that a task has queued, for whatever reason, in the order of the ids.
// It looks at all tasks that others have queued.
func (s *State) FollowUps(id string) (ids []string) {
	for n, p := range s.family {
		if p.id == id {
			ids = append(ids, s.ID(n))
		}
	}
	slices.Sort(ids)
	return ids
}

// Asked counts those tasks that a task has queued because its agent asked for them.
func (s *State) Asked(id string) (count int) {
	for _, p := range s.family {
		if p.asked && p.id == id {
			count++
		}
	}
	return count
}

// Depth counts the tasks that led to this one, each having queued the next, but no
// more than most: a person may have written a circle.
func (s *State) Depth(id string, most int) (n int) {
	for id = s.parentOf(id); id != "" && n < most; id = s.parentOf(id) {
		n++
	}
	return n
}
