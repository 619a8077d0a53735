package query

import (
	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state/fold"
)

// TaskIDs returns the next ids, at most n, behind the first done ones of all tasks that
// are known, in the order of age, those of the archive first. With a compaction other
// places count: who goes through all begins anew then.
func (q *Query) TaskIDs(done, n int) []string {
	return queue.Read(q.tasks, func(st *fold.State) []string { return st.IDs(done, n) })
}

// Image returns a task as it is now, by its whole id. The error has CodeNotFound if there
// is none.
func (q *Query) Image(id string) (task.Image, error) {
	return rundir.Image(q.tasks.Config.StateDir, id, q.tasks.View)
}
