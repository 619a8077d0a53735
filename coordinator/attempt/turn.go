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

const missingRetry = 2 * time.Second // before a run looks once more

// runTurn lets the agent of that name carry out a turn. Where its program is missing, it
// tries once more a moment later.
func (a *Attempts) runTurn(ctx context.Context, name string, agent task.Agent, turn task.Turn, report func(task.Event)) task.Outcome {
	out := agent.Run(ctx, turn, report)
	if out.Class != state.ClassAgentMissing || !queue.Read(a.Store, func(st *fold.State) bool { return st.HasRun(name) }) {
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
