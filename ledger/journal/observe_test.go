package journal_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"stint/ledger/journal"
)

// observed is a log whose clock goes on by a second with each fdatasync, and what its observer was told.
type observed struct {
	*world
	disk    *failingFS
	commits []journal.Commit // the log's goroutine writes them; the tests read after Close
}

func newObserved(t *testing.T) *observed {
	o := &observed{world: newWorld(t), disk: newFailingFS()}
	o.fs = o.disk
	o.reopen()
	return o
}

func (o *observed) reopen() {
	o.t.Helper()
	opts := o.options(false)
	opts.Now = func() time.Time { return november().Add(time.Duration(o.disk.syncs.Load()) * time.Second) }
	opts.Observe = func(c *journal.Commit) {
		told := *c
		told.Waits = slices.Clone(c.Waits)
		o.commits = append(o.commits, told)
	}
	o.openWith(opts)
}

// TestObserveTellsOfEachBatch: a batch of many changes is one commit, with the wait of
// each of them and the time of its one fdatasync.
func TestObserveTellsOfEachBatch(t *testing.T) {
	o := newObserved(t)
	o.add("a", "status", "queued")
	o.queued(5, func(i int) {
		if err := o.change(record(fmt.Sprint("x", i), "status", "queued"), record(fmt.Sprint("y", i), "status", "queued")); err != nil {
			t.Error(err)
		}
	})
	o.close()
	second := time.Second
	want := []journal.Commit{
		{Records: 1, Sync: second, Waits: []time.Duration{second}},
		{Records: 10, Sync: second, Waits: []time.Duration{second, second, second, second, second}},
	}
	if got, want := fmt.Sprintf("%+v", o.commits), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("the observer was told\n%s\nwant\n%s", got, want)
	}
}

// TestObserveTellsOfEdits: what a person writes is a change that begins when it is taken
// over, by the log or when it is opened.
func TestObserveTellsOfEdits(t *testing.T) {
	t.Parallel()
	o := newObserved(t)
	o.add("a", "status", "queued")
	o.edit(appended("\n## Task b\n- status: queued\n"))
	must(t, o.log.ReconcileNow(t.Context()))
	o.close()
	o.edit(appended("\n## Task c\n- status: queued\n"))
	o.reopen()
	o.close()
	if len(o.commits) != 3 {
		t.Fatalf("the observer was told %+v", o.commits)
	}
	for _, c := range o.commits {
		if len(c.Waits) != 1 || c.Waits[0] < time.Second || c.Waits[0] > time.Minute {
			t.Errorf("the observer was told %+v", c)
		}
	}
}
