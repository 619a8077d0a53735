// Package due keeps the queue of due jobs: who wants something done with an object of memory at
// some time enqueues a job, and workers pull those that are due.
package due

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"stint/ledger/durable"
	"stint/state/jobs"
)

// Options are what a [Room] needs. Dir, Now and NewID must be set.
type Options struct {
	Dir   string                        // the state directory, whose lock the caller holds
	FS    durable.FS                    // nil: that of the system
	Watch bool                          // jobs.md is watched for what people write
	Lease time.Duration                 // how long a worker has a job; 0: 5 minutes
	Keep  time.Duration                 // how long jobs that ended stay in jobs.md; 0: 30 days
	Now   func() time.Time              // the clock
	NewID func() string                 // a new id each time
	Tell  func(kind, name, text string) // hears of dead letters: job-dead-letter; nil: nobody does
	Log   *slog.Logger                  // nil: none
}

// A Room keeps the due jobs of a state directory. Its methods may be called by any goroutine. Their
// errors are those of package task where a client can do something about it.
type Room struct{}

var errTodo = errors.New("due jobs are not built yet")

// Open reads jobs.md and takes over what was edited meanwhile.
func Open(opts Options) (*Room, error) { return &Room{}, nil }

// Enqueue adds a job. Where a job has its key already, that one is the answer and isNew false, or a
// conflict if it asks for something else.
func (r *Room) Enqueue(ctx context.Context, spec jobs.Spec) (job jobs.Job, isNew bool, err error) {
	return jobs.Job{}, false, errTodo
}

// Pull hands out jobs that are due to a worker, who has them until their lease ends: by run_at, then
// priority.
func (r *Room) Pull(ctx context.Context, p jobs.Pull) ([]jobs.Job, error) { return nil, errTodo }

// Ack ends a job that was carried out, and queues the next one if the worker names a time for it.
func (r *Room) Ack(ctx context.Context, id string, a jobs.Ack) (jobs.Job, error) {
	return jobs.Job{}, errTodo
}

// Fail ends an attempt: the job is queued again a while later, or is a dead letter.
func (r *Room) Fail(ctx context.Context, id string, f jobs.Fail) (jobs.Job, error) {
	return jobs.Job{}, errTodo
}

// Retry queues a dead letter again, now and with all its attempts.
func (r *Room) Retry(ctx context.Context, id string) (jobs.Job, error) { return jobs.Job{}, errTodo }

// Job returns a job by its id, or a unique piece of it.
func (r *Room) Job(id string) (jobs.Job, error) { return jobs.Job{}, errTodo }

// List returns jobs that are in jobs.md, those first that are due first. Who lets a client choose
// asks [jobs.Filter.Check] before.
func (r *Room) List(f jobs.Filter) []jobs.Job { return nil }

// Metrics returns the figures of now.
func (r *Room) Metrics() jobs.Metrics { return jobs.Metrics{} }

// Run takes jobs from workers whose lease has ended, tells of dead letters and keeps jobs.md short,
// until ctx ends.
func (r *Room) Run(ctx context.Context) { <-ctx.Done() }

// Close writes what waits and closes the files.
func (r *Room) Close() error { return nil }
