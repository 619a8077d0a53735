package main

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestProgressBesideTheWait: who waits may find another master while the line is
// shown. The race detector looks at it.
func TestProgressBesideTheWait(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	t.Setenv("TERM", "xterm")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	a := &app{stderr: terminal, stateOption: t.TempDir()}
	stop := a.startProgress(t.Context(), "x")
	for i := range 20 {
		a.socket = fmt.Sprint("/nowhere/", i)
		time.Sleep(firstProgress / 10)
	}
	stop()
}
