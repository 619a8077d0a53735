package attempt

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"stint/coordinator/rundir"
	"stint/ledger/durable"
	"stint/state"
)

// A task with a directory of its own works in work_dir/<its id>. The path is recorded when the
// task is queued and stays, as agents look for a conversation by the directory in which it
// began. A run makes the directory where it is missing. It is removed once the task has ended and
// nothing that was queued there waits or runs: by the master that saw the end, or by the next
// one. So no crash leaves anything behind, whenever it comes.

// makeTemp makes the directory in which a task works, if that is one below work_dir.
func (a *Attempts) makeTemp(t *state.Task) error {
	switch isTemp := a.tasks.Config.IsTemp(t.Workspace); {
	case t.Isolation != "" && !isTemp:
		return errors.New("the task cannot have a directory of its own: there is no work_dir, or its id cannot be the name of a directory")
	case !isTemp:
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

// RemovedPrefix begins the name of a directory below work_dir that is being removed.
const RemovedPrefix = ".removed-"

// RemoveTemp removes a directory below work_dir. isUnused is asked last, while no run makes one.
func (a *Attempts) RemoveTemp(name string, isUnused func() bool) (err error) {
	work, err := a.tasks.OpenWork()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	gone := RemovedPrefix + strings.TrimPrefix(name, RemovedPrefix)
	if err := rundir.RemoveTree(work, gone); err != nil || name == gone {
		return err
	}
	a.temp.Lock()
	if isUnused() {
		err = work.Rename(name, gone) // what takes long comes after the lock
	}
	if errors.Is(err, fs.ErrNotExist) { // a person was faster
		err = nil
	}
	a.temp.Unlock()
	return errors.Join(err, rundir.RemoveTree(work, gone))
}
