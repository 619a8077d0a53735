package state

import (
	"fmt"
	"slices"

	"stint/ledger"
)

// IDs gives the ids of the next tasks, at most n, behind the first done ones of all that
// are known, in the order in which they came, those of the archive first. One that was
// brought back keeps its place among these. So a place stays the same as long as the
// state lives; with a compaction another one takes over, and other places count.
func (s *State) IDs(done, n int) []string {
	at := uint32(done) + 1
	for _, second := range s.revived {
		if second <= at {
			at++
		}
	}
	var list []string
	for ; at < s.entries.len() && len(list) < n; at++ {
		if _, second := slices.BinarySearch(s.revived, at); !second {
			list = append(list, s.id(at))
		}
	}
	return list
}

// HoldsKey reports whether, of all tasks that name the idempotency key of t, t has it.
func (s *State) HoldsKey(t *Task) bool {
	if t.IdempotencyKey == "" {
		return false
	}
	id, ok := s.ByIdempotencyKey(string(t.IdempotencyKey))
	return ok && id == t.ID
}

// TaskAndRuns gives what Task and Runs give, and reads the records once.
func (s *State) TaskAndRuns(id string) (t Task, runs []Run, ok bool, err error) {
	n, _ := s.ids.find([]byte(id))
	if n == 0 {
		return Task{}, nil, false, nil
	}
	var whole folded
	err = s.readEach(n, &whole, keepAll, func(before *Task, sec *ledger.Section) {
		runs = runsAfter(runs, before, &whole.Task, sec)
	})
	if err != nil {
		return Task{}, nil, true, fmt.Errorf("read task %s: %w", id, err)
	}
	whole.ID = id
	for i := range runs {
		runs[i].TaskID = id
	}
	return whole.Task, runs, true, nil
}
