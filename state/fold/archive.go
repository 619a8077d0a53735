package fold

import (
	"errors"

	"stint/ledger"
	"stint/state"
	"stint/state/table"
)

// errArchived means that a task's records are not in the journal any more.
var errArchived = errors.New("the task was archived")

// Archive notes a task that compaction has moved out of the journal. It is for the
// entries of the archive's index, in their order, before any record: a task that
// has records after that was brought back.
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
	e.Last = s.refs.Add(ref{off: a.Off, prev: s.files.Number(a.File)})
	s.rekey(n, "", a.Key)
	s.noteParent(n, a.Parent, state.Trigger(a.Trigger))
}

// Archived returns where a task stands that was moved out; ok is false of any other.
// Its Key is left empty.
func (s *State) Archived(id string) (a ledger.ArchiveEntry, ok bool) {
	n := s.Number(id)
	if n == 0 || s.Entries.At(n).Kept != table.InArchive {
		return a, false
	}
	e := s.Entries.At(n)
	r := s.refs.At(e.Last)
	return ledger.ArchiveEntry{ID: id, Status: string(e.Status()), UpdatedAt: e.UpdatedAt(), File: s.files.List[r.prev], Off: r.off}, true
}
