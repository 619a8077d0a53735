package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"stint/ledger"
	"stint/state"
)

// slowRecovery is more than a master may take from its start until a task whose
// run was interrupted is queued again.
const slowRecovery = 5 * time.Second

// killTree kills a master, which is stopped first, and before it the gates of its
// runs: then the agents and what they have left behind are on their own. While
// the master is stopped nobody else can have the number of one of its children.
func (w *crashWorld) killTree(master int) error {
	w.t.Helper()
	if err := syscall.Kill(master, syscall.SIGSTOP); err != nil {
		return err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range stats {
		text, _ := os.ReadFile(name) // it may be gone
		_, fields, _ := strings.Cut(string(text), ") ")
		var ppid int
		if _, err := fmt.Sscanf(fields, "%1s %d", new(string), &ppid); err != nil || ppid != master {
			continue
		}
		gate, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		_ = syscall.Kill(gate, syscall.SIGKILL) // it may have ended: then it is a zombie
	}
	return syscall.Kill(master, syscall.SIGKILL)
}

// slowest gives the longest time from the start of a master until it has queued a
// task again that was running when the one before was killed, and how often that
// happened, as the journal has it. w.starts are the masters' starts.
func (w *crashWorld) slowest() (longest time.Duration, requeued int) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.state, "journal.md"))
	if err != nil {
		w.t.Fatal(err)
	}
	doc := ledger.Parse(text)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Value(state.KeyReason) != string(state.ClassInterrupted) || s.Value(state.KeyRetries) == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, s.Value(state.KeyUpdatedAt))
		if err != nil {
			w.t.Fatal(err)
		}
		requeued++
		longest = max(longest, at.Sub(w.startBefore(at)))
	}
	return longest.Round(time.Millisecond), requeued
}

// startBefore gives the start of the master that wrote a record then.
func (w *crashWorld) startBefore(at time.Time) time.Time {
	w.t.Helper()
	i, _ := slices.BinarySearchFunc(w.starts, at.Add(time.Millisecond), time.Time.Compare) // records have no more digits
	if i == 0 {
		w.t.Fatalf("no master was there at %v: %v", at, w.starts)
	}
	return w.starts[i-1]
}

// survivors gives the processes whose environment names the state directory, as
// those of all its agents does.
func (w *crashWorld) survivors() (found []string) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && pid != os.Getpid() && bytes.Contains(env, []byte(w.state+"/")) {
			cmd, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may be gone
			found = append(found, fmt.Sprintf("%d %q", pid, cmd))
		}
	}
	return found
}
