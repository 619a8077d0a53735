package admission

import (
	"context"

	"stint/coordinator/task"
	"stint/state"
)

// SubmitAll takes many tasks in, all or none of them, in one durable change, and
// gives them in the order of their specs. A spec may come after others of the batch
// by their ids. Specs whose id or idempotency key is known give the tasks that are
// there already. The error names the first spec that is wrong: "task 3 of 7: …".
func (a *Admission) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]state.Task, error) {
	return a.submitAll(ctx, request{specs: specs, isList: true})
}

// SubmitOnce is SubmitAll for a list that has an idempotency key as a whole; its specs
// have none. The same list under the same key gives the tasks that are there already,
// and anything else under it is a conflict: another list, a longer or a shorter one,
// one in another order, or a single task.
func (a *Admission) SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) ([]state.Task, error) {
	if err := task.CheckKey(key); err != nil {
		return nil, err
	}
	return a.submitAll(ctx, request{specs: specs, isList: true, key: key})
}

func (a *Admission) submitAll(ctx context.Context, req request) ([]state.Task, error) {
	defer a.Call()()
	return a.take(ctx, req)
}
