package coordinator

import (
	"cmp"
	"context"
	"errors"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A program that is missing. An upgrade takes an agent's program away for a few seconds,
// and whoever removes it brings it back at some time. Its tasks need not fail for that:
// the run looks once more a moment later, then the account goes on hold, which ends when
// the program is back. A program that no task here has
// ever run with is another matter: the user has not installed it.

const (
	missingRetry = 2 * time.Second // before a run looks once more
	lookForAgent = 5 * time.Second // between two looks of the master
)

// runTurn lets the agent of that name carry out a turn. Where its program is missing, it
// tries once more a moment later.
func (c *Coordinator) runTurn(ctx context.Context, name string, agent task.Agent, turn task.Turn, report func(task.Event)) task.Outcome {
	out := agent.Run(ctx, turn, report)
	if out.Class != state.ClassAgentMissing || !c.hasRun(name) {
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
func (c *Coordinator) hasRun(agent string) bool {
	return task.Read(c.Store, func(st *fold.State) bool { return st.HasRun(agent) })
}

// judgeMissing lets a task wait for the program of its agent. That spends no attempt; but
// what finds no program again and again, though it seems to be there, comes to an end.
func (c *Coordinator) judgeMissing(st *fold.State, v *verdict, t *state.Task, out task.Outcome) {
	if !st.HasRun(t.Agent) {
		return
	}
	v.status, v.attempt, v.retries = state.Queued, t.Attempt-1, t.Retries+1
	if v.retries > c.Config.MaxRetries {
		v.status = state.Dead
	}
	if a := st.Account(t.AccountName()); !a.Hold {
		v.account = task.AccountRecord(a.Name).Add(state.KeyHold, "true").Add(state.KeyReason, state.MissingReason(out.Error))
	}
}

// lookForMissing ends the holds of accounts whose agent's program is back, until ctx ends.
// It has a goroutine of its own: a program that is there may not answer for long.
func (c *Coordinator) lookForMissing(ctx context.Context) {
	tick := time.NewTicker(lookForAgent)
	defer tick.Stop()
	for {
		for _, a := range task.Read(c.Store, (*fold.State).Missing) {
			if agent := cmp.Or(a.Agent, a.Name); c.Config.AgentFound == nil || c.Config.AgentFound(agent) {
				c.endMissing(a.Name)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// endMissing ends the hold of an account, unless it is another one by now.
func (c *Coordinator) endMissing(name string) {
	err := c.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		if a := st.Account(name); a.IsMissing() {
			tx.Append(task.AccountRecord(name).Add(state.KeyHold, "").Add(state.KeyReason, ""))
		}
		return nil
	})
	if err == nil {
		c.Config.Log.Info("the program of an agent is back", "account", name)
	}
	c.TroubleUnlessStopped("the hold of an account could not be ended", err)
}
