package lanes

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/state"
)

// feed applies a record of a task, of keys and values, as the fold does.
func feed(t testing.TB, q *Queues, id string, fields ...string) {
	t.Helper()
	r := &ledger.Record{Kind: ledger.KindTask, ID: id, Seq: uint64(q.Entries.Len())}
	for i := 0; i < len(fields); i += 2 {
		r.Add(fields[i], fields[i+1])
	}
	sec, err := ledger.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	n := q.Number(id)
	if n == 0 {
		n = q.Add([]byte(id), uint64(q.Entries.Len()))
	}
	l, old := q.Live(n), state.Folded{}
	if l == nil {
		l = q.Revive(n)
	} else {
		q.WholeInto(&l.Body, &old)
	}
	next := old
	if err := next.Apply(sec, nil, state.KeepNone); err != nil {
		t.Fatal(err)
	}
	q.Set(l, &old, &next, old.Status != next.Status)
}

// TestNothingIsLeftOver: of tasks that have ended nothing is kept but their few words.
func TestNothingIsLeftOver(t *testing.T) {
	q := NewQueues()
	q.TitleOf = func(uint32) string { return "" }
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	feed(t, &q, "a", "status", "queued", "sessionKey", "task:a", "sessionId", "s1", "agent", "codex")
	feed(t, &q, "b", "status", "queued", "sessionKey", "dir:/w", "sessionId", "s2", "after", "a gone", "updatedAt", state.FormatTime(now))
	feed(t, &q, "c", "status", "queued", "sessionKey", "dir:/w", "sessionId", "s2", "maxLimitWait", "0s", "notBefore", state.FormatTime(now.Add(time.Hour)))
	feed(t, &q, "d", "status", "queued", "hold", "true", "reason", "orphaned", "after", "b")
	q.Ready(now, Limits{MaxWorkers: 9})
	feed(t, &q, "a", "status", "running")
	for _, id := range []string{"a", "b", "c", "d"} {
		feed(t, &q, id, "status", "canceled")
	}
	q.Ready(now, Limits{MaxWorkers: 9})
	for what, n := range map[string]int{
		"live": len(q.live), "running": len(q.running), "orphans": len(q.orphans), "lanes": len(q.lanes), "held": q.held, "due": len(q.due.List),
		"after": len(q.after.of) + len(q.after.maybe), "hasty": len(q.hasty), "bare": len(q.bare), "wakes": len(q.plan.wakes.List),
		"sessions": len(q.sessions.implied),
	} {
		if n != 0 {
			t.Errorf("%s: %d are left", what, n)
		}
	}
	if len(q.sessions.byID) != 1 || len(q.sessions.seats) != 1 { // that of the directory
		t.Errorf("sessions: %v", q.sessions.byID)
	}
}

// TestDueHeap compares the heap with a plain look at all tasks, over random histories.
func TestDueHeap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := NewQueues()
		for range rapid.IntRange(1, 60).Draw(rt, "records") {
			id := strconv.Itoa(rapid.IntRange(1, 8).Draw(rt, "id"))
			fields := []string{"hold", rapid.SampledFrom([]string{"", "true"}).Draw(rt, "hold")}
			for _, key := range []string{"updatedAt", "notBefore"} {
				if sec := rapid.Int64Range(0, 9).Draw(rt, key); sec > 0 {
					fields = append(fields, key, state.FormatTime(time.Unix(sec, 0)))
				}
			}
			feed(t, &q, id, append(fields, "status", rapid.SampledFrom([]string{"queued", "draft"}).Draw(rt, "status"), "by", "hand")...)
		}
		in := 0
		for _, l := range q.live {
			if want := l.is(state.Queued) && !l.Hold && l.since != 0; want != (l.dueAt > 0) {
				rt.Fatalf("%s is in the heap: %v; hold %v", q.ID(l.N), l.dueAt > 0, l.Hold)
			}
			if l.dueAt > 0 {
				in++
			}
		}
		if in != len(q.due.List) {
			rt.Fatalf("%d tasks in the heap, which has %d places", in, len(q.due.List))
		}
		for i, l := range q.due.List {
			if l.due().Before(q.due.List[0].due()) || l.dueAt != uint32(i+1) {
				rt.Fatalf("place %d: %s is before the first", i, q.ID(l.N))
			}
		}
	})
}
