package admission

import (
	"cmp"
	"context"
	"fmt"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A list of tasks can have one idempotency key. In the ledger its n-th task, from 1, has
// that key with a control character and n behind it, which no client can name. So the list
// is known if the key of its first task is, and it has as many tasks as such keys follow.

// shareKey writes into each spec its part of the list's key.
func (in *intake) shareKey() error {
	if by := in.list[0].parent; by != "" { // a run asks for all of them
		in.key = state.RunKey(in.key, by)
	}
	for i := range in.list {
		s := &in.list[i]
		if s.IdempotencyKey != "" {
			return in.at(i, task.Wrong("idempotencyKey", "leave it out, or give keys to the tasks alone", "the list has an idempotency key, and the task has another one"))
		}
		s.IdempotencyKey = state.PartKey(in.key, i+1)
	}
	return nil
}

// checkShared refuses a list whose key stands for a single task or for a list of
// another length. Whether the tasks are the same is asked for each of them.
func (in *intake) checkShared(st *fold.State, tx *ledger.Tx) error {
	tx.Claim("key " + in.key)
	has := func(key string) bool { _, ok := st.ByIdempotencyKey(key); return ok }
	known := 0
	for i := range in.list {
		if has(in.list[i].IdempotencyKey) {
			known++
		}
	}
	if has(in.key) || has(state.PartKey(in.key, len(in.list)+1)) || known != 0 && known != len(in.list) {
		return keyTaken(in.key, "another request", "stint ls")
	}
	return nil
}

// again returns the tasks if all specs were accepted before; nil if not. It does not ask
// the log: to read thousands back takes a while, in which nobody else could write.
func (in *intake) again(ctx context.Context) ([]state.Task, error) {
	tasks := make([]state.Task, len(in.list))
	for i := range in.list {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var old *state.Task
		var err error
		in.a.View(func(st *fold.State) { old, err = in.known(st, &in.list[i]) })
		if err != nil {
			return nil, in.at(i, err)
		}
		if old == nil {
			return nil, nil
		}
		tasks[i] = *old
	}
	if in.key == "" {
		return tasks, nil
	}
	var err error
	in.a.View(func(st *fold.State) { err = in.checkShared(st, &ledger.Tx{}) })
	if err != nil { // another list may have got the key while this one was looked for
		return nil, err
	}
	return tasks, nil
}

// known returns the task that the spec asks for again; nil if it is new.
func (in *intake) known(st *fold.State, s *submission) (*state.Task, error) {
	_, there := st.Peek(s.ID)
	id, used := s.ID, there
	if s.IdempotencyKey != "" {
		id, used = st.ByIdempotencyKey(s.IdempotencyKey)
	}
	_, usedByList := st.ByIdempotencyKey(state.PartKey(s.IdempotencyKey, 1))
	switch {
	case there && id != s.ID:
		return nil, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is there already, and not under this idempotency key", s.ID), Hint: "leave the id out, or give the task another one", Field: "id"}
	case usedByList && s.IdempotencyKey != "":
		return nil, keyTaken(s.IdempotencyKey, "a list of tasks", "give this task another one")
	case !used:
		return nil, nil
	}
	old, err := in.a.WholeIn(st, id)
	if err == nil && s.IdempotencyKey != "" && !s.isBodyOf(&old) {
		err = keyTaken(cmp.Or(in.key, s.IdempotencyKey), "task "+id+", which asks for something else", "stint show "+id)
	}
	return &old, err
}

func keyTaken(key, by, hint string) error {
	return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("the idempotency key %q belongs to %s", state.GivenKey(key).Given(), by), Hint: hint, Field: "idempotencyKey"}
}
