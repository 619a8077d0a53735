package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"stint/ledger/durable"
)

// dirWait is how long Dir waits: what a process that was killed was about to start has its descriptors until its exec.
const dirWait = 100 * time.Millisecond

// Dir takes the right to write the state directory dir, and waits no longer than [dirWait]. The lock file is never renamed or
// removed by us; should somebody else do that, the lock of the directory itself, which is taken too, still
// keeps others out. The kernel frees both when the process ends, however it ends. The error wraps
// ErrLocked if another process holds them.
func Dir(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, "lock")
	free, err := Take(context.Background(), path, dirWait)
	if errors.Is(err, ErrLocked) {
		err = fmt.Errorf("%s is %w by another master", dir, ErrLocked)
		if pid := Holder(dir); pid > 0 { // what has locked the file has not written into it yet, or is no master
			err = fmt.Errorf("%w, with pid %d as the file lock says", err, pid)
		}
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	itself := flock.New(dir, flock.SetFlag(os.O_RDONLY))
	unlock = func() error { return errors.Join(itself.Close(), free()) }
	ok, err := itself.TryLock()
	for end := time.Now().Add(dirWait); !ok && err == nil && time.Now().Before(end); ok, err = itself.TryLock() {
		time.Sleep(time.Millisecond)
	}
	if !ok && err == nil { // with an error the file system (NFS, for one) cannot do that
		return nil, errors.Join(fmt.Errorf("%s is %w by another master", dir, ErrLocked), unlock())
	}
	err = durable.With(durable.OS, path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, func(f durable.File, _ fs.FileInfo) error {
		_, err := fmt.Fprintln(f, os.Getpid())
		return err
	})
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// Holder returns the pid of the process that took the lock of [Dir] last, 0 if that cannot be read. It may have ended.
func Holder(dir string) int {
	data, _ := durable.ReadFile(durable.OS, filepath.Join(dir, "lock")) // no number either
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}
