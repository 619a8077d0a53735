package journal_test

import (
	"strings"
	"testing"
)

// TestOldBufferIsReportedOnlyWhenSaved: records that tasks.md never had were dropped by
// nobody, whether a person was saving when they came or a crash kept them out.
func TestOldBufferIsReportedOnlyWhenSaved(t *testing.T) {
	t.Parallel()
	reported := func(w *world) bool { return strings.Contains(strings.Join(w.said, "\n"), "an old buffer was saved?") }
	t.Run("records that came while a person saved", func(t *testing.T) {
		w := openWorld(t, false)
		w.add("a", "status", "queued")
		w.caughtUp()
		w.edit(put("## Task mine\n- status: queued\n"))
		w.add("b", "status", "queued")
		report, err := w.log.Reconcile(t.Context(), false)
		if err != nil || report.Missing != 0 || len(report.Records) != 1 || reported(w) {
			t.Errorf("%v, %d missing, adopted %v:\n%s", err, report.Missing, report.Records, strings.Join(w.said, "\n"))
		}
		w.reopened()
		w.everythingIsInTasks()
	})
	t.Run("records that were dropped since", func(t *testing.T) {
		w := openWorld(t, false)
		for _, id := range []string{"a", "b", "c"} {
			w.add(id, "status", "queued")
		}
		w.caughtUp()
		w.edit(both(stale(2, ""), put("## Task mine\n- status: queued\n")))
		w.add("d", "status", "queued")
		report, err := w.log.Reconcile(t.Context(), false)
		if err != nil || report.Missing != 2 || !reported(w) {
			t.Errorf("%v, %d missing:\n%s", err, report.Missing, strings.Join(w.said, "\n"))
		}
		w.reopened()
		w.everythingIsInTasks()
	})
	t.Run("an old buffer while no master ran", func(t *testing.T) {
		w := openWorld(t, false)
		w.add("a", "status", "queued")
		w.caughtUp()
		before := w.read("tasks.md")
		w.add("b", "status", "queued")
		w.close()
		w.write("tasks.md", before)
		w.open(false)
		if !reported(w) {
			t.Errorf("said:\n%s", strings.Join(w.said, "\n"))
		}
		w.reopened()
		w.everythingIsInTasks()
	})
}
