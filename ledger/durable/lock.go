package durable

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// ErrLocked is [Lock]'s error when somebody else has held the lock all the time.
var ErrLocked = errors.New("locked")

// lockPoll is the time between two tries; flock cannot wait with a deadline.
const lockPoll = 25 * time.Millisecond

// Lock takes the lock of a file, which is made if need be and stays: it keeps out other goroutines as well as other
// processes. It waits for at most timeout; with 0 or less it tries once. If ctx ends first, the error is its cause. The
// lock ends with unlock, or with the process.
func Lock(ctx context.Context, path string, timeout time.Duration) (unlock func() error, err error) {
	if err := Make(path); err != nil {
		return nil, err
	}
	// A lock of its own, with its own descriptor, for every caller: flock keeps
	// two descriptors apart, also within a process.
	l := flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE|NoTricks), flock.SetPermissions(FileMode))
	locked, err := l.TryLock()
	if !locked && err == nil && timeout > 0 {
		limit, cancel := context.WithTimeout(ctx, timeout)
		locked, err = l.TryLockContext(limit, lockPoll)
		cancel()
		if !locked && ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil // somebody has held it all the time
		}
	}
	if err == nil && !locked {
		err = ErrLocked
	}
	return l.Unlock, err
}
