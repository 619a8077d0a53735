package main

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

// TestInterruptibly: Ctrl-C ends a command while what it computes goes on.
func TestInterruptibly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun, end := make(chan bool), make(chan bool)
	defer close(end)
	go func() {
		<-begun
		cancel()
	}()
	n, err := interruptibly(ctx, interrupted, func() (int, error) {
		begun <- true
		<-end
		return 1, nil
	})
	if n != 0 || exitCode(err) != exitInterrupted {
		t.Error(n, err)
	}
	if n, err = interruptibly(t.Context(), interrupted, func() (int, error) { return 2, nil }); n != 2 || err != nil {
		t.Error(n, err)
	}
}

// TestOpenGrace: a master that is opening its ledger goes on for a moment, and no longer.
func TestOpenGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		late := lateBy(ctx, openGrace)
		cancel(errDetached)
		signaled := time.Now()
		<-late.Done()
		if waited := time.Since(signaled); waited != openGrace || !errors.Is(context.Cause(late), errDetached) {
			t.Error(waited, context.Cause(late))
		}
	})
}

// TestLargeSpecFile: of a file that is too large not all is read.
func TestLargeSpecFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.json")
	if err := errors.Join(os.WriteFile(path, []byte("["), 0o600), os.Truncate(path, 1<<40)); err != nil {
		t.Fatal(err)
	}
	if _, err := readNamed(path, maxSpecFile); err == nil || !strings.Contains(err.Error(), "it has more than 67108864 bytes") {
		t.Error(err)
	}
}
