package query

import (
	"context"
	"os"
	"path/filepath"

	"stint/coordinator/task"
	"stint/memory"
	"stint/state/fold"
)

var errForeignNotes = &task.Error{
	Code: task.CodeForbidden, Field: "workspace", Message: "a run may search the notes of its own workspace only", Hint: "leave it to the user",
}

// SearchMemory searches the notes of a workspace as for a task, and changes nothing. A
// run may ask for what its own task's workspace has, and what is below it. The error is
// an *Error where the query is wrong.
func (q *Query) SearchMemory(ctx context.Context, m task.MemoryQuery) (task.MemoryResult, error) {
	defer q.tasks.Call()()
	if err := task.CheckPrompt(m.Prompt); err != nil {
		return task.MemoryResult{}, err
	}
	const hint = "give the absolute path of a directory"
	if !filepath.IsAbs(m.Workspace) || !task.IsPrintable(m.Workspace) {
		return task.MemoryResult{}, task.Wrong("workspace", hint, "%.200q is not an absolute path", m.Workspace)
	}
	dir, err := filepath.EvalSymlinks(m.Workspace)
	if err != nil {
		return task.MemoryResult{}, task.Wrong("workspace", hint, "the directory %.200q is not there", m.Workspace)
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return task.MemoryResult{}, task.Wrong("workspace", hint, "%.200q is no directory", m.Workspace)
	}
	if m.FromRun != "" && !q.isOfRun(m.FromRun, dir) {
		return task.MemoryResult{}, errForeignNotes
	}
	if q.tasks.Config.Memory == nil {
		return task.MemoryResult{Hits: []memory.Hit{}, Terms: []memory.Term{}}, nil
	}
	return q.tasks.Config.Memory(ctx, dir, m.Prompt)
}

// isOfRun reports whether a directory is the workspace of a run's task, or lies below it.
func (q *Query) isOfRun(run, dir string) bool {
	id, ok := "", false
	q.tasks.View(func(st *fold.State) { id, ok = st.RunningAs(run) })
	if !ok {
		return false
	}
	r := q.live.RunOf(id)
	if r == nil {
		return false
	}
	home := r.AsTask().Workspace
	return home != "" && task.IsWithin(dir, home)
}
