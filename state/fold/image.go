package fold

import (
	"slices"

	"stint/state"
)

// IDs returns the ids of the next tasks, at most n, behind the first done ones of all that
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
	for ; at < s.Entries.Len() && len(list) < n; at++ {
		if _, second := slices.BinarySearch(s.revived, at); !second {
			list = append(list, s.ID(at))
		}
	}
	return list
}

// HoldsKey reports whether, of all tasks that name the idempotency key of t, t has it.
func (s *State) HoldsKey(t *state.Task) bool {
	if t.IdempotencyKey == "" {
		return false
	}
	id, ok := s.ByIdempotencyKey(string(t.IdempotencyKey))
	return ok && id == t.ID
}
