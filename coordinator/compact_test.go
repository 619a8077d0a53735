package coordinator_test

import (
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// TestRetryDuringCompaction: a task that is retried while a compaction moves it out is whole afterwards, and no other step of that is left.
func TestRetryDuringCompaction(t *testing.T) {
	w := idleWorld(t)
	ended := w.submit(task.TaskSpec{Prompt: "Rotate the key", Label: "keys"})
	_, err := w.c.Cancel(t.Context(), ended.ID, ledger.ByClient)
	check(t, err)
	tries := 0
	report, err := w.c.Store.Store.Compact(t.Context(), false, 0, func(st *fold.State, out func(ledger.Moved) error) (ledger.Keep, error) {
		keep, err := st.Compact(time.Now().Add(time.Hour), false, out)
		if tries++; tries == 1 {
			_, err := w.c.Retry(t.Context(), ended.ID, ledger.ByClient)
			check(t, err)
		}
		return keep, err
	})
	check(t, err)
	now, err := w.c.Task(t.Context(), ended.ID)
	check(t, err)
	if now.Status != state.Queued || now.Prompt != "Rotate the key" || now.Label != "keys" || report.Archived != 0 || tries != 2 {
		t.Errorf("after %d tries %s with the prompt %q and the label %q; %+v", tries, now.Status, now.Prompt, now.Label, report)
	}
}
