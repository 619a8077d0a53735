package lanes

import (
	"slices"

	"stint/state"
)

// dependants knows which live tasks come after which, and which of them may come after one that has ended badly.
type dependants struct {
	of    map[string][]uint32 // id of a task, which need not be there, to those that come after it, oldest first
	maybe map[uint32]bool     // to be looked at by BlockedByDependency
}

// noteAfter notes what task n comes after, which was the list before.
func (d *dependants) noteAfter(n uint32, before, now []string) {
	if slices.Equal(before, now) {
		return
	}
	for _, id := range before {
		tasks := d.of[id]
		if i, there := slices.BinarySearch(tasks, n); there && len(tasks) == 1 {
			delete(d.of, id)
		} else if there {
			d.of[id] = slices.Delete(tasks, i, i+1)
		}
	}
	for _, id := range now {
		if i, there := slices.BinarySearch(d.of[id], n); !there {
			d.of[id] = slices.Insert(d.of[id], i, n)
		}
	}
}

// AfterNobody returns the queued tasks that come after one that is not there, each with that one.
func (s *Queues) AfterNobody() (list [][2]string) {
	for id, tasks := range s.after.of {
		for _, n := range tasks {
			if s.Number(id) == 0 && s.live[n].is(state.Queued) {
				list = append(list, [2]string{s.ID(n), id})
			}
		}
	}
	slices.SortFunc(list, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return list
}

// BlockedByDependency returns the queued tasks that come after one that has ended otherwise than done, or after another of the
// list, which is then before them. They can never run. Those whose afterPolicy is any are not among them, nor are those on
// hold: a person looks after them. A call costs nothing when nothing has changed.
func (s *Queues) BlockedByDependency() []state.Task {
	var list []*Item
	for n := range s.after.maybe {
		l, bad := s.live[n], false
		if l != nil && l.is(state.Queued) {
			_, _, bad = s.EndedBadly(s.afterOf(l), l.afterAny)
		}
		switch {
		case !bad:
			delete(s.after.maybe, n)
		case !l.Hold:
			list = append(list, l)
		}
	}
	slices.SortFunc(list, byAge)
	seen := map[uint32]bool{}
	for _, l := range list {
		seen[l.N] = true
	}
	for i := 0; i < len(list); i++ {
		for _, n := range s.after.of[s.ID(list[i].N)] { // they would fail with it
			if l := s.live[n]; !seen[n] && l.is(state.Queued) && !l.Hold && !l.afterAny {
				seen[n] = true
				list = append(list, l)
			}
		}
	}
	return s.views(list)
}

// Dependants returns the tasks that would fail if that one did: each stands before those that it comes after.
func (s *Queues) Dependants(id string) (ids []string) {
	seen := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		for _, n := range s.after.of[id] {
			if next := s.ID(n); !seen[next] && !s.live[n].afterAny {
				seen[next] = true
				visit(next)
				ids = append(ids, next)
			}
		}
	}
	visit(id)
	return ids
}

// EndedBadly returns the first task, and its status, of a list that a task must come after, and that has ended
// otherwise than done, so that it cannot run; bad is false if there is none, and with whatever.
func (s *Queues) EndedBadly(after []string, whatever bool) (id string, st state.Status, bad bool) {
	if whatever {
		return "", "", false
	}
	for _, id := range after {
		n := s.Number(id)
		if st := s.Entries.At(n).Status(); n != 0 && st.Terminal() && st != state.Done {
			return id, st, true
		}
	}
	return "", "", false
}
