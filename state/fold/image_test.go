package fold

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stint/ledger"
	"stint/state"
)

// pages returns all ids by pages of n.
func pages(s *State, n int) (ids []string) {
	for page := s.IDs(0, n); len(page) > 0; page = s.IDs(len(ids), n) {
		ids = append(ids, page...)
	}
	return ids
}

// TestIDs: every task has one place, by whatever pages they are asked for: one that was
// moved out, that was brought back, that a person has deleted.
func TestIDs(t *testing.T) {
	j := newJournal(t)
	for i := 1; i <= 4; i++ {
		j.task(uuid(i), "status: done", "updatedAt: "+at(0))
	}
	j = j.compacted(j.compact(noon.Add(time.Second)))
	j.task("five", "status: done")
	before := j.state.IDs(0, 3)
	j.task(uuid(2), "status: queued", "prompt: again")
	j.task("six", "status: queued")
	j.task(uuid(1), "status: queued", "prompt: again")
	j.task("seven", "status: queued")
	j.control(ControlDeleted, "tasks: five")
	want := []string{uuid(1), uuid(2), uuid(3), uuid(4), "five", "six", "seven"}
	for n := 1; n <= len(want)+1; n++ {
		if got := pages(j.state, n); !slices.Equal(got, want) {
			t.Errorf("by pages of %d: %v", n, got)
		}
	}
	if got := append(before, j.state.IDs(3, 9)...); !slices.Equal(got, want) {
		t.Errorf("when some are brought back between two pages: %v", got)
	}
	if got := j.state.IDs(7, 1); got != nil {
		t.Errorf("behind the last one: %v", got)
	}
}

// TestHoldsKey: of those that name a key the first has it; one that it dropped is nobody's.
func TestHoldsKey(t *testing.T) {
	j := newJournal(t)
	j.task("a", "status: done", "idempotencyKey: k", "updatedAt: "+at(0))
	j.task("b", "status: queued", "idempotencyKey: k")
	j.task("c", "status: queued")
	check := func(j *journal, want string) {
		t.Helper()
		got := ""
		for _, id := range []string{"a", "b", "c"} {
			if j.state.HoldsKey(&state.Task{ID: id, IdempotencyKey: "k"}) {
				got += id
			}
		}
		if got != want {
			t.Errorf("%q has the key, want %q", got, want)
		}
	}
	check(j, "a")
	check(j.compacted(j.compact(noon.Add(time.Second))), "a") // from the archive
	j.task("a", "idempotencyKey:")
	check(j, "")
	if j.state.HoldsKey(&state.Task{ID: "c"}) {
		t.Error("a task without a key has one")
	}
}

// TestTaskAndRuns: read in one go they are what they are alone.
func TestTaskAndRuns(t *testing.T) {
	j := newJournal(t)
	loopRecords(j)
	j.task("u", "status: queued", "prompt: p")
	for _, id := range []string{"t", "u"} {
		reads := j.reads
		task, runs, ok, err := j.state.TaskAndRuns(id)
		reads = j.reads - reads
		alone := []state.Run{}
		eachErr := j.state.EachTask(func(runs []state.Run) error {
			alone = append(alone, runs...)
			return nil
		})
		if !ok || err != nil || eachErr != nil || reads != len(j.state.Offsets(id)) {
			t.Errorf("%s: %d reads, %v, %v, %v", id, reads, ok, err, eachErr)
		}
		alone = slices.DeleteFunc(alone, func(r state.Run) bool { return r.TaskID != id })
		if diff := cmp.Diff(j.whole(id), task) + cmp.Diff(alone, runs, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
	if _, _, ok, err := j.state.TaskAndRuns("nobody"); ok || err != nil {
		t.Errorf("of no task: %v, %v", ok, err)
	}
	j.broken = true
	if _, _, _, err := j.state.TaskAndRuns("t"); err == nil {
		t.Error("what cannot be read gives no error")
	}
}

// TestHowStepsFailed: the record that ends a run says how it failed.
func TestHowStepsFailed(t *testing.T) {
	for _, tc := range []struct {
		phase  string
		record []string // that ends it
		want   state.Class
		exit   string
	}{
		{"", []string{"status: done", "exitCode: 0"}, "", "0"},
		{"", []string{"status: failed", "reason: exit", "exitCode: 3"}, state.ClassExit, "3"},
		{"", []string{"status: failed", "reason: auth"}, state.ClassAuth, ""},
		{"", []string{"status: queued", "reason: network", "exitCode: 1"}, state.ClassNetwork, "1"},
		{"", []string{"status: queued", "reason: interrupted"}, state.ClassInterrupted, ""},
		{"", []string{"status: queued", "reason: orphaned", "hold: true"}, state.ClassOrphaned, ""},
		{"", []string{"status: dead", "reason: rate-limited"}, state.ClassRateLimited, ""},
		{"", []string{"status: canceled", "reason: canceled", "by: client"}, state.ClassCanceled, ""},
		{"", []string{"status: canceled", "by: hand"}, state.ClassCanceled, ""},
		{"", []string{"status: queued", "by: hand"}, state.ClassCanceled, ""},
		{"", []string{"status: done", "by: hand"}, state.ClassCanceled, ""},
		{"", []string{"status: running", "runId: next", "phase: verify"}, "", ""},
		{"", []string{"status: queued", "phase: verify"}, "", ""}, // the next step waits for its turn
		{"verify", []string{"status: done", "phase:", "verifyExitCode: 0", "exitCode: 0"}, "", "0"},
		{"verify", []string{"status: failed", "phase:", "verifyExitCode: 2", "reason: verify"}, state.ClassVerify, "2"},
		{"verify", []string{"status: running", "runId: next", "phase:", "verifyExitCode: -1"}, state.ClassVerify, "-1"},
		{"verify", []string{"status: failed", "phase:", "verifyExitCode: 0", "reason: output-missing"}, "", "0"}, // the command passed
		{"verify", []string{"status: queued", "reason: interrupted"}, state.ClassInterrupted, ""},
		{"verify", []string{"status: canceled", "reason: canceled", "by: client"}, state.ClassCanceled, ""},
		{"evaluate", []string{"status: done", "phase:", "exitCode: 0"}, "", ""}, // which is the task's
		{"evaluate", []string{"status: failed", "phase:", "reason: verify"}, "", ""},
		{"evaluate", []string{"status: queued", "reason: interrupted"}, state.ClassInterrupted, ""},
	} {
		j := newJournal(t)
		j.task("t", "status: queued", "prompt: p")
		j.task("t", "status: running", "runId: r", "attempt: 1", "phase: "+tc.phase, "exitCode:", "reason:")
		j.task("t", tc.record...)
		for what, j := range map[string]*journal{"live": j, "compacted": j.compacted(j.compact(time.Time{}))} {
			s, exit := j.whole("t").Steps[0], ""
			if s.ExitCode != nil {
				exit = fmt.Sprint(*s.ExitCode)
			}
			if s.RunID != "r" || s.Reason != tc.want || exit != tc.exit {
				t.Errorf("%s, in phase %q, %q: %q, exit code %q, want %q, %q", what, tc.phase, tc.record, s.Reason, exit, tc.want, tc.exit)
			}
		}
	}
}

// TestOlderStepsAreRead: an older stint has written no reasons, and no step where there was one run alone.
func TestOlderStepsAreRead(t *testing.T) {
	steps, err := state.ParseSteps(`run="r1" phase="verify" attempt="1" iteration="2" ended="2026-11-21T12:00:00.5Z" exit="1" took="1s"`)
	if err != nil || len(steps) != 1 || steps[0].RunID != "r1" || *steps[0].ExitCode != 1 || steps[0].Reason != "" {
		t.Errorf("%+v, %v", steps, err)
	}
	j := newJournal(t)
	j.task("done", "status: failed", "reason: exit", "runId: r", "attempt: 1", "exitCode: 3", "startedAt: "+at(0), "updatedAt: "+at(time.Second))
	j.task("waits", "status: queued", "phase: verify", "runId: r", "attempt: 1") // of its next run
	want := state.Step{RunID: "r", Attempt: 1, Iteration: 1, Started: noon, Ended: noon.Add(time.Second), ExitCode: ptr(3), Reason: state.ClassExit}
	if got := j.whole("done").Steps; len(got) != 1 || !got[0].Same(want) {
		t.Errorf("one run: %+v", got)
	}
	if got := j.whole("waits").Steps; got != nil {
		t.Errorf("of a task that waits: %+v", got)
	}
}

// TestStepsAreMergedWhereNeeded: of most tasks the merged record is no longer for them.
func TestStepsAreMergedWhereNeeded(t *testing.T) {
	j := newJournal(t)
	j.task("t", "status: queued", "prompt: p", "updatedAt: "+at(0))
	j.task("t", "status: running", "runId: r", "attempt: 1", "startedAt: "+at(0), "updatedAt: "+at(0))
	j.task("t", "status: failed", "reason: exit", "exitCode: 3", "updatedAt: "+at(time.Second))
	sec, err := ledger.Encode(&j.compact(time.Time{}).Records[0])
	if err != nil || sec.Get(state.KeySteps) != nil || sec.Get(state.KeyEndedRuns) != nil {
		t.Errorf("%v\n%s", err, sec.Raw)
	}
}
