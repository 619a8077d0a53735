package lanes

import (
	"container/heap"
	"time"
)

// dueHeap orders the queued tasks that nobody holds by the time from which on they
// wait for their turn: since they were queued or released, or since their notBefore.
type dueHeap []*Item

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due().Before(h[j].due()) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dueAt, h[j].dueAt = uint32(i+1), uint32(j+1)
}

// Push is for container/heap.
func (h *dueHeap) Push(x any) {
	*h = append(*h, x.(*Item))
	x.(*Item).dueAt = uint32(len(*h))
}

// Pop is for container/heap.
func (h *dueHeap) Pop() any {
	i := len(*h) - 1
	x := (*h)[i]
	(*h)[i], *h = nil, (*h)[:i]
	x.dueAt = 0
	return x
}

// due returns from when on it does.
func (l *Item) due() time.Time {
	since := time.UnixMilli(l.since).UTC()
	if l.NotBefore.After(since) {
		return l.NotBefore
	}
	return since
}

// noteDue puts a queued task where it belongs in the heap. A task whose records give
// no time is not in it.
func (s *Queues) noteDue(l *Item) {
	if !l.waits() || l.since == 0 {
		return
	}
	heap.Push(&s.due, l)
}

// leaveDue takes a task out of the heap.
func (s *Queues) leaveDue(l *Item) {
	if l.dueAt > 0 {
		heap.Remove(&s.due, int(l.dueAt-1))
	}
}

// WaitingSince says since when the task waits for its turn that waits longest; ok is
// false if none does. Held tasks, and those whose notBefore is still to come, do not
// wait for their turn. It costs the same however many tasks there are. A compaction
// forgets it where a task was changed while it waited: the merged record has the time of
// the newest one alone, from which the task waits then.
func (s *Queues) WaitingSince(now time.Time) (since time.Time, ok bool) {
	if len(s.due) == 0 || s.due[0].due().After(now) {
		return time.Time{}, false
	}
	return s.due[0].due(), true
}
