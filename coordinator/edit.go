package coordinator

import (
	"context"
	"errors"
	"io/fs"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// Findings returns what is wrong in the ledger at present.
func (c *Coordinator) Findings() []task.Finding {
	list := findingsOf(c.Store.Findings())
	c.View(func(st *fold.State) { list = append(list, homeless(st, c.Config.WorkspaceRoot)...) })
	return list
}

// homeless returns the tasks that wait for a workspace.
func homeless(s *fold.State, root string) (list []task.Finding) {
	for _, id := range s.Homeless(root) {
		list = append(list, task.Finding{File: ledger.TasksName, Message: "task " + id + ": " + lanes.NoWorkspace})
	}
	return list
}

// Reconcile takes over tasks.md now, without waiting for the watch to see that it
// was saved. With accept it also takes what is held as the work of a formatter.
func (c *Coordinator) Reconcile(ctx context.Context, accept bool) (task.TakeOver, error) {
	defer c.Call()()
	r, err := c.Store.Reconcile(ctx, accept)
	var refused *ledger.RefusedError
	switch {
	case errors.Is(err, ledger.ErrClosed):
		return task.TakeOver{}, c.StoppedError()
	case errors.As(err, &refused):
		return task.TakeOver{}, &task.Error{Code: task.CodeConflict, Message: refused.Why, Hint: refused.Hint}
	case err != nil:
		return task.TakeOver{}, err
	}
	t := takeOverOf(r)
	t.Findings = c.Findings()
	return t, nil
}

// Preview returns what a master of this state directory would do if tasks.md were
// these bytes. It reads the journal and changes nothing; a master may be at work.
// The records are those that it would make of edits; they have no seq yet.
func Preview(dir string, tasks []byte) (task.TakeOver, []ledger.Record, error) {
	st, err := foldForEdit(dir)
	if err != nil {
		return task.TakeOver{}, nil, err
	}
	r, err := ledger.Preview(editOptions(dir, st), tasks)
	if err != nil {
		return task.TakeOver{}, nil, err
	}
	return takeOverOf(r), r.Records, nil
}

// EditCheck returns what says whether a record that a person wrote can be taken over,
// as the journal of a state directory stands now. It reads the journal and needs no
// lock. The errors are those of fold.Check.
func EditCheck(dir string) (func(*ledger.Section) error, error) {
	st, err := foldForEdit(dir)
	if err != nil {
		return nil, err
	}
	return st.CheckNext, nil
}

// foldForEdit is fold; where nothing was ever written, there are no tasks.
func foldForEdit(dir string) (*fold.State, error) {
	st, err := foldDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fold.New(nil), nil
	}
	return st, err
}

// editOptions are those of the ledger that decide about edits.
func editOptions(dir string, st *fold.State) ledger.Options {
	begin := func() (func(*ledger.Section) error, func(*ledger.Record) []ledger.Pair) {
		save := st.NewSave()
		return save.Check, save.ImpliedChanges
	}
	return ledger.Options{Dir: dir, Begin: begin, CheckBatch: st.CheckTogether, Guarded: task.GuardedKeys, KeepOnCopy: state.Copied}
}

func takeOverOf(r ledger.Report) task.TakeOver {
	t := task.TakeOver{Notices: []string{}, Findings: findingsOf(r.Findings), Adopted: len(r.Records), Missing: r.Missing, Held: r.Held}
	for _, n := range r.Notices {
		if n.Finding == nil {
			t.Notices = append(t.Notices, n.Text)
		}
	}
	return t
}

func findingsOf(list []*ledger.SyntaxError) []task.Finding {
	out := make([]task.Finding, len(list))
	for i, f := range list {
		out[i] = task.Finding{File: f.File, Line: f.Line, Message: f.Msg}
	}
	return out
}
