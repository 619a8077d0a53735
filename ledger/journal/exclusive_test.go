package journal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stint/ledger"
	"stint/ledger/journal"
)

// TestExclusiveIsAloneInItsBatch: random changes wait together; some claim the same, some
// add nothing or fail. An exclusive one decides on a fold that has all that was written
// before it, and shares its batch with nobody; no later change decides before it, and one
// batch at most is written before it gets its turn. Nothing is lost.
func TestExclusiveIsAloneInItsBatch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		changes := make([]change, 2+rnd.IntN(20))
		for i := range changes {
			changes[i] = change{alone: rnd.IntN(3) == 0, claim: fmt.Sprint(rnd.IntN(4)), records: rnd.IntN(4) - 1}
		}
		if checkTogether(t, changes); t.Failed() {
			t.Fatalf("seed %d: %+v", seed, changes)
		}
	}
}

// A change is an update of a test.
type change struct {
	alone   bool
	claim   string
	records int // -1: it fails
}

var errChange = errors.New("a change that fails")

// An event is a decision of a change, or a batch.
type event struct {
	change int // -1: a batch
	fold   int // records that the change saw, or that the batch has
}

func checkTogether(t *testing.T, changes []change) {
	t.Helper()
	w := newWorld(t)
	events := w.together(changes)
	first, written := map[int]int{}, 0
	batches, own := 0, 0 // since the last turn of an exclusive change; own: one of them is to be its own
	for at, e := range events {
		if e.change < 0 && e.fold == 0 {
			continue
		}
		if e.change < 0 {
			if batches++; own > 0 && e.fold != own {
				t.Errorf("a batch has %d records, and %d are those of an exclusive change", e.fold, own)
			}
			written, own = written+e.fold, 0
			continue
		}
		if _, again := first[e.change]; !again {
			first[e.change] = at
		}
		if c := changes[e.change]; c.alone {
			if e.fold != written || batches > 1 {
				t.Errorf("exclusive change %d saw %d of %d records, and waited for %d batches", e.change, e.fold, written, batches)
			}
			batches, own = 0, max(0, c.records)
			if own > 0 {
				batches = -1
			}
		}
	}
	has := map[string]int{}
	for _, r := range w.fold {
		id, _, _ := strings.Cut(r.ID, ".")
		has[id]++
	}
	for i, c := range changes {
		if c.alone && slices.ContainsFunc(events, func(e event) bool { return e.change > i && first[e.change] < first[i] }) {
			t.Errorf("a later change decides before the exclusive change %d", i)
		}
		if n := has[fmt.Sprint("t", i)]; n != max(0, c.records) {
			t.Errorf("change %d has %d records of %d", i, n, c.records)
		}
	}
}

// together makes changes that wait for the log at the same time, in their order, and gives what happened.
func (w *world) together(changes []change) (events []event) {
	w.t.Helper()
	opts := w.options(false)
	opts.Observe = func(c *journal.Commit) { events = append(events, event{-1, c.Records}) }
	w.openWith(opts)
	events = nil
	w.queued(len(changes), func(i int) {
		c, update := changes[i], w.log.Update
		if c.alone {
			update = w.log.Exclusive
		}
		err := update(context.Background(), func(tx *ledger.Tx) error {
			events = append(events, event{i, len(w.fold)}) // on the log's goroutine
			if c.records < 0 {
				return errChange
			}
			tx.Claim(c.claim)
			for n := range c.records {
				tx.Append(record(fmt.Sprintf("t%d.%d", i, n), "status", "queued"))
			}
			return nil
		})
		if (err != nil) != (c.records < 0) {
			w.t.Errorf("change %d: %v", i, err)
		}
	})
	w.close()
	return events
}
