package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/api"
)

// TestSilentMaster: what a person reads when the master was stopped.
func TestSilentMaster(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&app{stateOption: dir}).silent(fmt.Errorf("%w at /run/s", api.ErrSilent))
	if exitCode(err) != exitBusy || isPassing(err) {
		t.Errorf("code %d, passing %v", exitCode(err), isPassing(err))
	}
	var text bytes.Buffer
	printError(&text, err)
	for _, want := range []string{"process 4711", "stopped, has no more open files, or hangs: the master does not answer at /run/s", "kill -CONT 4711", "kill -9 4711"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %q", want, text.String())
		}
	}
}
