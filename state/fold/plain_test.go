package fold

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/ledger/plain"
	"stint/state"
	"stint/state/lanes"
	"stint/state/table"
)

// resumed returns the state as another process has it that read it from plain bytes.
func (j *journal) resumed() *State {
	j.t.Helper()
	var c plain.Coder
	j.state.Code(&c)
	s := New(j)
	r := plain.Coder{Bytes: c.Bytes, Reads: true}
	s.Code(&r)
	if len(r.Bytes) > 0 {
		j.t.Fatalf("%d bytes were not read", len(r.Bytes))
	}
	return s
}

// coded returns the bytes of a state, in an order in which two that have the same are the same.
func coded(s *State) []byte {
	for n := range s.Entries.Len() {
		if l := s.Live(n); l != nil { // words that have become common since it was packed
			t := *s.Whole(l)
			s.Put(&l.Body, &t)
		}
	}
	var c plain.Coder
	s.Code(&c)
	slices.Sort(c.Bytes)
	return c.Bytes
}

// TestHistoriesGoOnFromPlainBytes: whatever happened, and wherever another process takes over from plain bytes,
// it has what a fold of all records has, and makes of those that follow what that does.
func TestHistoriesGoOnFromPlainBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		drawHistory(rt, j, 30)
		if rapid.Bool().Draw(rt, "child") {
			_ = j.append(ledger.KindTask, uuid(3), "status: queued", "triggeredByTaskId: "+uuid(1), pick(rt, "trigger: agent", "trigger: trigger"))
		}
		if rapid.Bool().Draw(rt, "compacted") {
			j = j.compacted(j.compact(noon.Add(2 * time.Hour)))
			j.state.Archive(ledger.ArchiveEntry{ID: "old", Status: "done", File: "tasks-2026-11.md", Off: 7})
			drawHistory(rt, j, 10)
			_ = j.append(ledger.KindTask, pick(rt, uuid(1), uuid(2), "five"), "status: queued", "prompt: again") // of one in the archive, perhaps
		}
		kept := j.state
		j.state = j.resumed()
		same := func(when string) {
			if live, other := dump(t, kept), dump(t, j.state); live != other {
				rt.Fatalf("%s:\n--- kept\n%s--- from plain bytes\n%s", when, live, other)
			}
			for what, x := range map[string][2]any{
				"keys": {kept.byKey, j.state.byKey}, "deleted": {kept.deleted, j.state.deleted}, "revived": {kept.revived, j.state.revived},
				"family": {kept.family, j.state.family}, "files": {kept.files, j.state.files}, "recent": {kept.recent, j.state.recent}, "used": {kept.used, j.state.used},
			} {
				if one, two := fmt.Sprintf("%v", x[0]), fmt.Sprintf("%v", x[1]); one != two {
					rt.Fatalf("%s, %s: %s, from plain bytes %s", when, what, one, two)
				}
			}
			for _, agent := range []string{"codex", "claude"} {
				if one, two := kept.HasRun(agent), j.state.HasRun(agent); one != two {
					rt.Fatalf("%s: %s has run: %v, from plain bytes %v", when, agent, one, two)
				}
			}
			for _, key := range []string{"web", "api", "dir:/w"} {
				dir, by := kept.HomeOf(&state.Task{SessionKey: key}, "root")
				if d, b := j.state.HomeOf(&state.Task{SessionKey: key}, "root"); d != dir || b != by {
					rt.Fatalf("%s: the home of %s is %s, from plain bytes %s", when, key, dir, d)
				}
			}
			if !bytes.Equal(coded(kept), coded(j.state)) {
				rt.Fatalf("%s: written again it is something else\n%s", when, dump(t, kept))
			}
			for seq := range j.seq + 2 {
				if kept.Covers(seq) != j.state.Covers(seq) {
					rt.Fatalf("%s: what has changed since %d is known: %v", when, seq, kept.Covers(seq))
				}
			}
			now := noon.Add(time.Duration(rapid.IntRange(-1, 3601).Draw(rt, "now")) * time.Second)
			lim := lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: 5, Account: slotsOfTwo}
			if one, two := taskIDs(kept.Ready(now, lim)), taskIDs(j.state.Ready(now, lim)); !slices.Equal(one, two) {
				rt.Fatalf("%s: ready are %v, from plain bytes %v", when, one, two)
			}
			if one, two := kept.NextWake(now), j.state.NextWake(now); !one.Equal(two) {
				rt.Fatalf("%s: it wakes at %v, from plain bytes at %v", when, one, two)
			}
			one, _ := kept.WaitingSince(now)
			if two, _ := j.state.WaitingSince(now); !one.Equal(two) {
				rt.Fatalf("%s: the first waits since %v, from plain bytes %v", when, one, two)
			}
			checkReadBack(rt, j)
		}
		same("at once")
		for range rapid.IntRange(0, 20).Draw(rt, "more") {
			before := len(j.sections)
			drawHistory(rt, j, 1)
			for i := before; i < len(j.sections); i++ {
				_ = j.apply(kept, parse(t, j.sections[i], 0), i)
			}
		}
		same("when more records follow")
	})
}

// TestPlainBytesHaveAllFields: who adds a field to the state lists it in Code, or here among those that are made of others.
func TestPlainBytesHaveAllFields(t *testing.T) {
	for _, x := range []struct {
		of     reflect.Type
		coded  []string
		others []string
	}{
		{
			reflect.TypeFor[State](),
			[]string{"Queues", "refs", "files", "byKey", "counts", "deleted", "revived", "family", "recent", "used"},
			[]string{"reader", "onChange", "pool", "rows", "titles", "scratch", "before", "run", "ended"},
		},
		{
			reflect.TypeFor[lanes.Queues](),
			[]string{"Tasks", "live", "controls", "sessions", "homes", "ran"},
			[]string{"running", "orphans", "lanes", "held", "due", "after", "hasty", "accounts", "bare", "plan", "TitleOf", "spare", "idle"},
		},
		{reflect.TypeFor[table.Tasks](), []string{"ids", "Entries", "Keys", "Tags", "packer"}, []string{"wholes", "fresh", "turn"}},
		{reflect.TypeFor[table.Entry](), []string{"id", "Updated", "First", "Last", "Key", "Tags", "StatusIndex", "named", "Deleted", "Kept"}, nil},
		{reflect.TypeFor[ref](), []string{"off", "prev", "runs"}, nil},
		{reflect.TypeFor[used](), []string{"sums", "gaps"}, nil},
		{reflect.TypeFor[slot](), []string{"quarter", "session", "agent", "model", "account"}, nil},
		{reflect.TypeFor[sum](), []string{"runs", "tasks", "Usage"}, nil},
		{reflect.TypeFor[parent](), []string{"id", "asked"}, nil},
		{reflect.TypeFor[change](), []string{"seq", "n", "ref"}, nil},
	} {
		var has []string
		for i := range x.of.NumField() {
			has = append(has, x.of.Field(i).Name)
		}
		want := append(x.coded, x.others...)
		slices.Sort(has)
		slices.Sort(want)
		if !slices.Equal(has, want) {
			t.Errorf("%v has %q, want %q", x.of, has, want)
		}
	}
}
