package attempt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
	work, err := a.tasks.OpenWork()
	if err != nil {
		return err
	}
	if err = work.Mkdir(filepath.Base(t.Workspace), durable.DirMode); errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, work.Close())
}

// removeTemp removes the directory of a task that has ended, unless another one waits or runs
// there. Nothing may begin there meanwhile.
func (a *Attempts) removeTemp(dir string) {
	id := filepath.Base(dir)
	if t, err := a.tasks.Peek(id); !a.tasks.Config.Cleanup || !a.tasks.Config.IsTemp(dir) || err != nil || !t.Status.Terminal() {
		return // one of an unknown task may be another master's
	}
	for _, other := range queue.Read(a.tasks, (*fold.State).OpenIDs) {
		if t, err := a.tasks.Peek(other); err == nil && task.IsWithin(t.Workspace, dir) {
			return
		}
	}
	work, err := a.tasks.OpenWork()
	if err == nil {
		err = errors.Join(rundir.RemoveTree(work, id), work.Close())
	}
	if err != nil { // the next master tries again
		a.tasks.Trouble("the directory of a task could not be removed", err)
	}
}

// CleanTemp removes the directories of tasks that have ended that an earlier master has left.
// It is called before anything is started.
func (a *Attempts) CleanTemp() {
	entries, _ := os.ReadDir(a.tasks.Config.WorkDir) // most often there is none
	for _, e := range entries {
		a.removeTemp(filepath.Join(a.tasks.Config.WorkDir, e.Name()))
	}
}
