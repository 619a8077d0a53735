package fold

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"stint/ledger"
	"stint/state"

	"pgregory.net/rapid"
)

// pairs makes "key: value" of "key=value; key=value".
func pairs(text string) (list []string) {
	for _, f := range strings.Split(text, "; ") {
		list = append(list, strings.Replace(f, "=", ": ", 1))
	}
	return list
}

// TestSave: each section of a save is a step behind those before it that have passed.
func TestSave(t *testing.T) {
	j := newJournal(t)
	records(j, "old: status=queued; prompt=p")
	tests := []struct{ sections, want string }{ // id: field; … each; what is refused, by its index
		{"new: status=queued; prompt=p, new: status=canceled, new: label=l", ""},
		{"new: label=l, new: status=queued", "1: there is no task of that name yet"},
		{"new: prompt=p, new: status=queued", ""},
		{"new: prompt=p, new: status=done", "1: a task that is draft cannot be made done"},
		{"old: status=canceled, old: status=draft, old: status=queued", "1: a task that is canceled cannot be made draft"},
		{"new: status=queued; prompt=" + strings.Repeat("x", state.MaxPrompt), ""},
		{"new: status=queued; outputPolicy=" + strings.Repeat("x", state.MaxPolicy+1) + ", old: label=l", "0: the output policy has more than 65536 bytes"},
		{"new: status=queued; prompt=" + strings.Repeat("x", state.MaxPrompt+1) + ", old: label=l", "0: the prompt has more than the 1048576 bytes"},
	}
	for _, tt := range tests {
		save, got := j.state.NewSave(), ""
		for i, text := range strings.Split(tt.sections, ", ") {
			id, fields, _ := strings.Cut(text, ": ")
			sec := encode(t, ledger.KindTask, id, 9, pairs("by=hand; "+fields)...)
			if err := save.Check(sec); err != nil {
				got += fmt.Sprintf("%d: %v", i, err.(*state.RecordError).Err)
			}
		}
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%.60s: %q, want %q", tt.sections, got, tt.want)
		}
	}
}

// TestCheckTogether: of each circle the last section is refused, in one call, and what is left has none.
func TestCheckTogether(t *testing.T) {
	tests := []struct {
		sections []string
		want     string // indexes that are refused
	}{
		{[]string{"a: after=b", "b: label=l"}, "[]"},
		{[]string{"a: after=b", "b: after=a", "c: after=d", "e: after=a", "d: after=c"}, "[1 4]"},
		{[]string{"hub: after=a b c", "a: after=hub", "b: after=hub", "c: after=hub"}, "[1 2 3]"},
		{[]string{"a: after=hub", "b: after=hub", "hub: after=a b"}, "[2]"},
		{[]string{"a: after=b", "b: after=c", "c: after=a", "a: label=l"}, "[2]"},
		{[]string{"a: after=b", "b: after=c a", "c: after=d a", "d: after=a"}, "[1 2 3]"},
	}
	for _, tt := range tests {
		j := newJournal(t)
		var list []*ledger.Section
		for _, text := range tt.sections {
			id, fields, _ := strings.Cut(text, ": ")
			list = append(list, encode(t, ledger.KindTask, id, 9, pairs("by=hand; status=queued; prompt=p; sessionKey="+id+"; "+fields)...))
		}
		bad := j.state.CheckTogether(list)
		if got := fmt.Sprint(slices.Sorted(maps.Keys(bad))); got != tt.want {
			t.Errorf("%v: %s, want %s: %v", tt.sections, got, tt.want, bad)
		}
	}
}

// TestCheckOrderOfOne: a task that is looked at without all of its lane is found to wait
// for itself just where it is with it.
func TestCheckOrderOfOne(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		pick := func(what string, from ...string) string { return rapid.SampledFrom(from).Draw(rt, what) }
		fields := func() string {
			return "; status=" + pick("status", "queued", "queued", "draft") + "; order=" + pick("order", "0", "0", "-1", "2") + "; after=" + pick("after", "", "a", "b", "c", "d") +
				pick("lane", "; sessionKey=x", "; sessionKey=y", "; sessionKey=; workspace=/w", "; sessionKey=; workspace=/w; sessionId=1")
		}
		for range rapid.IntRange(0, 6).Draw(rt, "records") {
			_ = j.append(ledger.KindTask, pick("id", "a", "b", "c", "d", "e"), pairs("prompt=p"+fields())...) // a step that is not allowed is none
		}
		next := state.Folded{}
		id := pick("id", "a", "b", "c", "d", "e", "f")
		if now, err := j.state.nowOf(id); err == nil {
			next = now
		}
		if err := next.Apply(encode(t, ledger.KindTask, id, 99, pairs("prompt=p"+fields())...), nil, state.KeepNone); err != nil || next.Status != state.Queued {
			return
		}
		given := next.Task
		given.ID = id
		alone := j.state.CheckOrder([]state.Task{given})
		both := j.state.CheckOrder([]state.Task{given, {ID: "z", Status: state.Queued, SessionKey: "z", After: []string{id}}})
		if (alone == nil) != (both == nil) {
			rt.Errorf("%+v: %v, and with its lane %v", given, alone, both)
		}
	})
}
