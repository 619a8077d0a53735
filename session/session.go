// Package session keeps what belongs to conversations with agents: which session is the current one of a
// session key, what was said in it, and the lock that lets one run at a time use it.
//
// Everything lies in the state directory, which is the dir of all functions here:
//
//	sessions.json         the current sessions          [Store]
//	sessions/<id>.jsonl   what was said in a session    [Message]
//	sessions/<id>.lock    held while a run uses it      [Lock]
//
// A task that has a lane of its own leaves nothing here: its session is its own, and what was said is in the ledger.
//
// None of it is the truth about tasks; that is the ledger. sessions.json is a
// cache of the fold, and transcripts are there to be read by people.
package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stint/ledger/durable"
	"stint/ledger/lock"
)

// checkID returns an error unless id can name a session: ids become file names.
func checkID(id string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	if id == "" || len(id) > 64 || strings.Trim(id, allowed) != "" {
		return fmt.Errorf("session id %.80q is not 1 to 64 letters, digits and hyphens", id)
	}
	return nil
}

// TranscriptPath names the transcript of a session. id must be valid.
func TranscriptPath(dir, id string) string { return filepath.Join(dir, "sessions", id+".jsonl") }

// makeDir makes the directory of transcripts and locks, in a state directory that is there.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	return durable.MkdirAll(durable.OS, filepath.Join(dir, "sessions"))
}

// ErrBusy is what Lock's error wraps when somebody else has held the lock all the time.
var ErrBusy = errors.New("session busy")

// Lock takes the lock of a session, which keeps out other goroutines as well as other processes. It waits for
// at most timeout and then returns an error that wraps [ErrBusy]; with a timeout of 0 or less it tries once.
// If ctx ends first it returns the cause. The lock ends with unlock, or with the process.
//
// The lock file stays as long as a task may use the session: were it removed, two
// processes could each hold the lock of a file of that name.
func Lock(ctx context.Context, dir, id string, timeout time.Duration) (unlock func() error, err error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err = context.Cause(ctx); err == nil {
		err = makeDir(dir)
	}
	if err == nil {
		unlock, err = lock.Take(ctx, filepath.Join(dir, "sessions", id+".lock"), timeout)
	}
	if errors.Is(err, lock.ErrLocked) {
		return nil, fmt.Errorf("%w: %s is in use by another run, waited %v", ErrBusy, id, max(timeout, 0))
	}
	if err != nil {
		return nil, fmt.Errorf("session lock: %w", err)
	}
	return unlock, nil
}
