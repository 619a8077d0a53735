package main

import (
	"fmt"
	"strings"
	"testing"

	"stint/coordinator/api/wire"
	"stint/state"
)

// A kin is a family of tasks, by id.
type kin map[string]wire.TaskView

// add adds a task that another one has queued; "" is none.
func (k kin) add(id, parent string) {
	k[id] = wire.TaskView{Task: state.Task{ID: id, Status: state.Done, Title: "t", TriggeredBy: parent, FollowUps: k[id].FollowUps}}
	if p, ok := k[parent]; ok {
		p.FollowUps = append(p.FollowUps, id)
		k[parent] = p
	}
}

// draw draws the chain of a task, and counts the others that are asked for.
func (k kin) draw(t *testing.T, id string) (text string, asked int) {
	t.Helper()
	v := k[id]
	text, err := drawChain(&v, func(id string) (wire.TaskView, error) {
		asked++
		if v, ok := k[id]; ok {
			return v, nil
		}
		return wire.TaskView{Task: state.Task{ID: id, Title: "(there is no such task)"}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text, "  done  t", ""), asked
}

// TestChain: it is whole, from whichever of its tasks it is looked at.
func TestChain(t *testing.T) {
	k := kin{}
	for _, pair := range []string{"a", "b a", "c b", "d c", "e b", "f a", "alone", "orphan gone", "hen egg", "egg hen", "chick hen"} {
		id, parent, _ := strings.Cut(pair, " ")
		k.add(id, parent)
	}
	k.add("hen", "egg")
	const whole = "a\n└ b\n  └ c\n    └ d\n  └ e\n└ f\n"
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		if got, _ := k.draw(t, id); got != strings.Replace(whole, id+"\n", id+"  (this task)\n", 1) {
			t.Errorf("of %s:\n%s", id, got)
		}
	}
	for id, want := range map[string]string{
		"alone":  "",
		"orphan": "gone    (there is no such task)\n└ orphan  (this task)\n",
		"hen":    "…\negg\n└ hen  (this task)\n  └ chick\n",
		"egg":    "…\nhen\n└ egg  (this task)\n└ chick\n",
		"chick":  "…\negg\n└ hen\n  └ chick  (this task)\n",
	} {
		if got, _ := k.draw(t, id); got != want {
			t.Errorf("of %s:\n%swant\n%s", id, got, want)
		}
	}
}

// TestChainIsBounded: whatever there is, some tasks of it are drawn, and always the
// one that is looked at.
func TestChainIsBounded(t *testing.T) {
	k := kin{}
	k.add("t0", "")
	for i := range 3 * maxChain {
		k.add(fmt.Sprintf("t%d", i+1), fmt.Sprintf("t%d", i))
		k.add(fmt.Sprintf("s%d", i+1), "t0")
	}
	for _, c := range []struct {
		id     string
		begins string
		ends   string
	}{
		{"t0", "t0  (this task)\n└ t1\n  └ t2\n", fmt.Sprintf("  … and %d more\n", 3*maxChain)},
		{"t2", "t0\n└ t1\n  └ t2  (this task)\n", fmt.Sprintf("  … and %d more\n", 3*maxChain)},
		{"t60", fmt.Sprintf("…\nt%d\n└ t", 60-maxChain), "… and 1 more\n"},
		{"s100", "t0\n└ t1\n  └ t2\n", fmt.Sprintf("└ s100  (this task)\n  … and %d more\n", 3*maxChain-1)},
	} {
		got, asked := k.draw(t, c.id)
		if !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, c.ends) || !strings.Contains(got, c.id+"  (this task)\n") || asked > 2*maxChain {
			t.Errorf("of %s, %d tasks are asked for:\n%s", c.id, asked, got)
		}
	}
}
