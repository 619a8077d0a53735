package lock_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/ledger/lock"
)

// TestOneLock: whatever somebody does to the lock file while a
// master holds it, no second one gets in, and the next one does when it has gone.
func TestOneLock(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"left alone": func(string) error { return nil },
		"removed":    os.Remove,
		"truncated":  func(path string) error { return os.Truncate(path, 0) },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+"~", nil, 0o600), os.Rename(path+"~", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			unlock, err := lock.Dir(dir)
			must(t, err)
			must(t, spoil(filepath.Join(dir, "lock")))
			for range 2 { // the first one has made a new lock file
				if second, err := lock.Dir(dir); !errors.Is(err, lock.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint("pid ", os.Getpid())) && name == "left alone" {
					t.Fatalf("a second lock: %v, %v", second != nil, err)
				}
			}
			must(t, unlock())
			unlock, err = lock.Dir(dir)
			must(t, err)
			must(t, unlock())
		})
	}
}

// TestLockOfAMoment: the descriptors of a master that was killed are there until what it was starting has begun.
func TestLockOfAMoment(t *testing.T) {
	dir := t.TempDir()
	first, err := lock.Dir(dir)
	must(t, err)
	time.AfterFunc(30*time.Millisecond, func() {
		if err := first(); err != nil {
			t.Error(err)
		}
	})
	unlock, err := lock.Dir(dir)
	must(t, err)
	must(t, unlock())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
