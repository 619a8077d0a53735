package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"stint/ledger/durable"
)

// ErrBusy is what Lock's error wraps when somebody else has held the lock all
// the time.
var ErrBusy = errors.New("session busy")

// lockPoll is the time between two tries; flock cannot wait with a deadline.
const lockPoll = 25 * time.Millisecond

// Lock takes the lock of a session, which keeps out other goroutines as well as
// other processes. It waits for at most timeout and then returns an error that
// wraps [ErrBusy]; with a timeout of 0 or less it tries once. If ctx ends first
// it returns the cause. The lock ends with unlock, or with the process.
//
// The lock file stays for ever: were it removed, two processes could each hold
// the lock of a file of that name.
func Lock(ctx context.Context, dir, id string, timeout time.Duration) (unlock func() error, err error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("session lock: %w", context.Cause(ctx))
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("session lock: %w", err)
	}
	path := filepath.Join(dir, "sessions", id+".lock")
	// A descriptor of its own for every caller: flock keeps two of them apart, also
	// within a process.
	f, err := durable.Open(path, os.O_RDWR|os.O_CREATE, durable.FileMode)
	if err != nil {
		return nil, fmt.Errorf("session lock: %w", err)
	}
	held, err := waitLock(ctx, f, timeout)
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("session lock: %w", err), f.Close())
	case !held:
		return nil, errors.Join(fmt.Errorf("%w: %s is in use by another run, waited %v", ErrBusy, id, max(timeout, 0)), f.Close())
	}
	return sync.OnceValue(f.Close), nil
}

// waitLock tries until timeout (false, nil) or the end of ctx (its cause), and once at least.
func waitLock(ctx context.Context, f *os.File, timeout time.Duration) (held bool, err error) {
	limit := time.After(timeout)
	for {
		if held, err := durable.TryLock(f); held || err != nil {
			return held, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-limit:
			return false, nil
		case <-time.After(lockPoll):
		}
	}
}
