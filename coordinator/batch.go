package coordinator

import (
	"context"
	"errors"

	"stint/coordinator/task"
	"stint/state"
)

// SubmitAll takes many tasks in, all or none of them, in one durable change, and
// gives them in the order of their specs. A spec may come after others of the batch
// by their ids. Specs whose id or idempotency key is known give the tasks that are
// there already. The error names the first spec that is wrong: "task 3 of 7: …".
func (c *Coordinator) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]state.Task, error) {
	return c.submitAll(ctx, request{specs: specs, isList: true})
}

// SubmitOnce is SubmitAll for a list that has an idempotency key as a whole; its specs
// have none. The same list under the same key gives the tasks that are there already,
// and anything else under it is a conflict: another list, a longer or a shorter one,
// one in another order, or a single task.
func (c *Coordinator) SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) ([]state.Task, error) {
	if err := task.CheckKey(key); err != nil {
		return nil, err
	}
	return c.submitAll(ctx, request{specs: specs, isList: true, key: key})
}

func (c *Coordinator) submitAll(ctx context.Context, req request) ([]state.Task, error) {
	defer c.Call()()
	return c.take(ctx, req)
}

// SubmitAllOffline is SubmitAll where no master runs: it locks the state
// directory, appends durably and closes. The error has CodeBusy if a master does run.
func SubmitAllOffline(ctx context.Context, cfg task.Config, specs []task.TaskSpec) ([]state.Task, error) {
	c, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	tasks, err := c.SubmitAll(ctx, specs)
	return tasks, errors.Join(err, c.Close())
}
