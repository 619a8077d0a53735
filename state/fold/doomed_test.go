package fold

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/state"
)

func doomed(j *journal) string { return strings.Join(taskIDs(j.state.Doomed()), " ") }

func TestDoomed(t *testing.T) {
	j := newJournal(t)
	const q = "status=queued"
	records(j, "a: "+q, "b: "+q+"; after=a", "c: "+q+"; after=b", "any: "+q+"; after=a; afterPolicy=any", "held: "+q+"; after=a; hold=true",
		"late: "+q+"; after=nobody a", "draft: after=a", "z: "+q+"; after=c any")
	expect := func(want string) {
		t.Helper()
		for range 2 { // asking changes nothing
			if got := doomed(j); got != want {
				t.Errorf("doomed: %q, want %q", got, want)
			}
		}
	}
	expect("")
	records(j, "a: status=running", "a: status=failed; reason=exit")
	expect("b late c z")
	records(j, "a: status=queued") // retried
	expect("")
	records(j, "a: status=canceled")
	expect("b late c z")
	records(j, "held: hold=false", "b: status=failed", "late: after=nobody")
	expect("c held z")
	records(j, "draft: status=queued", "held: afterPolicy=any")
	expect("c draft z")
	records(j, "new: "+q+"; after=b", "a: status=queued", "a: status=done")
	expect("c new z") // b has failed for good
	records(j, "nobody: status=dead")
	expect("c late new z")
	if id, st, bad := j.state.EndedBadly(&state.Task{After: []string{"a", "nobody"}}); id != "nobody" || st != state.Dead || !bad {
		t.Error(id, st, bad)
	}
	j.checkRefold()
}

// TestDoomedByTheRules compares Doomed with a plain telling of its rules.
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
			got, want := taskIDs(j.state.Doomed()), plainDoomed(j)
			if order := slices.Clone(got); !slices.Equal(slices.Sorted(slices.Values(order)), want) {
				rt.Fatalf("doomed: %v, by the rules %v\n%s", got, want, dump(t, j.state))
			}
			found += len(want)
			for i, task := range j.state.Doomed() {
				_, _, bad := j.state.EndedBadly(&task)
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

// plainDoomed tells from the tasks alone which can never run, sorted by id.
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
