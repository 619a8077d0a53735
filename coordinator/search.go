package coordinator

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
func (c *Coordinator) SearchMemory(ctx context.Context, q task.MemoryQuery) (task.MemoryResult, error) {
	defer c.Call()()
	if err := task.CheckPrompt(q.Prompt); err != nil {
		return task.MemoryResult{}, err
	}
	dir, err := checkDirectory(q.Workspace)
	if err != nil {
		return task.MemoryResult{}, err
	}
	if q.FromRun != "" && !c.isOfRun(q.FromRun, dir) {
		return task.MemoryResult{}, errForeignNotes
	}
	if c.Config.Memory == nil {
		return task.MemoryResult{Hits: []memory.Hit{}, Terms: []memory.Term{}}, nil
	}
	return c.Config.Memory(ctx, dir, q.Prompt)
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
func (c *Coordinator) isOfRun(run, dir string) bool {
	id, ok := "", false
	c.View(func(st *fold.State) { id, ok = st.RunningAs(run) })
	if !ok {
		return false
	}
	r := c.RunOf(id)
	if r == nil {
		return false
	}
	home := r.AsTask().Workspace
	return home != "" && task.IsWithin(dir, home)
}
