package coordinator

import (
	"context"
	"errors"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
)

// OpenUnwatched is Open without the watch of tasks.md, whose waiting for the kernel
// would stop the clock of a test's bubble.
func OpenUnwatched(cfg task.Config) (*Coordinator, error) {
	c := newCoordinator(cfg)
	c.unwatched = true
	return c.open()
}

// OpenOn is OpenUnwatched with the ledger on a file system of the test's.
func OpenOn(cfg task.Config, fs durable.FS) (*Coordinator, error) {
	c := newCoordinator(cfg)
	c.unwatched, c.fs = true, fs
	return c.open()
}

// NativeFields reads the native sessions that a journal names.
var NativeFields = nativeFields

// SubmitSlowly is Submit where then happens before the answer is made.
func (c *Coordinator) SubmitSlowly(ctx context.Context, s task.TaskSpec, then func()) (state.Task, error) {
	in, err := c.newIntake(ctx, request{specs: []task.TaskSpec{s}})
	if err == nil {
		err = c.update(ctx, in.record)
	}
	if err != nil {
		return state.Task{}, err
	}
	then()
	tasks, err := in.tasks()
	return tasks[0], err
}

// Occupy calls f on the ledger's goroutine.
func (c *Coordinator) Occupy(f func()) error {
	err := c.update(context.Background(), func(*ledger.Tx) error {
		f()
		return errPreview
	})
	if errors.Is(err, errPreview) {
		return nil
	}
	return err
}

// Append appends records as they are.
func (c *Coordinator) Append(records ...*ledger.Record) error {
	return c.update(context.Background(), func(tx *ledger.Tx) error {
		for _, r := range records {
			tx.Append(r)
		}
		return nil
	})
}

// Dispatch starts what is ready, once, where Run is not at work.
func (c *Coordinator) Dispatch() { c.dispatch() }
