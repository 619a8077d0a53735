package fold

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/ledger/mark"
	"stint/state"
)

// changedSince returns what Since says, as "seq:task:status" words.
func changedSince(s *State, seq uint64, most int) string {
	var words []string
	for newest, t := range s.Since(seq) {
		if words = append(words, fmt.Sprint(newest, ":", t.ID, ":", t.Status)); len(words) == most {
			break
		}
	}
	return strings.Join(words, " ")
}

// TestSince: each task once, at its newest record and as it is now, ended or not.
func TestSince(t *testing.T) {
	j := newJournal(t)
	j.task("a", "status: queued")
	j.task("b", "status: queued")
	j.control(state.ControlDispatch, "paused: true")
	j.task("a", "status: running")
	_ = j.refuse("b", "status: nonsense") // it has to be passed over
	j.task("c", "status: queued")
	j.task("a", "status: done")
	for _, s := range []*State{j.state, j.refold()} {
		for seq, want := range []string{
			"2:b:queued 6:c:queued 7:a:done", "2:b:queued 6:c:queued 7:a:done", "6:c:queued 7:a:done",
			"6:c:queued 7:a:done", "6:c:queued 7:a:done", "6:c:queued 7:a:done", "7:a:done", "",
		} {
			if got := changedSince(s, uint64(seq), 10); got != want || !s.Covers(uint64(seq)) {
				t.Errorf("since %d: %q, want %q", seq, got, want)
			}
		}
		if got := changedSince(s, 0, 2); got != "2:b:queued 6:c:queued" {
			t.Errorf("the first two are %q", got)
		}
		if s.Seq() != 7 || s.Covers(8) {
			t.Errorf("the newest record is %d", s.Seq())
		}
	}
}

// TestSinceForgets: nobody is told half of what has happened, after any number of records.
func TestSinceForgets(t *testing.T) {
	j := newJournal(t)
	for i := range maxRecent + 10 {
		j.task(fmt.Sprint("t", i), "status: queued")
	}
	j.task("t20", "status: canceled")
	if j.state.Covers(10) || !j.state.Covers(11) {
		t.Errorf("it covers all since %d", j.state.recent.since)
	}
	for _, seq := range []int{11, 12, maxRecent / 2, maxRecent + 9, maxRecent + 10, maxRecent + 11} {
		var want []uint64
		for n := seq + 1; n <= maxRecent+11; n++ {
			if n != 21 { // t20, which has a newer one
				want = append(want, uint64(n))
			}
		}
		var got []uint64
		for newest := range j.state.Since(uint64(seq)) {
			got = append(got, newest)
		}
		if !slices.Equal(got, want) {
			t.Errorf("since %d there are %d changes, want %d", seq, len(got), len(want))
		}
	}
}

// TestSinceAnotherLedger: where the numbers do not go on one by one, or tasks come and
// go without a record, who knows what was before must look anew.
func TestSinceAnotherLedger(t *testing.T) {
	for _, tc := range []struct {
		name  string
		kind  ledger.Kind
		id    string
		seq   uint64
		known bool // who knew all up to 2 can be told the rest
	}{
		{"the next task", ledger.KindTask, "c", 3, true},
		{"a pause", ledger.KindControl, state.ControlDispatch, 3, true},
		{"a compaction, or damage", ledger.KindTask, "c", 4, false},
		{"a number again", ledger.KindTask, "c", 2, false},
		{"an older number", ledger.KindTask, "c", 1, false},
		{"sections were deleted", ledger.KindControl, ControlDeleted, 3, false},
		{"a restore", ledger.KindControl, mark.Restore, 3, false},
	} {
		j := newJournal(t)
		j.task("a", "status: queued")
		j.task("b", "status: queued")
		must(t, j.apply(j.state, encode(t, tc.kind, tc.id, tc.seq), 2))
		s := j.state
		newest := max(tc.seq, 2)
		if s.Covers(2) != tc.known && newest > 2 || s.Covers(1) != tc.known || !s.Covers(newest) || s.Seq() != newest {
			t.Errorf("%s: it covers 1 %v, 2 %v, %d %v", tc.name, s.Covers(1), s.Covers(2), newest, s.Covers(newest))
		}
		if got := changedSince(s, s.Seq(), 10); got != "" {
			t.Errorf("%s: since the newest record there are %q", tc.name, got)
		}
	}
	fresh := New(nil)
	if !fresh.Covers(0) || fresh.Covers(1) || changedSince(fresh, 0, 10) != "" {
		t.Error("of no records")
	}
}

// TestSinceInPages: whoever follows in any steps, while records come, and is told each
// time what has changed, knows each task as it is in the end.
func TestSinceInPages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := newJournal(t)
		known, seq := map[string]state.Status{}, uint64(0)
		look := func(most int) (n int) {
			for newest, task := range j.state.Since(seq) {
				if n == most {
					break
				}
				if newest <= seq {
					rt.Fatalf("%d comes after %d", newest, seq)
				}
				known[task.ID], seq = task.Status, newest
				n++
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(rt, "records") {
			_ = drawRecord(rt, j)
			look(rapid.IntRange(0, 3).Draw(rt, "most"))
		}
		for look(2) > 0 {
		}
		for _, task := range allTasks(j) {
			if known[task.ID] != task.Status {
				rt.Fatalf("%s is known as %q, and is %q", task.ID, known[task.ID], task.Status)
			}
		}
	})
}
