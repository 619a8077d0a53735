package queue

import (
	"context"
	"errors"
	"io"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/journal"
	"stint/ledger/reconcile"
	"stint/state/explain"
	"stint/state/fold"
)

// Findings returns what is wrong at present in the ledger, and in those beside it.
func (s *Store) Findings() []task.Finding {
	list := FindingsOf(s.Store.Findings())
	s.View(func(st *fold.State) { list = append(list, Homeless(st, s.Config.WorkspaceRoot)...) })
	if s.Config.Beside != nil {
		list = append(list, s.Config.Beside()...)
	}
	return list
}

// Homeless returns the tasks that wait for a workspace.
func Homeless(s *fold.State, root string) (list []task.Finding) {
	for _, id := range s.Homeless(root) {
		list = append(list, task.Finding{File: ledger.TasksName, Message: "task " + id + ": " + explain.NoWorkspace})
	}
	return list
}

// Reconcile takes over tasks.md now, without waiting for the watch to see that it
// was saved. With accept it also takes what is quarantined as the work of a formatter.
func (s *Store) Reconcile(ctx context.Context, accept bool) (task.Reconciled, error) {
	defer s.Call()()
	r, err := s.Store.Reconcile(ctx, accept)
	var refused *journal.RefusedError
	switch {
	case errors.Is(err, journal.ErrClosed):
		return task.Reconciled{}, s.StoppedError()
	case errors.As(err, &refused):
		return task.Reconciled{}, &task.Error{Code: task.CodeConflict, Message: refused.Why, Hint: refused.Hint}
	case err != nil:
		return task.Reconciled{}, err
	}
	t := ReconciledOf(r)
	t.Findings = s.Findings()
	return t, nil
}

// ReconciledOf returns the report in the form in which clients get it.
func ReconciledOf(r reconcile.Report) task.Reconciled {
	t := task.Reconciled{Notices: []string{}, Findings: FindingsOf(r.Findings), Adopted: len(r.Records), Missing: r.Missing, Quarantined: r.Quarantined}
	for _, n := range r.Notices {
		if n.Finding == nil {
			t.Notices = append(t.Notices, n.Text)
		}
	}
	return t
}

// FindingsOf returns the findings in the form in which clients get them.
func FindingsOf(list []*ledger.SyntaxError) []task.Finding {
	out := make([]task.Finding, len(list))
	for i, f := range list {
		out[i] = task.Finding{File: f.File, Line: f.Line, Message: f.Msg}
	}
	return out
}

// Dump writes the whole state as text, always the same for the same state.
func (s *Store) Dump(w io.Writer) error {
	return Read(s, func(st *fold.State) error { return st.Dump(w) })
}

// Mirror returns how far the copy is, nil if there is none.
func (s *Store) Mirror() *task.MirrorStatus {
	if s.Config.Mirror == nil {
		return nil
	}
	status := s.Config.Mirror()
	return &status
}
