package fold

import (
	"slices"
	"testing"
)

// TestFamily: who has queued whom, as records say it one after the other.
func TestFamily(t *testing.T) {
	j := newJournal(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		j.task(id, "status: queued")
	}
	j.task("d", "triggeredByTaskId: a", "trigger: agent")
	j.task("b", "triggeredByTaskId: a", "trigger: failure")
	j.task("c", "triggeredByTaskId: b", "trigger: issue")
	expect := func(what string, children []string, asked, depth int) {
		t.Helper()
		s := j.state
		if got := s.FollowUps("a"); !slices.Equal(got, children) || s.Asked("a") != asked || s.Depth("c", 9) != depth {
			t.Errorf("%s: children %q, %d asked for, depth %d", what, got, s.Asked("a"), s.Depth("c", 9))
		}
	}
	expect("a chain", []string{"b", "d"}, 1, 2)
	if got := j.state.Depth("c", 1); got != 1 {
		t.Errorf("the depth is bounded at 1, and is %d", got)
	}
	j.task("b", "trigger: agent")
	expect("another reason", []string{"b", "d"}, 2, 2)
	j.task("b", "triggeredByTaskId: d")
	expect("another parent", []string{"d"}, 1, 3)
	j.task("a", "triggeredByTaskId: c")
	expect("a circle", []string{"d"}, 1, 9)
	j.task("d", "triggeredByTaskId: ")
	expect("no parent", nil, 0, 2)
	for _, id := range []string{"", "x"} {
		if s := j.state; s.parentOf(id) != "" || s.Depth(id, 9) != 0 || s.FollowUps(id) != nil {
			t.Errorf("task %q has a family", id)
		}
	}
}

// TestRunningAs: a run is that of a task while it lasts.
func TestRunningAs(t *testing.T) {
	j := newJournal(t)
	j.task("a", "status: queued")
	j.task("a", "status: running", "runId: r-1")
	j.task("b", "status: queued")
	for run, want := range map[string]string{"r-1": "a", "r-2": "", "": ""} {
		if id, ok := j.state.RunningAs(run); id != want || ok != (want != "") {
			t.Errorf("run %q is of %q, %v", run, id, ok)
		}
	}
	j.task("a", "status: running", "runId: r-2")
	if id, ok := j.state.RunningAs("r-1"); ok {
		t.Errorf("the run before is of %q", id)
	}
	j.task("a", "status: done")
	if id, ok := j.state.RunningAs("r-2"); ok {
		t.Errorf("the run of a task that has ended is of %q", id)
	}
}
