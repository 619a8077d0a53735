package fold

import (
	"fmt"

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

// TaskAndRuns returns what Task and Runs give, and reads the records once.
func (s *State) TaskAndRuns(id string) (t state.Task, runs []state.Run, ok bool, err error) {
	n := s.Number(id)
	if n == 0 {
		return state.Task{}, nil, false, nil
	}
	var whole state.Folded
	err = s.readEach(n, &whole, state.KeepAll, func(before *state.Task, sec *ledger.Section) {
		runs = state.RunsAfter(runs, before, &whole.Task, sec)
	})
	if err != nil {
		return state.Task{}, nil, true, fmt.Errorf("read task %s: %w", id, err)
	}
	whole.ID = id
	for i := range runs {
		runs[i].TaskID = id
	}
	return whole.Task, runs, true, nil
}

// EachTask returns the runs of each task in the journal, in the order of age, and the
// runs of a task in their order; of a task that never ran, none. It reads all records
// anew. The error is the Reader's, or f's, which ends it.
func (s *State) EachTask(f func(runs []state.Run) error) error {
	for n := uint32(1); n < s.Entries.Len(); n++ {
		if s.Entries.At(n).Kept != table.InJournal {
			continue
		}
		runs, err := s.runsOf(n)
		if err != nil {
			return err
		}
		if err := f(runs); err != nil {
			return err
		}
	}
	return nil
}

// Runs returns the runs of one task in the journal, in their order, read from its
// records; none if there is no such task. The error is the Reader's.
func (s *State) Runs(id string) ([]state.Run, error) {
	n := s.Number(id)
	if n == 0 || s.Entries.At(n).Kept != table.InJournal {
		return nil, nil
	}
	return s.runsOf(n)
}

func (s *State) runsOf(n uint32) (runs []state.Run, err error) {
	var t state.Folded
	t.ID = s.ID(n)
	for _, off := range s.offsets(n) {
		sec, err := s.reader.SectionAt(off)
		if err != nil {
			return nil, fmt.Errorf("read task %s: %w", t.ID, err)
		}
		before := t.Task
		if err := t.Apply(sec, s.pool, state.KeepNone); err != nil {
			return nil, err
		}
		runs = state.RunsAfter(runs, &before, &t.Task, sec)
	}
	return runs, nil
}

// RunsOf returns the runs of a task that has one record alone.
func RunsOf(sec *ledger.Section) ([]state.Run, error) {
	t, err := TaskOf(sec)
	if err != nil {
		return nil, err
	}
	return state.RunsAfter(nil, &state.Task{}, &t, sec), nil
}
