package state

import (
	"iter"
	"strconv"
	"strings"
)

// beforePart stands between the key of a list and the number of a task. It is no white
// space, which editors and formatters put in order, and it ends no line.
const beforePart = "\x1f"

// beforeRun stands between the key that an agent gave and its own task, so that no agent's
// key is a user's. It ends in no number, as a part of a list does.
const beforeRun = "\x1frun "

// RunKey returns the idempotency key of a task for which the agent of another task, by,
// has asked under key.
func RunKey(key, by string) string { return key + beforeRun + by }

// PartKey gives the idempotency key of the n-th task, from 1, of a list that has key.
func PartKey(key string, n int) string { return key + beforePart + strconv.Itoa(n) }

// readPart takes apart what PartKey gives; ok is false of any other key.
func readPart(key string) (list string, n int, ok bool) {
	i := strings.LastIndex(key, beforePart)
	if i < 0 {
		return "", 0, false
	}
	list, digits := key[:i], key[i+len(beforePart):]
	n, err := strconv.Atoi(digits)
	return list, n, err == nil && digits[0] >= '1' && digits[0] <= '9' // as Itoa writes it
}

// A GivenKey is the idempotency key of a task. It is shown as the client gave it: without
// what sets a list's tasks and those of agents apart, which the ledger has too.
type GivenKey string

// Given returns the key as the client gave it.
func (k GivenKey) Given() string {
	key := string(k)
	if list, _, ok := readPart(key); ok {
		key = list
	}
	key, _, _ = strings.Cut(key, beforeRun)
	return key
}

// MarshalText implements [encoding.TextMarshaler], for JSON.
func (k GivenKey) MarshalText() ([]byte, error) { return []byte(k.Given()), nil }

// idempotencyKeys finds the task of an idempotency key. A task of a list costs four
// bytes there: its key is the list's, and its place.
type idempotencyKeys struct {
	whole map[string]uint32
	lists map[string][]uint32 // the tasks of a list's first parts; 0 is none
}

func newIdempotencyKeys() idempotencyKeys {
	return idempotencyKeys{whole: map[string]uint32{}, lists: map[string][]uint32{}}
}

// task gives the task that has the key; 0 if none has.
func (x *idempotencyKeys) task(key string) uint32 {
	if place := x.place(key); place != nil && *place != 0 {
		return *place
	}
	return x.whole[key]
}

// place gives where the task of a list's part stands in lists; nil if that is nowhere.
func (x *idempotencyKeys) place(key string) *uint32 {
	list, n, ok := readPart(key)
	if !ok || n > len(x.lists[list]) {
		return nil
	}
	return &x.lists[list][n-1]
}

// set gives the key to task n. Parts of a list come one after the other; one that does
// not, as after an edit, is kept as any other key is.
func (x *idempotencyKeys) set(key string, n uint32) {
	x.drop(key)
	if place := x.place(key); place != nil {
		*place = n
		return
	}
	if list, part, ok := readPart(key); ok && part == len(x.lists[list])+1 {
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

// all gives every key that a task has, and the task, in no order.
func (x *idempotencyKeys) all() iter.Seq2[string, uint32] {
	return func(yield func(string, uint32) bool) {
		for key, n := range x.whole {
			if !yield(key, n) {
				return
			}
		}
		for list, tasks := range x.lists {
			for i, n := range tasks {
				if n != 0 && !yield(PartKey(list, i+1), n) {
					return
				}
			}
		}
	}
}
