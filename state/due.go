package state

import (
	"container/heap"
	"time"
)

// dueHeap orders the queued tasks that nobody holds by the time from which on they
// wait for their turn: since they were queued or released, or since their notBefore.
type dueHeap []*live

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due().Before(h[j].due()) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dueAt, h[j].dueAt = uint32(i+1), uint32(j+1)
}

// Push is for container/heap.
func (h *dueHeap) Push(x any) {
	*h = append(*h, x.(*live))
	x.(*live).dueAt = uint32(len(*h))
}

// Pop is for container/heap.
func (h *dueHeap) Pop() any {
	i := len(*h) - 1
	x := (*h)[i]
	(*h)[i], *h = nil, (*h)[:i]
	x.dueAt = 0
	return x
}

// waits reports whether the task waits for its turn.
func (l *live) waits() bool { return l.is(Queued) && !l.Hold }

// due gives from when on it does.
func (l *live) due() time.Time {
	since := time.UnixMilli(l.since).UTC()
	if l.NotBefore.After(since) {
		return l.NotBefore
	}
	return since
}

// noteDue puts a queued task where it belongs in the heap. A task whose records give
// no time is not in it.
func (s *State) noteDue(l *live) {
	if !l.waits() || l.since == 0 {
		return
	}
	heap.Push(&s.due, l)
}

// leaveDue takes a task out of the heap.
func (s *State) leaveDue(l *live) {
	if l.dueAt > 0 {
		heap.Remove(&s.due, int(l.dueAt-1))
	}
}

// WaitingSince says since when the task waits for its turn that waits longest; ok is
// false if none does. Held tasks, and those whose notBefore is still to come, do not
// wait for their turn. It costs the same however many tasks there are. A compaction
// forgets it where a task was changed while it waited: the merged record has the time of
// the newest one alone, from which the task waits then.
func (s *State) WaitingSince(now time.Time) (since time.Time, ok bool) {
	if len(s.due) == 0 || s.due[0].due().After(now) {
		return time.Time{}, false
	}
	return s.due[0].due(), true
}

// Held gives the number of queued tasks that are on hold.
func (s *State) Held() int { return s.held }
