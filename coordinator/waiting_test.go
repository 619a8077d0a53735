package coordinator_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
)

// TestWaitingTasksAreSmall keeps the bound of 600 bytes for a task that waits, with a prompt of 1.5 KB: in
// the master that it was submitted to, in the next one, and after a compaction.
func TestWaitingTasksAreSmall(t *testing.T) {
	notShort(t)
	const tasks, most = 10_000, 600
	w := openWorld(t)
	before := heapInUse()
	check := func(when string, kept int64) {
		t.Helper()
		each := (int64(heapInUse()-before) - kept) / tasks
		t.Logf("%s: %d bytes a task", when, each)
		if each > most {
			t.Errorf("%s a waiting task costs %d bytes, more than %d", when, each, most)
		}
	}
	prompt, specs := strings.Repeat("Fix the flaky login test.\n", 60), make([]task.TaskSpec, 100)
	for i := range tasks / len(specs) {
		for j := range specs {
			specs[j] = task.TaskSpec{
				Prompt: strconv.Itoa(i*len(specs)+j) + prompt, Workspace: w.work, NotBefore: time.Now().Add(24 * time.Hour),
				Label: "nightly", MaxAttempts: 3, VerifyCommand: "go test ./...",
			}
		}
		if _, err := w.c.SubmitOnce(t.Context(), "", specs); err != nil {
			t.Fatal(err)
		}
	}
	specs, prompt = nil, ""
	check("submitted", 8<<20) // the ledger remembers the records that were written last
	w.restart()
	check("restarted", 4<<20)
	w.compact(0)
	check("compacted", 4<<20)
}

// heapInUse returns the bytes of what is reachable.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
