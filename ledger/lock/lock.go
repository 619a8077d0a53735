// Package lock takes locks of files, which the kernel frees when the process ends, however it ends.
package lock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"

	"stint/ledger/durable"
)

// ErrLocked is [Take]'s error when somebody else has held the lock all the time.
var ErrLocked = errors.New("locked")

// Take takes the lock of a file, which is made if need be and stays: it keeps out other goroutines as well as other
// processes. It waits for at most timeout; with 0 or less it tries once. If ctx ends first, the error is its cause. The
// lock ends with unlock, or with the process.
func Take(ctx context.Context, path string, timeout time.Duration) (unlock func() error, err error) {
	if err := durable.With(durable.OS, path, os.O_RDWR|os.O_CREATE, func(durable.File, fs.FileInfo) error { return nil }); err != nil {
		return nil, err
	}
	// A lock of its own, with its own descriptor, for every caller: flock keeps two descriptors apart, also within a process.
	l := flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE|durable.NoTricks), flock.SetPermissions(durable.FileMode))
	locked, err := l.TryLock()
	if !locked && err == nil && timeout > 0 {
		limit, cancel := context.WithTimeoutCause(ctx, timeout, ErrLocked)
		defer cancel()
		locked, err = l.TryLockContext(limit, 25*time.Millisecond) // flock itself cannot wait with a deadline
		if !locked && limit.Err() != nil {
			err = context.Cause(limit)
		}
	}
	if err == nil && !locked {
		err = ErrLocked
	}
	return l.Unlock, err
}
