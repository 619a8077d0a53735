// Package admission decides about what is asked for, and appends it to the ledger: submit, edit, move, hold, release, cancel,
// retry and pause of a client, the follow-ups that a task queues at its end, and what the agent within a run may ask for.
//
// What depends on the value alone is checked by package task, what asks the file system is checked before the ledger's
// goroutine is asked, and what depends on other tasks is decided there, on the fold, in the same change that appends the
// records. So a batch is accepted whole or not at all, and two that ask for one thing at once get one answer.
package admission

import (
	"context"
	"sync"

	"stint/coordinator/queue"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// An Admission decides about what clients ask for. Its methods may be called by any goroutine.
type Admission struct {
	tasks *queue.Store
	live  Live
	waits sync.Map // by pointers to the ids of runs, one for each task that a client within one waits for

	looks     sync.Map // at workspaces, that have not begun; see lookTogether
	checkouts sync.Map // directories in which one task runs at a time, by the places in them; "": somebody asks for it
}

// Live is what is asked of the runs at work. The dispatcher has them.
type Live interface {
	// TaskOf returns a task as its run knows it, with a workspace without links; nil if none is at work.
	TaskOf(id string) *state.Task
	// Cancel ends the run of a task with a cause, if there is one.
	Cancel(id string, cause error)
}

// New returns the admission to a store.
func New(s *queue.Store, live Live) *Admission {
	return &Admission{tasks: s, live: live}
}

// change changes the task that ref names, by Update or Exclusive, and returns it whole.
func (a *Admission) change(ctx context.Context, ref string, update func(context.Context, func(*fold.State, *ledger.Tx) error) error, f func(st *fold.State, tx *ledger.Tx, id string) error) (state.Task, error) {
	defer a.tasks.Call()()
	id, err := a.tasks.Find(ref)
	if err == nil {
		err = update(ctx, func(st *fold.State, tx *ledger.Tx) error { return f(st, tx, id) })
	}
	if err != nil {
		return state.Task{}, err
	}
	return a.tasks.Whole(id)
}
