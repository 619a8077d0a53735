package agent

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// Main is a TestMain: the test binary can be the gate, and each of the programs, by its first argument.
func Main(m *testing.M, gate func() int, programs map[string]func() int) {
	if len(os.Args) > 1 {
		if os.Args[1] == "gate" {
			syscall.Exit(gate()) // os.Exit waits for a second under the race detector
		}
		if program := programs[os.Args[1]]; program != nil {
			os.Exit(program())
		}
	}
	_ = flag.Set("test.parallel", "6")                                                                  // most tests wait for other processes; -parallel still counts
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("stint/coordinator/agent/gate.(*follower).read")) // it lives as long as the process
}

// A Bench has the directories of runs. It belongs to the test's goroutine.
type Bench struct {
	T    testing.TB
	Dir  string
	runs int
}

// NewBench returns a bench in a directory of its own.
func NewBench(t testing.TB) *Bench { return &Bench{T: t, Dir: t.TempDir()} }

// Turn makes the directory and the prompt of a new run.
func (b *Bench) Turn(prompt string) task.Turn {
	b.T.Helper()
	b.runs++
	id := fmt.Sprintf("run-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), b.runs)
	turn := task.Turn{
		TaskID: "task-" + id, RunID: id, Attempt: 1, RunDir: filepath.Join(b.Dir, "runs", id),
		Workspace: filepath.Join(b.Dir, "work"), Limits: task.RunLimits{Grace: 2 * time.Second},
	}
	turn.Prompt = filepath.Join(turn.RunDir, "prompt.md")
	for _, d := range []string{turn.RunDir, turn.Workspace} {
		Must(b.T, os.MkdirAll(d, 0o700))
	}
	Must(b.T, os.WriteFile(turn.Prompt, []byte("# Header\n\n## User message\n\n"+prompt+"\n"), 0o600))
	return turn
}

// Program writes a program that does as a script says, and returns its path.
func (b *Bench) Program(name, script string) string {
	b.T.Helper()
	bin := filepath.Join(b.Dir, name)
	Must(b.T, os.WriteFile(bin, []byte("#!/bin/bash\n"+script+"\n"), 0o700))
	return bin
}

// Must ends a test after an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Read returns what a file in a directory has.
func Read(t testing.TB, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	Must(t, err)
	return string(data)
}

// Missing skips a test for want of something, which must not happen in CI.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Eventually waits until a condition on real processes holds.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

// Marked returns the processes that have a run's mark in their environment.
func Marked(t testing.TB, runID string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	Must(t, err)
	for _, file := range files {
		env, _ := os.ReadFile(file) // it may have ended, or be another user's
		if strings.Contains("\x00"+string(env), "\x00STINT_RUN_ID="+runID+"\x00") {
			pids = append(pids, strings.Split(file, "/")[2])
		}
	}
	return pids
}

// WantGone checks that no process carries a run's mark and that nobody holds its lock; one that
// is just being forked in this process may hold it for a moment.
func WantGone(t testing.TB, turn task.Turn) {
	t.Helper()
	if left := Marked(t, turn.RunID); len(left) > 0 {
		t.Errorf("processes of the run are left: %v", left)
	}
	Eventually(t, "the run's lock is free", func() bool {
		f, err := durable.Open(filepath.Join(turn.RunDir, "lock"), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			return true
		}
		Must(t, err)
		free, err := durable.TryLock(f)
		Must(t, errors.Join(err, f.Close()))
		return free
	})
}
