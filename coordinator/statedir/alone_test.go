package statedir

import (
	"slices"
	"testing"

	"stint/state"
)

// TestDiffering names, in order, what only one list has, and what each has as another one.
func TestDiffering(t *testing.T) {
	list := func(tasks ...state.Task) map[string]state.Task {
		all := map[string]state.Task{}
		for _, t := range tasks {
			all[t.ID] = t
		}
		return all
	}
	same, queued := state.Task{ID: "a", Prompt: "x"}, state.Task{ID: "b", Status: state.Queued}
	running, only := state.Task{ID: "b", Status: state.Running}, state.Task{ID: "c"}
	got := differing(list(same, queued, state.Task{ID: "d"}), list(same, running, only))
	if want := []string{"b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
