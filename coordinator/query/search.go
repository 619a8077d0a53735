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
	dir, err := checkDirectory(m.Workspace)
	if err != nil {
		return task.MemoryResult{}, err
	}
	if m.FromRun != "" && !q.isOfRun(m.FromRun, dir) {
		return task.MemoryResult{}, errForeignNotes
	}
	if q.tasks.Config.Memory == nil {
		return task.MemoryResult{Hits: []memory.Hit{}, Terms: []memory.Term{}}, nil
	}
	return q.tasks.Config.Memory(ctx, dir, m.Prompt)
}

// checkDirectory returns a workspace without links.
func checkDirectory(path string) (string, error) {
	const hint = "give the absolute path of a directory"
	if !filepath.IsAbs(path) || !task.IsPrintable(path) {
		return "", task.Wrong("workspace", hint, "%.200q is not an absolute path", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", task.Wrong("workspace", hint, "the directory %.200q is not there", path)
	}
	if fi, err := os.Stat(real); err != nil || !fi.IsDir() {
		return "", task.Wrong("workspace", hint, "%.200q is no directory", path)
	}
	return real, nil
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
