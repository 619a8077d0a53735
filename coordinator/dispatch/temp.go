package dispatch

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state/fold"
)

// CleanTemp removes the directories of tasks that have ended, whenever the dispatcher has
// looked, until ctx ends.
func (d *Dispatcher) CleanTemp(ctx context.Context) {
	failed := map[string]bool{} // what could not be removed: the next master tries again
	for d.tasks.Config.Cleanup && d.tasks.Config.WorkDir != "" {
		entries, _ := os.ReadDir(d.tasks.Config.WorkDir) // most often there is none
		for _, e := range entries {
			id := strings.TrimPrefix(e.Name(), attempt.RemovedPrefix)
			isUnused := func() bool { return d.isUnused(id) }
			if ctx.Err() != nil || failed[id] || !isUnused() {
				continue
			}
			if err := d.Attempts.RemoveTemp(e.Name(), isUnused); err != nil {
				failed[id] = true
				d.tasks.Trouble("the directory of a task could not be removed", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-d.looked:
		}
	}
}

// isUnused reports whether the task of that id has ended, and nothing waits or runs in its
// directory below work_dir. That of an unknown task may be another master's.
func (d *Dispatcher) isUnused(id string) bool {
	t, err := d.tasks.Peek(id)
	if err != nil || !t.Status.Terminal() {
		return false
	}
	dir := filepath.Join(d.tasks.Config.WorkDir, id)
	if d.runs.isAnyIn(dir) {
		return false
	}
	for _, other := range queue.Read(d.tasks, (*fold.State).OpenIDs) {
		if t, err := d.tasks.Peek(other); err == nil && task.IsWithin(t.Workspace, dir) {
			return false
		}
	}
	return true
}
