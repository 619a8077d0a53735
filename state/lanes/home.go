package lanes

import (
	"maps"
	"slices"
	"strings"

	"stint/ledger"
	"stint/state"
)

// A home is the workspace of the latest task of a session that a user submitted and that waits for its turn or has run.
type home struct {
	n       uint32 // the task
	dir, by uint32 // in Tasks.Keys; by is ledger.ByHand: see state.Task.WorkspaceByHand
}

// noteHome notes what the last record of a task says of the workspace of its session. A task that is held counts once it is
// released. One that an agent asked for never does: it would choose where the tasks of a person are run.
func (s *Queues) noteHome(l *Item, t *state.Folded) {
	began := t.RunID != "" || l.waits()
	if t.Workspace == "" || t.Trigger != "" || !began || t.SessionKey == "" || strings.HasPrefix(t.SessionKey, state.LanePrefixTask) {
		return
	}
	by := ""
	if t.WorkspaceByHand {
		by = ledger.ByHand
	}
	if key := s.Entries.At(l.N).Key; l.N >= s.homes[key].n {
		s.homes[key] = home{l.N, s.Keys.Number(t.Workspace), s.Keys.Number(by)}
	}
}

// home returns that of a session key; the zero one if there is none.
func (s *Queues) home(key string) home { return s.homes[s.Keys.Numbers[key]] }

// HomeOf returns the workspace of a task: its own, else that of its session, else root, which a person has configured; "": it
// has none, and waits. by is who has named one that is not its own, as in [state.KeyWorkspaceBy].
func (s *Queues) HomeOf(t *state.Task, root string) (dir, by string) {
	if t.Workspace != "" {
		return t.Workspace, ""
	}
	if t.Isolation == state.IsolationTemp { // a person's: its run names the directory, which no other task shares
		return "/" + t.ID, ""
	}
	if h := s.home(t.SessionKey); h.n != 0 {
		return s.Keys.List[h.dir], s.Keys.List[h.by]
	}
	return root, ledger.ByHand
}

// LaneOf returns the key of the lane in which a task will run: with neither a session nor a
// workspace it waits in another one than that of the directory which it takes.
func (s *Queues) LaneOf(t *state.Task, root string) string {
	if t.SessionKey != "" {
		return t.SessionKey
	}
	home, _ := s.HomeOf(t, root)
	return state.LanePrefixDir + home
}

// Homeless returns the ids of the queued tasks that have no workspace, oldest first.
func (s *Queues) Homeless(root string) (ids []string) {
	for _, n := range slices.Sorted(maps.Keys(s.bare)) {
		if dir, _ := s.HomeOf(&s.Whole(s.bare[n]).Task, root); dir == "" {
			ids = append(ids, s.ID(n))
		}
	}
	return ids
}
