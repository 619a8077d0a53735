package fold

import (
	"stint/ledger"
	"stint/state"
	"stint/state/table"
)

// TaskOf returns the task that one record says, with its texts: the whole record of
// a task in the archive.
func TaskOf(sec *ledger.Section) (state.Task, error) {
	var t state.Folded
	if err := t.Apply(sec, nil, state.KeepAll); err != nil {
		return state.Task{}, err
	}
	t.ID, t.Title = string(sec.ID), state.TitleOf(t.Prompt)
	return t.Task, nil
}

// TaskAndRuns returns what Task returns, and the runs of the task, and reads the records once.
func (s *State) TaskAndRuns(id string) (t state.Task, runs []state.Run, ok bool, err error) {
	n := s.Number(id)
	if n == 0 {
		return state.Task{}, nil, false, nil
	}
	whole, runs, err := s.readRuns(n, state.KeepAll)
	return whole, runs, true, err
}

// EachTask returns the runs of each task in the journal, in the order of age, and the
// runs of a task in their order; of a task that never ran, none. It reads all records
// anew. The error is the Reader's, or f's, which ends it.
func (s *State) EachTask(f func(runs []state.Run) error) error {
	for n := uint32(1); n < s.Entries.Len(); n++ {
		if s.Entries.At(n).Kept != table.InJournal {
			continue
		}
		_, runs, err := s.readRuns(n, state.KeepNone)
		if err != nil {
			return err
		}
		if err := f(runs); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) readRuns(n uint32, k state.Keep) (state.Task, []state.Run, error) {
	var t state.Folded
	var runs []state.Run
	err := s.read(n, &t, k, func(before *state.Task, sec *ledger.Section) {
		runs = state.RunsAfter(runs, before, &t.Task, sec)
	})
	if err != nil {
		return state.Task{}, nil, err
	}
	return t.Task, runs, nil
}

// RunsOf returns the runs of a task that has one record alone.
func RunsOf(sec *ledger.Section) ([]state.Run, error) {
	t, err := TaskOf(sec)
	if err != nil {
		return nil, err
	}
	return state.RunsAfter(nil, &state.Task{}, &t, sec), nil
}
