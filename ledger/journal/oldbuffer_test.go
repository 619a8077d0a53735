package journal_test

import (
	"strings"
	"testing"
)

// TestOldBufferIsReportedOnlyWhenSaved: records that tasks.md never had were dropped by
// nobody, whether a person was saving when they came or a crash kept them out.
func TestOldBufferIsReportedOnlyWhenSaved(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		has     []string
		save    save
		missing int
	}{
		{"records that came while a person saved", []string{"a"}, put("## Task mine\n- status: queued\n"), 0},
		{"records that were dropped since", []string{"a", "b", "c"}, both(stale(2, ""), put("## Task mine\n- status: queued\n")), 2},
	} {
		w := openWorld(t, false, tt.has...)
		w.edit(tt.save)
		w.add("d", "status", "queued")
		report, err := w.log.Reconcile(t.Context(), false)
		said := strings.Join(w.said, "\n")
		if reported := strings.Contains(said, "an old buffer was saved?"); err != nil || report.Missing != tt.missing || reported != (tt.missing > 0) || len(report.Records) != 1 {
			t.Errorf("%s: %v, %d missing, adopted %v:\n%s", tt.name, err, report.Missing, report.Records, said)
		}
		w.reopened()
		w.everythingIsInTasks()
	}
	w := openWorld(t, false, "a", "b")
	w.reload(stale(2, ""))
	w.await("an old buffer was saved?") // also while no master ran
	w.reopened()
	w.everythingIsInTasks()
}
