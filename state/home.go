package state

import (
	"maps"
	"slices"
	"strings"

	"stint/ledger"
)

// A home is the workspace of the latest task of a session that a user submitted and that
// waits for its turn or has run.
type home struct {
	n       uint32 // the task
	dir, by uint32 // in State.names; by is ledger.ByHand: see Task.WorkspaceByHand
}

// noteHome takes over what the last record of a task says of the workspace of its
// session. A task that is held counts once it is released. One that an agent asked for
// never does: it would choose where the tasks of a person are run.
func (s *State) noteHome(l *live, t *folded) {
	began := t.RunID != "" || l.waits()
	if t.Workspace == "" || t.Trigger != "" || !began || t.SessionKey == "" || strings.HasPrefix(t.SessionKey, LanePrefixTask) {
		return
	}
	by := ""
	if t.WorkspaceByHand {
		by = ledger.ByHand
	}
	if key := s.entries.at(l.n).key; l.n >= s.homes[key].n {
		s.homes[key] = home{l.n, s.names.number(t.Workspace), s.names.number(by)}
	}
}

// home gives that of a session key; the zero one if there is none.
func (s *State) home(key string) home { return s.homes[s.names.numbers[key]] }

// HomeOf gives the workspace of a task: its own, else that of its session, else root,
// which a person has configured; "": it has none, and waits. by is who has named one that
// is not its own, as in [KeyWorkspaceBy].
func (s *State) HomeOf(t *Task, root string) (dir, by string) {
	if t.Workspace != "" {
		return t.Workspace, ""
	}
	if h := s.home(t.SessionKey); h.n != 0 {
		return s.names.list[h.dir], s.names.list[h.by]
	}
	return root, ledger.ByHand
}

// laneAt gives the lane in which a queued task will run: with neither a session nor a
// workspace it waits in another one than that of the directory which it takes.
func (s *State) laneAt(l *live, lim Limits) *lane {
	if !l.homeless || s.entries.at(l.n).key != 0 {
		return l.lane
	}
	key := LanePrefixDir + lim.WorkspaceRoot
	if ln := s.lanes[key]; ln != nil {
		return ln
	}
	return &lane{key: key} // nobody is there
}

// Homeless gives the ids of the queued tasks that have no workspace, oldest first.
func (s *State) Homeless(root string) (ids []string) {
	for _, n := range slices.Sorted(maps.Keys(s.bare)) {
		if s.whyHome(&s.whole(s.bare[n]).Task, root) != "" {
			ids = append(ids, s.id(n))
		}
	}
	return ids
}
