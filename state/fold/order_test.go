package fold

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"stint/ledger"
	"stint/state"
	"stint/state/lanes"

	"pgregory.net/rapid"
)

func TestCheckOrder(t *testing.T) {
	const x, y = "status=queued; sessionKey=x", "status=queued; sessionKey=y"
	queued := func(id, lane, after string, order int64) state.Task {
		return state.Task{ID: id, Status: state.Queued, SessionKey: lane, After: strings.Fields(after), Order: order}
	}
	tests := []struct {
		name    string
		records []string
		given   []state.Task
		want    string // of the cycle; "": it can be
	}{
		{"new, after one before it", []string{"a: " + x}, []state.Task{queued("b", "x", "a", 0)}, ""},
		{"itself", nil, []state.Task{queued("a", "x", "a", 0)}, "a comes after a"},
		{"each other", nil, []state.Task{queued("a", "x", "b", 0), queued("b", "y", "a", 0)}, "a comes after b, b comes after a"},
		{"forward in one lane", nil, []state.Task{queued("a", "x", "b", 0), queued("b", "x", "", 0)}, "a comes after b, b is behind a in session x"},
		{"forward in another lane", nil, []state.Task{queued("a", "x", "b", 0), queued("b", "y", "", 0)}, ""},
		{"named before it came", []string{"a: " + x + "; after=b"}, []state.Task{queued("b", "x", "", 0)}, "b is behind a in session x, a comes after b"},
		{"named before it came, and its lane is free", []string{"a: " + x + "; after=b"}, []state.Task{queued("b", "y", "", 0)}, ""},
		{"moved before what it comes after", []string{"a: " + x, "b: " + x + "; after=a"}, []state.Task{queued("b", "x", "a", -1)}, "b comes after a, a is behind b in session x"},
		{"moved, and neither comes after the other", []string{"a: " + x, "b: " + x, "c: " + y + "; after=a"}, []state.Task{queued("b", "x", "", -1)}, ""},
		{
			"over two lanes",
			[]string{"a1: " + x, "b1: " + y, "a2: " + x, "b2: " + y + "; after=a2"},
			[]state.Task{queued("a1", "x", "b2", 0)},
			"a1 comes after b2, b2 comes after a2, a2 is behind a1 in session x",
		},
		{"out of the lane", []string{"a: " + x, "b: " + x}, []state.Task{queued("a", "y", "b", 0)}, ""},
		{"what has ended is not waited for", []string{"a: " + x, "b: " + x, "b: status=running", "b: status=done"}, []state.Task{queued("a", "x", "b", 0)}, ""},
		{"a running one may come back", []string{"a: " + x, "b: " + x, "a: status=running"}, []state.Task{queued("b", "x", "a", -1)}, "b comes after a, a is behind b in session x"},
		{"held ones keep their places", []string{"a: " + x + "; hold=true", "b: " + x}, []state.Task{queued("a", "x", "b", 0)}, "a comes after b, b is behind a in session x"},
		{
			"a directory only excludes",
			[]string{"a: status=queued; workspace=/w; sessionId=1", "b: status=queued; workspace=/w; sessionId=2"},
			[]state.Task{{ID: "a", Status: state.Queued, Workspace: "/w", SessionID: "1", After: []string{"b"}}},
			"",
		},
		{
			"a session of a directory",
			[]string{"a: status=queued; workspace=/w; sessionId=1", "c: status=queued; workspace=/w; sessionId=2", "b: status=queued; workspace=/w; sessionId=1"},
			[]state.Task{{ID: "a", Status: state.Queued, Workspace: "/w", SessionID: "1", After: []string{"b"}}},
			"a comes after b, b is behind a in the lane of /w",
		},
		{"a draft waits for nothing", []string{"a: " + x}, []state.Task{{ID: "b", Status: state.Draft, SessionKey: "x", After: []string{"b"}}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t)
			records(j, tt.records...)
			err := j.state.CheckOrder(tt.given)
			var cycle *lanes.CycleError
			got := ""
			if errors.As(err, &cycle) {
				got = cycle.Text
			}
			if got != tt.want || (err != nil) != (tt.want != "") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestLongCycle tells of a long cycle in a few words, and finds it without recursion.
func TestLongCycle(t *testing.T) {
	const n = 50_000
	tasks := make([]state.Task, n)
	for i := range tasks {
		tasks[i] = state.Task{ID: uuid(i), Status: state.Queued, SessionKey: fmt.Sprint(i), After: []string{uuid((i + 1) % n)}}
	}
	var cycle *lanes.CycleError
	if err := newJournal(t).state.CheckOrder(tasks); !errors.As(err, &cycle) || len(cycle.Text) > 1000 || !strings.HasSuffix(cycle.Text, "and so on over 50000 tasks") {
		t.Errorf("%.200v", err)
	}
}

// TestAcceptedOrderNeverSticks adds and moves random tasks. What CheckOrder lets
// through can be worked off to the end, and what it refuses can not.
func TestAcceptedOrderNeverSticks(t *testing.T) {
	refused := 0
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		const ids = 6
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			id := uuid(rapid.IntRange(1, ids).Draw(rt, "id"))
			given, known := j.state.Peek(id)
			if !known {
				given = state.Task{ID: id, Status: state.Queued, SessionKey: pick(rt, "x", "y")}
			}
			switch pick(rt, "after", "order", "lane", "run") {
			case "after":
				given.After = nil
				for range rapid.IntRange(0, 2).Draw(rt, "number") {
					given.After = append(given.After, uuid(rapid.IntRange(1, ids).Draw(rt, "after")))
				}
			case "order":
				given.Order = int64(rapid.IntRange(-2, 2).Draw(rt, "order"))
			case "lane":
				given.SessionKey = pick(rt, "x", "y")
			case "run":
				if known {
					given.Status = state.Running
				}
			}
			err := j.state.CheckOrder([]state.Task{given})
			if stuck := sticks(j, given); stuck != (err != nil) {
				rt.Fatalf("stuck: %v, but %v\n%+v\n%s", stuck, err, given, dump(t, j.state))
			}
			if err != nil {
				refused++
				continue
			}
			j.task(id, "status: "+string(given.Status), "sessionKey: "+given.SessionKey, fmt.Sprint("order: ", given.Order), "after: "+strings.Join(given.After, " "))
		}
	})
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// sticks works off all tasks, one of them as given, and reports whether some are
// left over. A task that nobody has written yet is as good as done.
func sticks(j *journal, given state.Task) bool {
	tasks := allTasks(j)
	if i := slices.IndexFunc(tasks, func(t state.Task) bool { return t.ID == given.ID }); i >= 0 {
		tasks[i] = given
	} else {
		tasks = append(tasks, given)
	}
	lanes, open := map[string][]state.Task{}, map[string]bool{}
	for _, t := range tasks { // by age
		lanes[t.SessionKey] = append(lanes[t.SessionKey], t)
		open[t.ID] = true
	}
	for _, list := range lanes {
		slices.SortStableFunc(list, func(a, b state.Task) int {
			return cmp.Or(cmp.Compare(byAge(a.Order), byAge(b.Order)), cmp.Compare(a.Order, b.Order))
		})
	}
	for progress := true; progress; {
		progress = false
		for key, list := range lanes {
			if len(list) > 0 && !slices.ContainsFunc(list[0].After, func(id string) bool { return open[id] }) {
				delete(open, list[0].ID)
				lanes[key], progress = list[1:], true
			}
		}
	}
	return len(open) > 0
}

// byAge is 1 for tasks that come by age, behind those with an order.
func byAge(order int64) int {
	if order == 0 {
		return 1
	}
	return 0
}

// TestHandCannotMakeACycle: a section is refused before it is adopted.
func TestHandCannotMakeACycle(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; sessionKey=x", "b: status=queued; sessionKey=x; after=a", "c: status=queued; sessionKey=y; after=a")
	for _, tt := range []struct{ id, field, want string }{
		{"a", "after: b", "Task a: after: it would wait for itself: a comes after b, b comes after a"},
		{"b", "order: -1", "Task b: order: it would wait for itself: b comes after a, a is behind b in session x"},
		{"a", "after: c", "Task a: after: it would wait for itself: a comes after c, c comes after a"},
		{"c", "sessionKey: x", ""},
		{"b", "priority: 9", ""},
		{"new", "after: b", ""},
	} {
		sec := encode(t, ledger.KindTask, tt.id, 0, tt.field)
		sec.Seq = 0
		err := j.state.CheckNext(sec)
		if got := fmt.Sprint(err); got != tt.want && (err != nil || tt.want != "") {
			t.Errorf("%s, %s: %v, want %q", tt.id, tt.field, err, tt.want)
		}
	}
}
