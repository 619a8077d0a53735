package coordinator

import (
	"fmt"
	"strconv"

	"stint/ledger"
)

// A list of tasks can have one idempotency key. In the ledger its n-th task, from 1, has
// that key with a control character and n behind it, which no client can name. So the list
// is known if the key of its first task is, and it has as many tasks as such keys follow.

// CheckKey says what is wrong with an idempotency key, as an *Error; nil if nothing is.
func CheckKey(key string) error {
	if key == "" || !areWords(key) {
		return wrong("idempotencyKey", "use 1 to 256 printable characters, such as those of a UUID", "the idempotency key cannot be used")
	}
	return nil
}

// beforePart stands between the key of a list and the number of a task. It is no white
// space, which editors and formatters put in order, and it ends no line.
const beforePart = "\x1f"

// partKey is the key of the n-th task of a list with that key.
func partKey(key string, n int) string { return key + beforePart + strconv.Itoa(n) }

// shareKey gives each spec its part of the list's key.
func (in *intake) shareKey() error {
	for i := range in.list {
		s := &in.list[i]
		if s.IdempotencyKey != "" {
			return in.at(i, wrong("idempotencyKey", "leave it out, or give keys to the tasks alone", "the list has an idempotency key, and the task has another one"))
		}
		s.IdempotencyKey = partKey(in.key, i+1)
	}
	return nil
}

// checkShared refuses a list whose key stands for a single task or for a list of
// another length. Whether the tasks are the same is asked for each of them.
func (in *intake) checkShared(tx *ledger.Tx) error {
	tx.Claim("key " + in.key)
	in.c.mu.Lock()
	defer in.c.mu.Unlock()
	has := func(key string) bool { _, ok := in.c.state.ByIdempotencyKey(key); return ok }
	known := 0
	for i := range in.list {
		if has(in.list[i].IdempotencyKey) {
			known++
		}
	}
	if has(in.key) || has(partKey(in.key, len(in.list)+1)) || known != 0 && known != len(in.list) {
		return keyTaken(in.key, "another request", "stint ls")
	}
	return nil
}

// known gives the id of the task that the spec asks for again; "" if it is new.
func (in *intake) known(s *submission) (string, error) {
	c := in.c
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.state.Peek(s.ID)
	switch {
	case there && s.IdempotencyKey == "":
		return s.ID, nil
	case s.IdempotencyKey == "":
		return "", nil
	}
	id, used := c.state.ByIdempotencyKey(s.IdempotencyKey)
	_, usedByList := c.state.ByIdempotencyKey(partKey(s.IdempotencyKey, 1))
	switch {
	case there && id != s.ID:
		return "", &Error{Code: CodeConflict, Message: fmt.Sprintf("task %s is there already, and not under this idempotency key", s.ID), Hint: "leave the id out, or give the task another one", Field: "id"}
	case usedByList:
		return "", keyTaken(s.IdempotencyKey, "a list of tasks", "give this task another one")
	case !used:
		return "", nil
	}
	old, err := c.wholeOf(id)
	if err == nil && !s.isBodyOf(&old) {
		err = keyTaken(first(in.key, s.IdempotencyKey), "task "+id+", which asks for something else", "stint show "+id)
	}
	return id, err
}

func keyTaken(key, by, hint string) error {
	return &Error{Code: CodeConflict, Message: fmt.Sprintf("the idempotency key %q belongs to %s", key, by), Hint: hint, Field: "idempotencyKey"}
}
