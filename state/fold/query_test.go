package fold

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"stint/state"
	"stint/state/table"

	"github.com/google/go-cmp/cmp"
)

// TestList: a filter finds tasks whether they have ended or not, as Match does.
func TestList(t *testing.T) {
	j := newJournal(t)
	records(j,
		"a: status=queued; sessionKey=web; label=x; prompt=first; tenantId=ana; queue=nightly",
		"b: status=queued; sessionKey=api; label=x; prompt=second; agent=codex; color=blue; tenantId=ana; queue=nightly",
		"c: status=queued; sessionKey=web; label=y; prompt=third; agent=claude; tenantId=ana",
		"d: prompt=fourth",
		"b: status=canceled; result=long",
		"a: note=moved nothing",
		"c: tenantId=bob",
	)
	for _, tt := range []struct {
		filter state.Filter
		want   string
	}{
		{state.Filter{}, "d c b a"},
		{state.Filter{Limit: 2}, "d c"},
		{state.Filter{Status: []state.Status{state.Queued}}, "c a"},
		{state.Filter{Status: []state.Status{state.Queued, state.Canceled}, Limit: 2}, "c b"},
		{state.Filter{Session: "web"}, "c a"},
		{state.Filter{Session: "web", Label: "x"}, "a"},
		{state.Filter{Label: "x"}, "b a"},
		{state.Filter{Label: "unheard"}, ""},
		{state.Filter{Session: "unheard"}, ""},
		{state.Filter{Status: []state.Status{state.Dead}}, ""},
		{state.Filter{TenantID: "ana"}, "b a"},
		{state.Filter{TenantID: "bob"}, "c"},
		{state.Filter{TenantID: "nightly"}, ""},
		{state.Filter{Queue: "nightly"}, "b a"},
		{state.Filter{Agent: "codex"}, "b"},
		{state.Filter{Agent: "codex", TenantID: "ana", Queue: "nightly", Status: []state.Status{state.Canceled}}, "b"},
		{state.Filter{Agent: "gemini"}, ""},
	} {
		list, err := j.state.List(tt.filter)
		if got := strings.Join(taskIDs(list), " "); got != tt.want || err != nil {
			t.Errorf("%+v: %q, %v; want %q", tt.filter, got, err, tt.want)
		}
		for _, task := range allTasks(j) {
			if tt.filter.Limit == 0 && tt.filter.Match(&task) != strings.Contains(" "+tt.want+" ", " "+task.ID+" ") {
				t.Errorf("%+v: Match(%s) is %v", tt.filter, task.ID, tt.filter.Match(&task))
			}
		}
	}
	list, err := j.state.List(state.Filter{})
	must(t, err)
	want := []state.Task{
		{ID: "d", Status: state.Draft, Title: "fourth"},
		{ID: "c", Status: state.Queued, SessionKey: "web", Label: "y", Title: "third", Agent: "claude", TenantID: "bob"},
		{ID: "b", Status: state.Canceled, SessionKey: "api", Label: "x", Agent: "codex", Title: "second", TenantID: "ana", Queue: "nightly"},
		{ID: "a", Status: state.Queued, SessionKey: "web", Label: "x", Note: "moved nothing", Title: "first", TenantID: "ana", Queue: "nightly"},
	}
	if diff := cmp.Diff(want, list, ignoreSeq); diff != "" {
		t.Error(diff)
	}

	// Titles of live tasks are read once, and again when the prompt changed.
	j.reads = 0
	if _, err := j.state.List(state.Filter{Status: []state.Status{state.Queued, state.Draft}}); err != nil || j.reads != 0 {
		t.Errorf("%d reads, %v", j.reads, err)
	}
	records(j, "a: prompt=changed")
	if list, err := j.state.List(state.Filter{Status: []state.Status{state.Queued}}); err != nil || list[1].Title != "changed" || j.reads != 1 {
		t.Errorf("%+v, %d reads, %v", list, j.reads, err)
	}
	records(j, "a: prompt=")
	if list, err := j.state.List(state.Filter{Status: []state.Status{state.Queued}}); err != nil || list[1].Title != "" {
		t.Errorf("%+v, %v", list, err)
	}
	j.checkRefold()
}

// TestRows: what was made of a task that has ended is made once for each of its ends.
func TestRows(t *testing.T) {
	j := newJournal(t)
	records(j,
		"a: status=queued; prompt=first",
		"b: status=queued; prompt=second",
		"b: status=canceled",
	)
	made := 0
	list := func(want string) {
		t.Helper()
		rows, err := j.state.Rows(state.Filter{}, func(t *state.Task) ([]byte, error) {
			made++
			return []byte(t.ID + " " + string(t.Status) + " " + t.Title), nil
		})
		var got []string
		for _, r := range rows {
			if r.Task != nil {
				r.Encoded = []byte("live " + r.Task.ID)
			}
			got = append(got, string(r.Encoded))
		}
		if text := strings.Join(got, ", "); text != want || err != nil {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
	}
	list("b canceled second, live a")
	list("b canceled second, live a")
	if made != 1 {
		t.Errorf("made %d times", made)
	}
	records(j, "a: status=canceled", "b: status=queued")
	list("live b, a canceled first")
	records(j, "b: status=canceled; prompt=third")
	list("b canceled third, a canceled first")
	if made != 3 {
		t.Errorf("made %d times", made)
	}
	j.broken = true
	list("b canceled third, a canceled first")
}

// TestRowsForPeople: those that run stand first, also one that is too old for the page, and what was made for
// people is not taken for what was made for programs.
func TestRowsForPeople(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; prompt=x", "b: status=queued; prompt=x; agent=codex", "c: status=queued; prompt=x", "d: status=queued; prompt=x", "a: status=running", "b: status=running", "d: status=canceled")
	list := func(f state.Filter, want string) {
		t.Helper()
		rows, err := j.state.Rows(f, func(t *state.Task) ([]byte, error) { return fmt.Append(nil, t.ID, " for people: ", f.Text), nil })
		var got []string
		for _, r := range rows {
			if r.Task != nil {
				r.Encoded = []byte(r.Task.ID)
			}
			got = append(got, string(r.Encoded))
		}
		if text := strings.Join(got, ", "); text != want || err != nil {
			t.Errorf("%+v: %q, %v; want %q", f, text, err, want)
		}
	}
	for range 2 {
		list(state.Filter{}, "d for people: false, c, b, a")
		list(state.Filter{Text: true}, "b, a, d for people: true, c")
		list(state.Filter{Text: true, Limit: 1}, "b, a, d for people: true")
		list(state.Filter{Text: true, Limit: 3}, "b, a, d for people: true, c")
		list(state.Filter{Text: true, Limit: 1, Agent: "codex"}, "b")
		list(state.Filter{Text: true, Status: []state.Status{state.Queued}}, "c")
	}
}

// TestRowsAreBounded: a cache that is full lets go of what it must, and a list that
// is longer than it still finds a part of its rows there.
func TestRowsAreBounded(t *testing.T) {
	c := rowCache{most: maxRows, rows: map[uint32]cachedRow{}}
	const n = 4000
	row := make([]byte, 2*maxRows/n)
	found := 0
	for i := range uint32(2 * n) {
		if _, ok := c.get(i%n, 1); ok {
			found++
		} else {
			c.put(i%n, 1, row)
		}
	}
	if c.size > maxRows || c.size != len(c.rows)*rowCost(row) || found == 0 {
		t.Errorf("%d rows of %d bytes; %d were there the second time", len(c.rows), c.size, found)
	}
	c = rowCache{most: maxRows, rows: map[uint32]cachedRow{}}
	c.put(2, 1, row)
	c.put(2, 2, row[:1])
	if _, old := c.get(2, 1); old || c.size != rowCost(row[:1]) {
		t.Error(old, c.size)
	}
}

// found returns the only task that a reference can mean, else "".
func found(s *State, ref string) string {
	if list := s.Find(ref); len(list) == 1 {
		return list[0]
	}
	return ""
}

func TestFind(t *testing.T) {
	j := newJournal(t)
	if found := j.state.Find("@last"); len(found) > 0 {
		t.Error(found)
	}
	for i := range 20 {
		j.task(uuid(i), "status: queued")
	}
	j.task("deploy", "status: queued")
	j.task(uuid(3), "status: canceled")
	for ref, want := range map[string]string{
		uuid(3):         uuid(3),
		"deploy":        "deploy",
		"plo":           "deploy",
		"@last":         "deploy",
		"000000000013":  uuid(19),
		uuid(18)[9:]:    uuid(18),
		"9a51-00000000": "",
		"nothing":       "",
		"":              "",
	} {
		if got := found(j.state, ref); got != want {
			t.Errorf("Find(%q) = %q", ref, got)
		}
	}
	if diff := cmp.Diff([]string{uuid(19), uuid(18), uuid(17), uuid(16), uuid(15)}, j.state.Find("019ab3f0")); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownTask(t *testing.T) {
	s := newJournal(t).state
	if _, ok, err := s.Task("x"); ok || err != nil {
		t.Error(ok, err)
	}
	if _, ok := s.Peek("x"); ok || s.Offsets("x") != nil || length(s) != 0 || !s.Idle() {
		t.Error("an empty state has something")
	}
	if _, ok := s.ByIdempotencyKey(""); ok {
		t.Error("the empty idempotency key is known")
	}
}

// TestFindEveryPiece: every piece of every id finds it.
func TestFindEveryPiece(t *testing.T) {
	j := newJournal(t)
	ids := []string{"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11", "01a2005c-254d-7d55-8a66-91da0f8d1677", "beef-1", "00000000-0000-0000-0000-000000000000"}
	for _, id := range ids {
		j.task(id, "status: queued")
	}
	for _, id := range ids {
		for from := range id {
			for to := from + 1; to <= len(id); to++ {
				var want []string
				for _, other := range slices.Backward(ids) {
					if strings.Contains(other, id[from:to]) {
						want = append(want, other)
					}
				}
				if got := j.state.Containing(id[from:to], table.InJournal); !slices.Equal(got, want) {
					t.Errorf("%q: %q, want %q", id[from:to], got, want)
				}
			}
		}
	}
}

// BenchmarkFind looks for a piece of an id among 100,000.
func BenchmarkFind(b *testing.B) {
	j := newJournal(b)
	for i := range 100_000 {
		j.task(uuid(i)[:24]+fmt.Sprintf("%012x", uint64(i+1)*0x9e3779b97f4a7c15>>16), "status: done")
	}
	for b.Loop() {
		if found := j.state.Find("9e3779b97f4a"); len(found) != 1 {
			b.Fatal(found)
		}
	}
}
