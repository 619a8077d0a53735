// Package heap has a priority queue whose elements know their places in it, so that any of them can be taken out.
package heap

import "container/heap"

// A Heap has the element first that goes before all others.
type Heap[T any] struct {
	List   []T // as container/heap orders them
	Before func(a, b T) bool
	Place  func(T) *uint32 // where an element notes its place in List, plus 1; 0: it is not there
}

// Push adds an element.
func (h *Heap[T]) Push(x T) { heap.Push(order[T]{h}, x) }

// Pop takes the first one out.
func (h *Heap[T]) Pop() T { return heap.Pop(order[T]{h}).(T) }

// Remove takes an element out, if it is there.
func (h *Heap[T]) Remove(x T) {
	if at := *h.Place(x); at > 0 {
		heap.Remove(order[T]{h}, int(at-1))
	}
}

// InOrder yields the elements, the first one first. When it ends, all are in the heap again.
func (h *Heap[T]) InOrder(yield func(T) bool) {
	var taken []T
	for more := true; more && len(h.List) > 0; {
		taken = append(taken, h.Pop())
		more = yield(taken[len(taken)-1])
	}
	for _, x := range taken {
		h.Push(x)
	}
}

// An order is a heap as container/heap asks for it.
type order[T any] struct{ of *Heap[T] }

func (o order[T]) Len() int           { return len(o.of.List) }
func (o order[T]) Less(i, j int) bool { return o.of.Before(o.of.List[i], o.of.List[j]) }
func (o order[T]) Swap(i, j int) {
	list := o.of.List
	list[i], list[j] = list[j], list[i]
	*o.of.Place(list[i]), *o.of.Place(list[j]) = uint32(i+1), uint32(j+1)
}

func (o order[T]) Push(x any) {
	o.of.List = append(o.of.List, x.(T))
	*o.of.Place(x.(T)) = uint32(len(o.of.List))
}

func (o order[T]) Pop() any {
	i := len(o.of.List) - 1
	x := o.of.List[i]
	clear(o.of.List[i:])
	o.of.List = o.of.List[:i]
	*o.of.Place(x) = 0
	return x
}
