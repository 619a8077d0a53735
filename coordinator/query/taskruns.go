package query

import (
	"context"

	"stint/coordinator/task"
)

// Runs returns all runs of a task, the oldest first, as far as its records tell of them.
func (q *Query) Runs(_ context.Context, ref string) ([]task.TaskRun, error) {
	defer q.tasks.Call()()
	id, err := q.tasks.Find(ref)
	if err != nil {
		return nil, err
	}
	i, err := q.Image(id)
	return i.Runs, err
}
