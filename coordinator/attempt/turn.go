package attempt

import (
	"context"
	"errors"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/fold"
)

const (
	missingRetry = 2 * time.Second // before a run looks once more
)

// runTurn lets the agent of that name carry out a turn. Where its program is missing, it
// tries once more a moment later.
func (a *Attempts) runTurn(ctx context.Context, name string, agent task.Agent, turn task.Turn, report func(task.Event)) task.Outcome {
	out := agent.Run(ctx, turn, report)
	if out.Class != state.ClassAgentMissing || !a.hasRun(name) {
		return out
	}
	again := time.NewTimer(missingRetry)
	defer again.Stop()
	select {
	case <-again.C:
		return agent.Run(ctx, turn, report)
	case <-ctx.Done():
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, task.ErrCanceled):
		out.Class = state.ClassCanceled
	case !errors.Is(cause, task.ErrTimeout): // else it is still missing
		out.Class = state.ClassInterrupted
	}
	return out
}

// hasRun reports whether a task here has run with that agent.
func (a *Attempts) hasRun(agent string) bool {
	return queue.Read(a.Store, func(st *fold.State) bool { return st.HasRun(agent) })
}

// judgeMissing lets a task wait for the program of its agent. That spends no attempt; but
// what finds no program again and again, though it seems to be there, comes to an end.
func (a *Attempts) judgeMissing(st *fold.State, v *verdict, t *state.Task, out task.Outcome) {
	if !st.HasRun(t.Agent) {
		return
	}
	v.status, v.attempt, v.retries = state.Queued, t.Attempt-1, t.Retries+1
	if v.retries > a.Config.MaxRetries {
		v.status = state.Dead
	}
	if account := st.Account(t.AccountName()); !account.Hold {
		v.account = task.AccountRecord(account.Name).Add(state.KeyHold, "true").Add(state.KeyReason, state.MissingReason(out.Error))
	}
}
