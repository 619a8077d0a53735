package schedule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/task"
)

// TestLastIsCheap: a schedule that has not fired for long is looked up without decoding what others did.
func TestLastIsCheap(t *testing.T) {
	h := &history{path: filepath.Join(t.TempDir(), "job_runs.jsonl")}
	text := `{"schedule":"rare","outcome":"ok"}` + "\n" + strings.Repeat(`{"schedule":"often","outcome":"ok"}`+"\n", 5000)
	if err := os.WriteFile(h.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	always := func(*task.JobRun) bool { return true }
	allocs := testing.AllocsPerRun(1, func() {
		if run, err := h.last("rare", always); err != nil || run == nil || run.Schedule != "rare" {
			t.Errorf("%+v, %v", run, err)
		}
	})
	if run, err := h.last("often", always); allocs > 1000 || err != nil || run.Schedule != "often" {
		t.Errorf("%.0f allocations; %+v, %v", allocs, run, err)
	}
}
