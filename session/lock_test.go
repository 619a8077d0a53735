package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const testID = "019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"

func mustLock(t *testing.T, dir, id string, timeout time.Duration) func() {
	t.Helper()
	unlock, err := Lock(t.Context(), dir, id, timeout)
	must(t, err)
	return func() {
		t.Helper()
		must(t, unlock())
	}
}

func TestLockBusyInProcess(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		unlock := mustLock(t, dir, testID, 0)
		mustLock(t, dir, "another", 0)() // other sessions are free
		for _, timeout := range []time.Duration{-time.Second, 0, 10 * time.Second} {
			start := time.Now()
			_, err := Lock(t.Context(), dir, testID, timeout)
			if !errors.Is(err, ErrBusy) || !strings.HasPrefix(err.Error(), "session busy: "+testID) {
				t.Errorf("timeout %v: %v", timeout, err)
			}
			if waited := time.Since(start); waited < timeout || waited > max(timeout, 0)+(25*time.Millisecond) {
				t.Errorf("timeout %v: waited %v", timeout, waited)
			}
		}
		unlock()
		mustLock(t, dir, testID, 0)()
	})
	checkModes(t, dir)
	if _, err := os.Stat(filepath.Join(dir, "sessions", testID+".lock")); err != nil {
		t.Errorf("the lock file must stay: %v", err)
	}
}

func TestLockWaits(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		unlock := mustLock(t, dir, testID, 0)
		go func() {
			time.Sleep(3 * time.Second) // of the bubble's clock
			unlock()
		}()
		start := time.Now()
		mustLock(t, dir, testID, 10*time.Second)()
		if waited := time.Since(start); waited < 3*time.Second || waited > 3*time.Second+(25*time.Millisecond) {
			t.Errorf("waited %v for a lock that was free after 3s", waited)
		}
	})
}

func TestLockCanceled(t *testing.T) {
	dir := t.TempDir()
	why := errors.New("the user changed his mind")
	synctest.Test(t, func(t *testing.T) {
		defer mustLock(t, dir, testID, 0)()
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel(why)
		}()
		for range 2 { // the second time with a context that has already ended
			if _, err := Lock(ctx, dir, testID, time.Hour); !errors.Is(err, why) || errors.Is(err, ErrBusy) {
				t.Errorf("got %v, want the cause", err)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := Lock(ctx, dir, testID, time.Hour); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrBusy) {
			t.Errorf("got %v, want the caller's own deadline", err)
		}
	})
}

func TestLockAcrossProcesses(t *testing.T) {
	dir := t.TempDir()
	h := startHolder(t, dir, testID)
	if h.said != "held" {
		t.Fatal(h.said)
	}
	if _, err := Lock(t.Context(), dir, testID, 50*time.Millisecond); !errors.Is(err, ErrBusy) {
		t.Fatalf("another process holds the lock: %v", err)
	}
	h.leave(t)
	unlock := mustLock(t, dir, testID, 0)
	if h := startHolder(t, dir, testID); !strings.HasPrefix(h.said, "session busy: ") {
		t.Errorf("while we hold the lock the other process says %q", h.said)
	}
	unlock()
	h = startHolder(t, dir, testID)
	h.kill(t) // kill -9 releases it too
	mustLock(t, dir, testID, 0)()
}

func TestLockErrors(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"", "a/b", "..", "a.b", "a\n", "é", strings.Repeat("a", 65)} {
		if _, err := Lock(t.Context(), dir, id, 0); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Lock(t.Context(), file, testID, 0); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("a state directory that is a file: %v", err)
	}
	if unlock, err := Lock(t.Context(), dir, strings.Repeat("a", 64), 0); err != nil {
		t.Error(err)
	} else if err := errors.Join(unlock(), unlock()); err != nil {
		t.Errorf("a second unlock: %v", err)
	}
}
