package attempt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// makeTemp makes the directory of a task that works below work_dir, if it is not there. Its path
// never changes: agents look for a conversation by the directory in which it began.
func (a *Attempts) makeTemp(t *state.Task) error {
	if !a.tasks.Config.IsTemp(t.Workspace) {
		if t.Isolation != "" {
			return errors.New("the task cannot have a directory of its own: there is no work_dir, or its id cannot be the name of a directory")
		}
		return nil
	}
	a.temp.Lock() // it may be just being removed
	defer a.temp.Unlock()
	work, err := a.tasks.OpenWork()
	if err != nil {
		return err
	}
	if err = work.Mkdir(filepath.Base(t.Workspace), durable.DirMode); errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, work.Close())
}

const removedPrefix = ".removed-" // of a directory that is being removed

// CleanTemp removes directories of tasks that have ended, at once and whenever wake says that one
// may have, until ctx ends. atWork returns the tasks that have runs.
func (a *Attempts) CleanTemp(ctx context.Context, wake <-chan struct{}, atWork func() []string) {
	failed := map[string]bool{} // the next master tries again
	for a.tasks.Config.Cleanup && a.tasks.Config.WorkDir != "" {
		entries, _ := os.ReadDir(a.tasks.Config.WorkDir) // most often there is none
		for _, e := range entries {
			id := strings.TrimPrefix(e.Name(), removedPrefix)
			isUnused := func() bool { return a.isUnused(id, atWork()) }
			if ctx.Err() != nil || failed[id] || !isUnused() {
				continue
			}
			if err := a.RemoveTemp(id, isUnused); err != nil {
				failed[id] = true
				a.tasks.Trouble("the directory of a task could not be removed", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
	}
}

// isUnused reports whether the task of that id has ended, and nothing waits or runs in its
// directory. That of an unknown task may be another master's.
func (a *Attempts) isUnused(id string, atWork []string) bool {
	if t, err := a.tasks.Peek(id); err != nil || !t.Status.Terminal() {
		return false
	}
	for _, other := range append(queue.Read(a.tasks, (*fold.State).OpenIDs), atWork...) {
		if t, err := a.tasks.Peek(other); err == nil && task.IsWithin(t.Workspace, filepath.Join(a.tasks.Config.WorkDir, id)) {
			return false
		}
	}
	return true
}

// RemoveTemp removes the directory of a task. isUnused is asked last, while no run makes one.
func (a *Attempts) RemoveTemp(id string, isUnused func() bool) (err error) {
	work, err := a.tasks.OpenWork()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	gone := removedPrefix + id
	if err := rundir.RemoveTree(work, gone); err != nil { // an earlier one that was not removed to the end
		return err
	}
	a.temp.Lock()
	if isUnused() {
		err = work.Rename(id, gone) // what takes long comes after the lock
	}
	a.temp.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return rundir.RemoveTree(work, gone)
}
