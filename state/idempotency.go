package state

import (
	"strconv"
	"strings"
)

// beforePart stands between the key of a list and the number of a task. It is no white
// space, which editors and formatters put in order, and it ends no line.
const beforePart = "\x1f"

// beforeRun stands between the key that an agent gave and its own task, so that no agent's
// key is a user's. It ends in no number, as a part of a list does.
const beforeRun = "\x1frun "

// RunKey returns the idempotency key of a task for which the agent of another task, by, has asked under key.
func RunKey(key, by string) string { return key + beforeRun + by }

// PartKey returns the idempotency key of the n-th task, from 1, of a list that has key.
func PartKey(key string, n int) string { return key + beforePart + strconv.Itoa(n) }

// ReadPart splits what PartKey returns; ok is false of any other key.
func ReadPart(key string) (list string, n int, ok bool) {
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
	if list, _, ok := ReadPart(key); ok {
		key = list
	}
	key, _, _ = strings.Cut(key, beforeRun)
	return key
}

// MarshalText implements [encoding.TextMarshaler], for JSON.
func (k GivenKey) MarshalText() ([]byte, error) { return []byte(k.Given()), nil }
