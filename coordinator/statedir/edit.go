package statedir

import (
	"context"
	"errors"
	"io/fs"

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
	st, err := foldForEdit(dir)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	r, err := journal.Preview(journal.Options{Dir: dir, Rules: queue.EditRules(func(f func(*fold.State)) { f(st) })}, tasks)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	return queue.ReconciledOf(r), r.Records, nil
}

// EditCheck returns a function that says whether a record that a person wrote can be taken over,
// as the journal of a state directory stands now. It reads the journal and needs no
// lock. The errors are those of [fold.Save.Check].
func EditCheck(dir string) (func(*ledger.Section) error, error) {
	st, err := foldForEdit(dir)
	if err != nil {
		return nil, err
	}
	return st.CheckNext, nil
}

// foldForEdit is [queue.FoldDir]; where nothing was ever written, there are no tasks.
func foldForEdit(dir string) (*fold.State, error) {
	st, err := queue.FoldDir(context.Background(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fold.New(nil), nil
	}
	return st, err
}
