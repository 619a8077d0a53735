package state

import "slices"

// A family knows which tasks were queued by others, for as long as they are known,
// the archived ones too.
type family struct {
	parents  map[uint32]string   // in State.entries; of tasks that have one
	children map[string][]string // by the parent's id; in the order in which they came up
}

func newFamily() family {
	return family{parents: map[uint32]string{}, children: map[string][]string{}}
}

// noteParent says which task has queued task n; "" if none has.
func (s *State) noteParent(n uint32, parent string) {
	f, old := &s.family, s.family.parents[n]
	if old == parent {
		return
	}
	id := s.id(n)
	if old != "" {
		f.children[old] = slices.DeleteFunc(f.children[old], func(child string) bool { return child == id })
		delete(f.parents, n)
	}
	if parent != "" {
		f.parents[n] = parent
		f.children[parent] = append(f.children[parent], id)
	}
}

// Parent gives the id of the task that has queued this one; "" if none has.
func (s *State) Parent(id string) string {
	n, _ := s.ids.find([]byte(id))
	return s.family.parents[n]
}

// FollowUps gives the ids of the tasks that a task has queued, for whatever reason,
// archived ones first.
func (s *State) FollowUps(id string) []string { return slices.Clone(s.family.children[id]) }

// Depth counts the tasks that led to this one, each having queued the next, but no
// more than most: a person may have written a circle.
func (s *State) Depth(id string, most int) (n int) {
	for n < most {
		if id = s.Parent(id); id == "" {
			break
		}
		n++
	}
	return n
}

// RunningAs gives the id of the task whose present run that is; ok is false if no
// task runs so.
func (s *State) RunningAs(run string) (id string, ok bool) {
	for _, l := range s.running {
		if run != "" && l.RunID == run {
			return s.id(l.n), true
		}
	}
	return "", false
}

// sorted gives all follow-ups in an order that compaction does not change.
func (f *family) sorted() map[string][]string {
	m := map[string][]string{}
	for parent, children := range f.children {
		if len(children) > 0 {
			m[parent] = slices.Sorted(slices.Values(children))
		}
	}
	return m
}
