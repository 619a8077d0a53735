package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"stint/ledger/durable"
)

// A BusyError is the error for a state directory that another process has locked.
type BusyError struct {
	Dir string
	PID int // of the holder; 0 if it could not be read
}

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another master", e.Dir)
	}
	return fmt.Sprintf("%s is in use by the master with pid %d", e.Dir, e.PID)
}

// Lock takes the right to write the state directory dir, without waiting. The
// lock file is never renamed or removed by us; should somebody else do that, the
// lock of the directory itself, which is taken too, still keeps others out. The
// kernel frees both when the process ends, however it ends. The error is a
// *BusyError if another process holds them.
func Lock(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, "lock")
	file, err := durable.Open(path, os.O_RDWR|os.O_CREATE, durable.FileMode)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	itself, err := os.Open(dir + "/.")
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	unlock = func() error { return errors.Join(itself.Close(), file.Close()) }
	held, err := durable.TryLock(file)
	switch {
	case err != nil:
		err = fmt.Errorf("lock %s: %w", path, err)
	case !held:
		err = &BusyError{Dir: dir, PID: LockHolder(dir)}
	default:
		if held, err := durable.TryLock(itself); !held && err == nil { // with an error the file system (NFS, for one) cannot do that
			return nil, errors.Join(&BusyError{Dir: dir}, unlock())
		}
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
		}
	}
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// LockHolder returns the pid of the process that took the Lock of dir last, 0 if that
// cannot be read. It may have ended.
func LockHolder(dir string) int {
	data, _ := durable.ReadFile(durable.OS, filepath.Join(dir, "lock")) // no number either
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}
