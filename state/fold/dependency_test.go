package fold

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/state"
)

// TestDoomedByTheRules compares BlockedByDependency with a plain telling of its rules.
func TestDoomedByTheRules(t *testing.T) {
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		for range rapid.IntRange(1, 40).Draw(rt, "records") {
			_ = drawRecord(rt, j)
			_ = j.append(ledger.KindTask, pick(rt, uuid(1), uuid(2), uuid(3), "five"), // of what dooms, and what is doomed
				"status: "+pick(rt, "queued", "queued", "failed", "done"), "after: "+pick(rt, uuid(1), uuid(2)+" "+uuid(3), "five", ""))
			if rapid.IntRange(0, 2).Draw(rt, "ask") > 0 {
				continue
			}
			got, want := taskIDs(j.state.BlockedByDependency()), plainDoomed(j)
			if order := slices.Clone(got); !slices.Equal(slices.Sorted(slices.Values(order)), want) {
				rt.Fatalf("doomed: %v, by the rules %v\n%s", got, want, dump(t, j.state))
			}
			found += len(want)
			for i, task := range j.state.BlockedByDependency() {
				_, _, bad := j.state.EndedBadly(task.After, task.AfterPolicy == state.AfterAny)
				if !bad && !slices.ContainsFunc(got[:i], func(id string) bool { return slices.Contains(task.After, id) }) {
					rt.Fatalf("nothing before %s dooms it: %v", task.ID, got)
				}
			}
		}
	})
	if found == 0 {
		t.Error("nothing was ever doomed")
	}
}

// plainDoomed returns those that can never run, from the tasks alone, sorted by id.
func plainDoomed(j *journal) []string {
	bad := map[string]bool{}
	tasks := allTasks(j)
	for _, t := range tasks {
		bad[t.ID] = t.Status.Terminal() && t.Status != state.Done
	}
	ids := []string{}
	for again := true; again; {
		again = false
		for _, t := range tasks {
			if t.Status == state.Queued && !t.Hold && t.AfterPolicy != state.AfterAny && !bad[t.ID] && slices.ContainsFunc(t.After, func(id string) bool { return bad[id] }) {
				bad[t.ID], again = true, true
				ids = append(ids, t.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}
