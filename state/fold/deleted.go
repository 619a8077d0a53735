package fold

import (
	"slices"
	"strings"

	"stint/ledger"
	"stint/state/table"
)

// ControlDeleted is the control record that hides finished tasks whose sections a
// person has deleted, and shows those again whose sections are back. KeyTasks and
// KeyBack are its lists of ids, one a line; those in KeyRemoved were removed by a command
// and stay hidden although their sections are there.
const (
	ControlDeleted = "deleted"
	KeyTasks       = "tasks"
	KeyBack        = "back"
	KeyRemoved     = "removed"
)

// Gone returns what becomes of tasks whose sections a person has deleted from the
// ledger: gone has "Task id" of all that have none left. Those in canceled have
// not ended; those in hidden have, and are not hidden yet; those in back are
// hidden and no longer gone. Each list is sorted.
func (s *State) Gone(gone map[string]bool) (canceled, hidden, back []string) {
	for name := range gone {
		id, isTask := strings.CutPrefix(name, string(ledger.KindTask)+" ")
		n := s.Number(id)
		switch {
		case !isTask || n == 0:
		case s.Live(n) != nil:
			canceled = append(canceled, id)
		case !s.Entries.At(n).Deleted:
			hidden = append(hidden, id)
		}
	}
	for n := range s.deleted {
		if id := s.ID(n); !gone[string(ledger.KindTask)+" "+id] {
			back = append(back, id)
		}
	}
	slices.Sort(canceled)
	slices.Sort(hidden)
	slices.Sort(back)
	return canceled, hidden, back
}

// applyDeleted folds the control record of that name. Ids that are unknown, or of
// tasks that have not ended, are passed over.
func (s *State) applyDeleted(sec *ledger.Section) {
	for _, key := range []string{KeyTasks, KeyRemoved} {
		for id := range strings.FieldsSeq(sec.Value(key)) {
			n := s.Number(id)
			if e := s.Entries.At(n); n != 0 && s.Live(n) == nil && !e.Deleted && e.Kept == table.InJournal {
				e.Deleted = true
				s.counts[e.StatusIndex]--
				if key == KeyTasks {
					s.deleted[n] = true
				}
			}
		}
	}
	for id := range strings.FieldsSeq(sec.Value(KeyBack)) {
		if n := s.Number(id); n != 0 {
			s.show(n)
		}
	}
}

// show brings a hidden task back to the lists.
func (s *State) show(n uint32) {
	if e := s.Entries.At(n); e.Deleted {
		e.Deleted = false
		delete(s.deleted, n)
		s.counts[e.StatusIndex]++
	}
}
