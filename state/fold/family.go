package fold

import (
	"slices"

	"stint/state"
)

// A family knows which tasks were queued by others, for as long as they are known, the archived ones too.
type family struct {
	parents  map[uint32]parent   // in State.Entries; of tasks that have one
	children map[string][]string // by the parent's id; sorted, for they come up in another order after a restart
}

// A parent is the task that has queued another one.
type parent struct {
	id    string
	asked bool // its agent asked for that
}

// noteParent notes which task has queued task n, and why; "" if none has.
func (s *State) noteParent(n uint32, by string, why state.Trigger) {
	f, old, next := &s.family, s.family.parents[n], parent{by, why == state.ByAgent}
	if old == next || by == "" && old.id == "" {
		return // as nearly always
	}
	id := s.ID(n)
	if old.id != "" && old.id != by {
		f.children[old.id] = slices.DeleteFunc(f.children[old.id], func(child string) bool { return child == id })
		if len(f.children[old.id]) == 0 {
			delete(f.children, old.id)
		}
	}
	if by == "" {
		delete(f.parents, n)
		return
	}
	f.parents[n] = next
	if at, known := slices.BinarySearch(f.children[by], id); !known {
		f.children[by] = slices.Insert(f.children[by], at, id)
	}
}

// parentOf returns the id of the task that has queued this one; "" if none has.
func (s *State) parentOf(id string) string {
	return s.family.parents[s.Number(id)].id
}

// FollowUps returns the ids of the tasks that a task has queued, for whatever reason, in the order of the ids.
func (s *State) FollowUps(id string) []string { return slices.Clone(s.family.children[id]) }

// Asked counts those tasks that a task has queued because its agent asked for them.
func (s *State) Asked(id string) (count int) {
	for _, child := range s.family.children[id] {
		if s.family.parents[s.Number(child)].asked {
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
