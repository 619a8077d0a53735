package heap

import (
	"slices"
	"testing"
)

type element struct {
	key   int
	place uint32
}

// TestHeap takes elements out of the middle and off the front, and knows the place of each all the while.
func TestHeap(t *testing.T) {
	t.Parallel()
	h := Heap[*element]{Before: func(a, b *element) bool { return a.key < b.key }, Place: func(x *element) *uint32 { return &x.place }}
	check := func(want ...int) {
		t.Helper()
		var keys []int
		h.InOrder(func(x *element) bool { keys = append(keys, x.key); return true })
		if !slices.Equal(keys, want) {
			t.Errorf("in order %v, want %v", keys, want)
		}
		for i, x := range h.List {
			if x.place != uint32(i+1) {
				t.Errorf("%d is at %d, and notes %d", x.key, i+1, x.place)
			}
		}
	}
	var all []*element
	for _, key := range []int{5, 2, 8, 1, 9, 3} {
		x := &element{key: key}
		all = append(all, x)
		h.Push(x)
	}
	check(1, 2, 3, 5, 8, 9)
	h.Remove(all[0])
	h.Remove(all[0]) // it is out
	if first := h.Pop(); first.key != 1 || first.place != 0 || all[0].place != 0 {
		t.Errorf("the first one is %+v; the one taken out notes %d", first, all[0].place)
	}
	check(2, 3, 8, 9)
	h.InOrder(func(*element) bool { return false })
	check(2, 3, 8, 9)
}
