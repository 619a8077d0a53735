package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// TestCompaction: archived tasks are still known, nobody is told of them again, and
// a retry brings one back.
func TestCompaction(t *testing.T) {
	w := newWorld(t)
	w.open()
	spec := task.TaskSpec{Prompt: "once", IdempotencyKey: "k", SessionKey: "web"}
	one := w.done(spec)
	later := w.submit(task.TaskSpec{Prompt: "later", NotBefore: time.Now().Add(time.Hour)})
	changes, stop := w.c.Subscribe(10)
	defer stop()
	if r, err := w.c.Compact(t.Context(), 24*time.Hour, false); err != nil || r.Archived != 0 || r.Merged != 3 {
		t.Errorf("what has just ended was archived: %+v, %v", r, err)
	}
	w.moveOut()
	if r, err := statedir.Fsck(t.Context(), w.cfg.StateDir, "", func() bool { return true }); err != nil || r.Seq != w.c.Seq() {
		t.Errorf("the newest record is %d, fsck says %+v, %v", w.c.Seq(), r, err)
	}
	spec.Prompt = "another body"
	_, err := w.try(spec)
	if _, cerr := w.c.Cancel(t.Context(), one.ID, "user"); code(err) != task.CodeConflict || code(cerr) != task.CodeConflict {
		t.Errorf("its key with another body: %v; canceled: %v", err, cerr)
	}
	if next := w.done(task.TaskSpec{Prompt: "next", SessionKey: "web"}); next.SessionID != one.SessionID {
		t.Errorf("its session is forgotten: %s and %s", next.SessionID, one.SessionID)
	}
	if c := <-changes; c.Task.ID == one.ID || c.Task.ID == later.ID {
		t.Errorf("a compaction was told as a change: %+v", c)
	}
	w.retry(one.ID)
	if got := w.wait(one.ID); got.Archived != "" || got.Prompt != "once" || got.Status != state.Done {
		t.Errorf("brought back: %+v", got)
	}
}

// TestCompactionByItself: the master compacts a journal that is too large.
func TestCompactionByItself(t *testing.T) {
	w := newWorld(t)
	w.open()
	for range 5 {
		w.done(task.TaskSpec{Prompt: strings.Repeat("long ", 1000)})
	}
	w.close()
	w.cfg.CompactSize = 10_000
	w.open()
	for end := time.Now().Add(20 * time.Second); len(w.c.List(state.Filter{})) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	w.close()
	list, err := statedir.ListArchive(w.dir, state.Filter{Limit: 3})
	if size := len(read(t, w.dir, ledger.JournalName)); err != nil || len(list) != 3 || size > 10_000 {
		t.Errorf("%d archived tasks, %v, journal of %d bytes", len(list), err, size)
	}
	w.open()
}

// TestPagesOverCompaction: the place in a list outlives the task that it names, a
// compaction and a restart; a place that no list has is refused.
func TestPagesOverCompaction(t *testing.T) {
	w := newWorld(t)
	w.open()
	waits := task.TaskSpec{Prompt: "later", NotBefore: time.Now().Add(time.Hour)}
	old := w.submit(waits)
	w.wait(w.submit(task.TaskSpec{Prompt: "once"}).ID)
	newest := w.submit(waits)
	page := func(before uint64) (ids []string, last uint64) {
		rows, err := w.c.Rows(state.Filter{Limit: 2, Before: before}, func(t *state.Task) ([]byte, error) { return []byte(t.ID), nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if last = r.First; r.Task != nil {
				r.Encoded = []byte(r.Task.ID)
			}
			ids = append(ids, string(r.Encoded))
		}
		return ids, last
	}
	ids, last := page(0)
	if len(ids) != 2 || ids[0] != newest.ID {
		t.Fatalf("the first page is %v", ids)
	}
	if r, err := w.c.Compact(t.Context(), 0, false); err != nil || r.Archived != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	next := func(when string) {
		if ids, _ := page(last); len(ids) != 1 || ids[0] != old.ID {
			t.Errorf("%s the page that follows is %v, want %s", when, ids, old.ID)
		}
	}
	next("after a compaction")
	w.close()
	w.open()
	next("after a restart")
	if _, err := w.c.Rows(state.Filter{Before: last + 1000}, nil); code(err) != task.CodeInvalid || fieldOf(err) != "cursor" {
		t.Errorf("a place that no list has: %v", err)
	}
}
