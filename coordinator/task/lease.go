package task

import (
	"context"
	"sync"
	"time"
)

// A Lease bounds a run from outside: when it ends, the run must have ended, also if the master hangs. It may be
// prolonged while the run goes on, by any goroutine. Its end is told by a clock that counts the time that the machine sleeps; see hold.Uptime.
type Lease struct {
	mu      sync.Mutex
	until   time.Duration
	changed chan struct{}
}

// NewLease returns a lease that ends then; 0: never.
func NewLease(until time.Duration) *Lease { return &Lease{until: until, changed: make(chan struct{})} }

// Until returns when the lease ends, and a channel that is closed when that has changed. Without a lease there is neither.
func (l *Lease) Until() (time.Duration, <-chan struct{}) {
	if l == nil {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until, l.changed
}

// Set says when the lease ends from now on.
func (l *Lease) Set(until time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
	close(l.changed)
	l.changed = make(chan struct{})
}

type leaseKey struct{}

// WithLease returns a context for runs under a lease; see [LeaseOf].
func WithLease(ctx context.Context, l *Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// LeaseOf returns the lease of a run; nil if it has none.
func LeaseOf(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}
