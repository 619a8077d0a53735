package state

import (
	"encoding/json"
	"errors"

	"stint/ledger"
)

// errArchived says that a task's records are not in the journal any more.
var errArchived = errors.New("the task was archived")

// Archive notes a task that compaction has moved out of the journal. It is for the
// entries of the archive's index, in their order, before any record: a task that
// has records after that was brought back.
func (s *State) Archive(a ledger.ArchiveEntry) {
	n, _ := s.ids.find([]byte(a.ID))
	if n == 0 {
		n = s.add([]byte(a.ID), 0)
		s.away++
	}
	e := s.entries.at(n)
	e.kept, e.status, e.updated = inArchive, Done.index(), unixMilli(a.UpdatedAt)
	if st, err := ParseStatus(a.Status); err == nil {
		e.status = st.index()
	}
	e.last = s.refs.add(ref{off: a.Off, prev: s.names.number(a.File)})
	s.rekey(n, "", a.Key)
	s.noteParent(n, a.Parent, Trigger(a.Trigger))
}

// Archived gives where a task stands that was moved out; ok is false of any other.
// Its Key is left empty.
func (s *State) Archived(id string) (a ledger.ArchiveEntry, ok bool) {
	n, _ := s.ids.find([]byte(id))
	if n == 0 || s.entries.at(n).kept != inArchive {
		return a, false
	}
	e := s.entries.at(n)
	r := s.refs.at(e.last)
	return ledger.ArchiveEntry{ID: id, Status: string(statuses[e.status]), UpdatedAt: e.updatedAt(), File: s.names.list[r.prev], Off: r.off}, true
}

// TaskOf gives the task that one record says, with its texts: the whole record of
// a task in the archive.
func TaskOf(sec *ledger.Section) (Task, error) {
	var t folded
	if err := t.apply(sec, nil, keepAll); err != nil {
		return Task{}, err
	}
	t.ID, t.Title = string(sec.ID), TitleOf(t.Prompt)
	return t.Task, nil
}

// dumpArchived writes what is known of a task in the archive.
func (s *State) dumpArchived(d *json.Encoder, n uint32, e *entry) error {
	if e.kept == broughtBack {
		return nil
	}
	return d.Encode(map[string]any{"id": s.id(n), "status": statuses[e.status], "updated": e.updated, "archived": true})
}
