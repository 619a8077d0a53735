package fold

import (
	"strings"
	"testing"

	"stint/ledger"
	"stint/state"
)

// handSteps returns what comes of a status that a person writes, from every status ("-": the task does not
// exist yet) to every other, in the order of Statuses: draft, queued, running, done, failed, canceled, dead.
var handSteps = map[string]string{
	"-":        "ok ok no ok ok ok ok",
	"draft":    "ok ok no no no ok no",
	"queued":   "ok ok no ok ok ok ok",
	"running":  "no ok no ok ok ok ok",
	"done":     "no ok no ok no no no",
	"failed":   "no ok no no ok no no",
	"canceled": "no ok no no no ok no",
	"dead":     "no ok no no no no ok",
}

// toward returns the records after which a task has that status.
var toward = map[string][]string{
	"-": nil, "draft": {"draft"}, "queued": {"queued"}, "running": {"queued", "running"}, "done": {"queued", "running", "done"},
	"failed": {"queued", "running", "failed"}, "canceled": {"queued", "canceled"}, "dead": {"queued", "running", "dead"},
}

// TestPromise4EveryStatusByHand: what a person may set is set, and what he may
// not is refused before it is in the ledger, with the field that is wrong.
func TestPromise4EveryStatusByHand(t *testing.T) {
	for from, steps := range handSteps {
		for i, want := range strings.Fields(steps) {
			to := string(state.Statuses[:][i])
			t.Run(from+" to "+to, func(t *testing.T) {
				j := newJournal(t)
				for _, status := range toward[from] {
					j.task("a", "status: "+status, "prompt: p")
				}
				fields := []string{"by: hand", "status: " + to}
				if from == "-" {
					fields = append(fields, "prompt: p")
				}
				sec := encode(t, ledger.KindTask, "a", 9, fields...)
				err := Check(sec)
				if err == nil {
					err = j.state.CheckNext(sec)
				}
				if (err == nil) != (want == "ok") {
					t.Fatalf("checked: %v, want %s", err, want)
				}
				if err != nil {
					if !strings.Contains(err.Error(), "by hand") {
						t.Errorf("%q does not say why", err)
					}
					return
				}
				j.task("a", fields...)
				if got := string(j.peek("a").Status); got != to {
					t.Errorf("it is %s", got)
				}
				j.checkRefold()
			})
		}
	}
}

// TestGone: what becomes of tasks whose sections were deleted.
func TestGone(t *testing.T) {
	j := newJournal(t)
	for _, id := range []string{"waits", "runs", "ended", "stays", "draft"} {
		j.task(id, "status: queued", "label: l")
	}
	j.task("draft", "by: hand", "status: draft")
	j.task("runs", "status: running")
	j.task("ended", "status: running")
	j.task("ended", "status: done")
	gone := map[string]bool{}
	for _, name := range []string{"Task waits", "Task runs", "Task ended", "Task draft", "Task unknown", "Control dispatch", "Job stays"} {
		gone[name] = true
	}
	check := func(canceled, hidden, back string) {
		t.Helper()
		c, h, b := j.state.Gone(gone)
		if got := []string{strings.Join(c, " "), strings.Join(h, " "), strings.Join(b, " ")}; got[0] != canceled || got[1] != hidden || got[2] != back {
			t.Errorf("canceled, hidden, back: %q", got)
		}
	}
	check("draft runs waits", "ended", "")
	j.control(ControlDeleted, "by: hand", "tasks: ended\nunknown\nwaits")
	check("draft runs waits", "", "")
	gone = map[string]bool{}
	check("", "", "ended")
	j.checkRefold()
}

// TestDeletedTaskIsInNoList: a finished task that was deleted by hand is found by
// its whole id alone, until it is back.
func TestDeletedTaskIsInNoList(t *testing.T) {
	for name, back := range map[string]func(*journal){
		"its sections":  func(j *journal) { j.control(ControlDeleted, "back: task-2") },
		"a new record":  func(j *journal) { j.task("task-2", "status: queued") },
		"only its note": func(j *journal) { j.task("task-2", "note: n") },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			for _, id := range []string{"task-1", "task-2"} {
				j.task(id, "status: queued", "prompt: p")
				j.task(id, "status: done")
			}
			check := func(listed, last string, count int) {
				t.Helper()
				list, err := j.state.List(state.Filter{})
				if got := strings.Join(taskIDs(list), " "); err != nil || got != listed {
					t.Errorf("listed: %q, %v", got, err)
				}
				if got := found(j.state, state.LastRef); got != last {
					t.Errorf("the last one is %q", got)
				}
				if id := found(j.state, "ask-2"); (id != "") != (count == 2) {
					t.Errorf("by a piece of its id: %q", id)
				}
				if id := found(j.state, "task-2"); id == "" || j.whole(id).Prompt != "p" {
					t.Errorf("by its whole id: %q", id)
				}
				counts := j.state.Counts()
				if counts[state.Done]+counts[state.Queued] != count {
					t.Errorf("counts: %v", counts)
				}
				j.checkRefold()
			}
			check("task-2 task-1", "task-2", 2)
			j.control(ControlDeleted, "by: hand", "tasks: task-2")
			j.control(ControlDeleted, "by: hand", "tasks: task-2")
			check("task-1", "task-1", 1)
			if !strings.Contains(dump(t, j.state), `"deleted":true`) {
				t.Error("the dump does not say so")
			}
			back(j)
			check("task-2 task-1", "task-2", 2)
		})
	}
}
