package api

import (
	"context"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/task"
	"stint/state"
)

// Shared is the queue in a database that several machines share.
type Shared interface {
	submitter
	// Task returns a whole task. ref is its id, or a unique piece of it.
	Task(ctx context.Context, ref string) (state.Task, error)
	// List returns tasks without their texts, newest first. It refuses what it cannot filter by.
	List(ctx context.Context, f state.Filter) ([]state.Task, error)
	// Watch calls tell with all tasks that have not ended, and then often with those that have changed, or none, until something has an error.
	Watch(ctx context.Context, tell func([]state.Task) error) error
	// Status returns how the queue is, and who works for it.
	Status(ctx context.Context) (task.SharedStatus, error)
}

// A submitter is what [Master] and [Shared] have in common.
type submitter interface {
	// Submit makes a task durable. A spec whose id or idempotency key exists already returns the existing task.
	Submit(ctx context.Context, spec task.TaskSpec) (state.Task, error)
	// SubmitOnce makes tasks durable in one batch: all of them, or none if one is wrong. key is
	// the idempotency key of the list as a whole; "": it has none.
	SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) ([]state.Task, error)
}

// A sharedInput says which tasks are meant.
type sharedInput struct {
	Shared bool `query:"shared" doc:"Of the queue in the database that several machines share, and not of the ledger" example:"true"`
}

// shared returns the shared queue if it is wanted, or why it cannot be had. A run changes nothing there.
func (s *Server) shared(ctx context.Context, wanted, changes bool) (Shared, error) {
	switch {
	case !wanted:
		return nil, nil
	case changes && guard.Run(ctx) != "":
		return nil, task.ErrFromRun
	case s.rooms.Shared == nil:
		return nil, task.Conflict("stint config set postgres.url postgres://db.example/cli_worker, and start the master anew", "no database is configured for a shared queue")
	}
	return s.rooms.Shared, nil
}

// sharedNow returns how the shared queue is, and waits for a second at most; nil: there is none.
func (s *Server) sharedNow(ctx context.Context) *task.SharedStatus {
	if s.rooms.Shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := s.rooms.Shared.Status(ctx)
	status.IsUp = err == nil
	return &status
}
