package fold

import (
	"errors"
	"slices"
	"strings"

	"stint/ledger"
	"stint/state"
	"stint/state/table"
)

// errArchived means that a task's records are not in the journal any more.
var errArchived = errors.New("the task was archived")

// Archive notes a task that compaction has moved out of the journal. It is for the entries of the archive's
// index, in their order, before any record: a task that has records after that was brought back.
func (s *State) Archive(a ledger.ArchiveEntry) {
	n := s.Number(a.ID)
	if n == 0 {
		n = s.Add([]byte(a.ID), 0)
	}
	e := s.Entries.At(n)
	e.Kept, e.StatusIndex, e.Updated = table.InArchive, state.Done.Index(), table.UnixMilli(a.UpdatedAt)
	if st, err := state.ParseStatus(a.Status); err == nil {
		e.StatusIndex = st.Index()
	}
	e.Last = s.refs.Add(ref{off: a.Off, prev: s.files.Number(a.File), runs: s.sumUpArchived(n, a.Runs)})
	s.rekey(n, "", a.Key)
	s.noteParent(n, a.Parent, state.Trigger(a.Trigger))
}

// Archived returns where a task stands that was moved out; ok is false of any other. Its Key is left empty.
func (s *State) Archived(id string) (a ledger.ArchiveEntry, ok bool) {
	n := s.Number(id)
	if n == 0 || s.Entries.At(n).Kept != table.InArchive {
		return a, false
	}
	e := s.Entries.At(n)
	r := s.refs.At(e.Last)
	return ledger.ArchiveEntry{ID: id, Status: string(e.Status()), UpdatedAt: e.UpdatedAt(), File: s.files.List[r.prev], Off: r.off}, true
}

// ControlDeleted is the control record that hides finished tasks whose sections a person has deleted, and
// shows those again whose sections are back. KeyTasks and KeyBack are its lists of ids, one a line; those in
// KeyRemoved were removed by a command and stay hidden although their sections are there.
const (
	ControlDeleted = "deleted"
	KeyTasks       = "tasks"
	KeyBack        = "back"
	KeyRemoved     = "removed"
)

// Gone returns what becomes of tasks whose sections a person has deleted from the ledger: gone has "Task id"
// of all that have none left. Those in canceled have not ended; those in hidden have, and are not hidden yet;
// those in back are hidden and no longer gone. Each list is sorted.
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

// applyDeleted folds the control record of that name. Ids that are unknown, or of tasks that have not ended, are passed over.
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
