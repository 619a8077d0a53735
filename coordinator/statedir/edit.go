package statedir

import (
	"context"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/journal"
	"stint/state/fold"
)

// Preview returns what a master of this state directory would do if tasks.md were
// these bytes. It reads the journal and changes nothing; a master may be at work.
// The records are those that it would make of edits; they have no seq yet.
func Preview(dir string, tasks []byte) (task.Reconciled, []ledger.Record, error) {
	data, entries, err := queue.ReadJournal(context.Background(), dir)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	st, err := queue.FoldJournal(context.Background(), data, entries, nil)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	return preview(dir, st, data, tasks)
}

// preview is Preview with the journal, which is nil if there is none, and its fold.
func preview(dir string, st *fold.State, records, tasks []byte) (task.Reconciled, []ledger.Record, error) {
	r, err := journal.Preview(journal.Options{Dir: dir, Rules: queue.EditRules(func(f func(*fold.State)) { f(st) })}, records, tasks)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	return queue.ReconciledOf(r), r.Records, nil
}

// EditCheck returns a function that says whether a record that a person wrote can be taken over,
// as the journal of a state directory stands now. It reads the journal and needs no
// lock. The errors are those of [fold.Save.Check].
func EditCheck(dir string) (func(*ledger.Section) error, error) {
	st, err := queue.FoldDir(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	return st.CheckNext, nil
}
