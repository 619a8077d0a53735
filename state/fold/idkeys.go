package fold

import (
	"iter"

	"stint/state"
)

// idempotencyKeys finds the task of an idempotency key. A task of a list costs four
// bytes there: its key is the list's, and its place.
type idempotencyKeys struct {
	whole map[string]uint32
	lists map[string][]uint32 // the tasks of a list's first parts; 0 is none
}

// task returns the task that has the key; 0 if none has.
func (x *idempotencyKeys) task(key string) uint32 {
	if place := x.place(key); place != nil && *place != 0 {
		return *place
	}
	return x.whole[key]
}

// place returns where the task of a list's part stands in lists; nil if that is nowhere.
func (x *idempotencyKeys) place(key string) *uint32 {
	list, n, ok := state.ReadPart(key)
	if !ok || n > len(x.lists[list]) {
		return nil
	}
	return &x.lists[list][n-1]
}

// set returns the key to task n. Parts of a list come one after the other; one that does
// not, as after an edit, is kept as any other key is.
func (x *idempotencyKeys) set(key string, n uint32) {
	x.drop(key)
	if place := x.place(key); place != nil {
		*place = n
		return
	}
	if list, part, ok := state.ReadPart(key); ok && part == len(x.lists[list])+1 {
		x.lists[list] = append(x.lists[list], n)
		return
	}
	x.whole[key] = n
}

// drop makes the key nobody's.
func (x *idempotencyKeys) drop(key string) {
	if place := x.place(key); place != nil {
		*place = 0
	}
	delete(x.whole, key)
}

// all returns every key that a task has, and the task, in no order.
func (x *idempotencyKeys) all() iter.Seq2[string, uint32] {
	return func(yield func(string, uint32) bool) {
		for key, n := range x.whole {
			if !yield(key, n) {
				return
			}
		}
		for list, tasks := range x.lists {
			for i, n := range tasks {
				if n != 0 && !yield(state.PartKey(list, i+1), n) {
					return
				}
			}
		}
	}
}
