package fold

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/state"
)

// walk lists a journal page by page while it changes.
type walk struct {
	t      *rapid.T
	j      *journal
	filter state.Filter

	records map[string]ledger.Record // of archived tasks
	next    int                      // id of the next task
	minutes int                      // of the clock
	seen    []string
}

// present returns the tasks that the list has now, without pages.
func (w *walk) present() []string {
	f := w.filter
	f.Limit, f.Before = 0, 0
	list, err := w.j.state.List(f)
	must(w.t, err)
	return taskIDs(list)
}

// change does one thing that may move tasks.
func (w *walk) change() {
	w.minutes++
	now := "updatedAt: " + at(time.Duration(w.minutes)*time.Minute)
	some := func() string { return uuid(rapid.IntRange(1, w.next).Draw(w.t, "task")) }
	switch rapid.SampledFrom([]string{"add", "add", "end", "end", "delete", "restart", "compact", "revive"}).Draw(w.t, "change") {
	case "add":
		w.next++
		w.j.task(uuid(w.next), "status: queued", now, "label: "+pick(w.t, "x", "y"))
	case "end":
		_ = w.j.append(ledger.KindTask, some(), "status: canceled", now) // it may be in the archive, or ended
	case "delete":
		w.j.control(ControlDeleted, "tasks: "+some())
	case "restart":
		w.j.state = w.j.refold()
	case "compact":
		w.compact()
	case "revive":
		w.revive(some(), now)
	}
}

func (w *walk) compact() {
	keep := w.j.compact(noon.Add(time.Duration(rapid.IntRange(0, w.minutes+1).Draw(w.t, "before")) * time.Minute))
	for _, m := range keep.Out {
		w.records[m.Entry.ID] = m.Record
	}
	w.j = w.j.compacted(keep)
}

// revive brings a task back from the archive.
func (w *walk) revive(id, now string) {
	r, ok := w.records[id]
	if _, away := w.j.state.Archived(id); !ok || !away {
		return
	}
	var fields []string
	for _, f := range r.Fields {
		fields = append(fields, f.Key+": "+f.Value)
	}
	w.j.task(id, fields...)
	w.j.task(id, "status: queued", now)
}

// page lists one page and reports whether it was the last.
func (w *walk) page() (last bool) {
	f := w.filter
	f.Limit = rapid.IntRange(1, 4).Draw(w.t, "limit")
	rows, err := w.j.state.Rows(f, func(t *state.Task) ([]byte, error) { return []byte(t.ID), nil })
	must(w.t, err)
	for _, r := range rows {
		id := string(r.Encoded)
		if r.Task != nil {
			id = r.Task.ID
		}
		w.seen, w.filter.Before = append(w.seen, id), r.First
	}
	if w.filter.Before > w.j.state.Seq() {
		w.t.Fatalf("the cursor %d is beyond the newest record, %d", w.filter.Before, w.j.state.Seq())
	}
	return len(rows) < f.Limit
}

// TestPagesHaveNoGapsAndNoDuplicates: whatever happens between two pages, no task is
// listed twice, and none is left out that was there all the time.
func TestPagesHaveNoGapsAndNoDuplicates(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &walk{t: rt, j: newJournal(t), records: map[string]ledger.Record{}}
		changes := func(most int) {
			for range rapid.IntRange(0, most).Draw(rt, "changes") {
				w.change()
			}
		}
		w.next = 1
		w.j.task(uuid(1), "status: queued", "updatedAt: "+at(0))
		changes(20)
		if rapid.Bool().Draw(rt, "filtered") {
			w.filter.Label = "x"
		}
		steady := w.present()
		newest := w.next
		for !w.page() {
			for range rapid.IntRange(0, 4).Draw(rt, "between") {
				w.change()
				now := w.present()
				steady = slices.DeleteFunc(steady, func(id string) bool { return !slices.Contains(now, id) })
			}
		}
		for i, id := range w.seen {
			if slices.Contains(w.seen[:i], id) {
				rt.Fatalf("%s was listed twice in %v", id, w.seen)
			}
			if id > uuid(newest) && i > 0 && w.seen[i-1] <= uuid(newest) {
				rt.Fatalf("%s is newer than %s, and was listed behind it", id, w.seen[i-1])
			}
		}
		for _, id := range steady {
			if !slices.Contains(w.seen, id) {
				rt.Fatalf("%s was there all the time, and not listed: %v", id, w.seen)
			}
		}
	})
}

// TestFirstSeqByHand: what a person makes of the number of a first record changes the order of no list.
func TestFirstSeqByHand(t *testing.T) {
	j := newJournal(t)
	for i, first := range []string{"7", "0", "18446744073709551615", "1", ""} {
		j.task(uuid(i+1), "status: queued", "firstSeq: "+first)
	}
	j.task(uuid(2), "firstSeq: 1", "by: hand")
	for n, last := uint32(1), uint64(0); n < j.state.Entries.Len(); n++ {
		e := j.state.Entries.At(n)
		if e.First <= last || e.First > j.state.Seq() {
			t.Errorf("task %d has %d behind %d", n, e.First, last)
		}
		last = e.First
	}
	j.checkRefold()
	err := j.refuse("x", "status: queued", "firstSeq: many")
	if want := `"many" is not the number of a record`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
