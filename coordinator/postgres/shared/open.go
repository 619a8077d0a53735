package shared

import (
	"context"
	"time"

	"stint/coordinator/postgres/schema"
	"stint/coordinator/postgres/server"
	"stint/coordinator/task"
)

// An Opener connects to the database of a shared queue when it is first asked for it, and keeps the connections. Its methods may
// be called by any goroutine.
type Opener struct {
	url      func() (string, error)
	poolSize int

	lock chan struct{}    // has one while somebody opens it, whom others wait for until their contexts end
	db   *server.Database // nil: it was not asked for yet, or could not be used
	q    *Queue
}

// NewOpener returns an opener that has not connected. url and poolSize are those of [server.Connect].
func NewOpener(url func() (string, error), poolSize int) *Opener {
	return &Opener{url: url, poolSize: poolSize, lock: make(chan struct{}, 1)}
}

// open returns the database. In an empty one it makes the schema; one of another version is refused.
func (o *Opener) open(ctx context.Context) (*server.Database, error) {
	select {
	case o.lock <- struct{}{}:
		defer func() { <-o.lock }()
	case <-ctx.Done():
		return nil, server.Explain(ctx.Err(), server.Target{})
	}
	if o.db != nil {
		return o.db, nil
	}
	db, err := server.Connect(ctx, o.url, o.poolSize)
	if err != nil {
		return nil, err
	}
	if err := schema.Ensure(ctx, db); err != nil {
		db.Close()
		return nil, server.Explain(err, db.Target)
	}
	o.db, o.q = db, New(db.Pool)
	return db, nil
}

// Do calls do with the queue, and returns its error, or why there is no queue, as [server.Explain] has it.
func (o *Opener) Do(ctx context.Context, do func(*Queue) error) error {
	db, err := o.open(ctx)
	if err != nil {
		return err
	}
	return server.Explain(do(o.q), db.Target)
}

// Listen sends to wake when the database says that something was queued, and each time it has begun to listen, until ctx ends. Where
// it cannot listen it tries again after that time.
func (o *Opener) Listen(ctx context.Context, again time.Duration, wake chan<- struct{}) {
	for ctx.Err() == nil {
		_ = o.Do(ctx, func(q *Queue) error { // who polls, says what is wrong
			c, err := q.pool.Acquire(ctx)
			if err != nil {
				return err
			}
			conn := c.Hijack() // it is not to go back with what it listens to
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			if _, err = conn.Exec(ctx, "LISTEN "+Channel); err != nil {
				return err
			}
			for ; err == nil; _, err = conn.WaitForNotification(ctx) {
				task.Wake(wake)
			}
			return err
		})
		_ = task.Sleep(ctx, again)
	}
}

// Close ends all connections. Nobody may use the queue any more.
func (o *Opener) Close() {
	o.lock <- struct{}{}
	defer func() { <-o.lock }()
	if o.db != nil {
		o.q.tellers.Wait()
		o.db.Close()
	}
}
