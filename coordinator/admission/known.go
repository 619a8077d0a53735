package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A list of tasks can have one idempotency key. In the ledger its n-th task, from 1, has
// that key with a control character and n behind it, which no client can name. So the list
// is known if the key of its first task is, and it has as many tasks as such keys follow.

// checkShared refuses a list whose key stands for a single task or for a list of another length.
func (in *intake) checkShared(st *fold.State, tx *ledger.Tx) error {
	if in.key == "" {
		return nil
	}
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
	var tasks []state.Task
	for i := range in.list {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var old *state.Task
		var err error
		in.a.tasks.View(func(st *fold.State) { old, err = in.known(st, &in.list[i]) })
		if err != nil {
			return nil, in.at(i, err)
		}
		if old == nil {
			return nil, nil
		}
		tasks = append(tasks, *old)
	}
	// Another list may have got the key while this one was looked for.
	return tasks, queue.Read(in.a.tasks, func(st *fold.State) error { return in.checkShared(st, &ledger.Tx{}) })
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
	old, err := in.a.tasks.WholeIn(st, id)
	if err == nil && s.IdempotencyKey != "" && !s.isBodyOf(&old) {
		err = keyTaken(cmp.Or(in.key, s.IdempotencyKey), "task "+id+", which asks for something else", "stint show "+id)
	}
	return &old, err
}

func keyTaken(key, by, hint string) error {
	return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("the idempotency key %q belongs to %s", state.GivenKey(key).Given(), by), Hint: hint, Field: "idempotencyKey"}
}

// isBodyOf reports whether a task is what the spec asks for. What the spec leaves to the configuration does not
// count, nor do times and holds, which pass, nor whether it continues a session. The agent's session that the
// spec names counts until there is a run, which may have come to another one.
func (s *submission) isBodyOf(t *state.Task) bool {
	key := t.SessionKey
	if !task.IsNamedLane(key) {
		key = ""
	}
	policy := strings.TrimPrefix(s.AfterPolicy, state.AfterDone)
	return t.Prompt == s.Prompt && t.Isolation == s.Isolation && (t.Workspace == s.Workspace || s.Isolation != "") && key == s.SessionKey &&
		s.Parallel == strings.HasPrefix(t.SessionKey, state.LanePrefixTask) && (s.Resume == "" || t.Resume == s.Resume) && s.NoWaitLimit == (t.MaxLimitWait == noWait) && t.Spare == s.Spare && (t.Budget == s.Budget || s.FromRun != "") && // what is left of its own passes

		(s.AgentSession == "" || t.RunID != "" || t.AgentSession == s.AgentSession) &&
		t.Label == s.Label && t.Priority == s.Priority && t.Timeout == s.Timeout && t.MaxAttempts == s.MaxAttempts &&
		t.TenantID == s.TenantID && t.Queue == s.Queue && t.AfterPolicy == policy && s.comesAfter(t.After) &&
		(s.VerifyCommand == "" || t.VerifyCommand == s.VerifyCommand) && (s.MaxIterations == 0 || t.MaxIterations == s.MaxIterations) && t.VerifyTimeout == s.VerifyTimeout &&
		t.OnFailure == s.OnFailure && t.OnIssue == s.OnIssue && t.OutputPolicy == s.OutputPolicy && slices.Equal(t.Allow, s.Allow) &&
		slices.Equal(t.InputFiles, s.InputFiles) && slices.Equal(t.OutputSpec, s.OutputSpec) && s.isCarriedOutBy(t) &&
		(s.Account == "" || t.Account == s.Account || t.Agent != s.Agent)
}

// comesAfter reports whether the spec can have meant these tasks: @last or a piece of an id need not mean the same now.
func (s *submission) comesAfter(ids []string) bool {
	means := func(ref, id string) bool { return ref == state.LastRef || strings.Contains(id, ref) }
	return !slices.ContainsFunc(s.After, func(ref string) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return means(ref, id) })
	}) && !slices.ContainsFunc(ids, func(id string) bool {
		return !slices.ContainsFunc(s.After, func(ref string) bool { return means(ref, id) })
	})
}

// isCarriedOutBy reports whether the task has the spec's agent, or one that the
// configuration chose, or has come to a fallback meanwhile, with those that are left.
func (s *submission) isCarriedOutBy(t *state.Task) bool {
	if t.Agent != s.Agent && slices.Contains(s.Fallback, t.Agent) {
		return s.open || !slices.ContainsFunc(t.Fallback, func(agent string) bool { return !slices.Contains(s.Fallback, agent) })
	}
	return (t.Agent == s.Agent || !s.named) && (s.Model == "" || t.Model == s.Model) && (s.open || slices.Equal(t.Fallback, s.Fallback))
}
