package queue

import (
	"context"
	"io"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/reconcile"
	"stint/state/explain"
	"stint/state/fold"
)

// Compact merges the records of each task into one, in both files, and moves tasks that ended more than olderThan
// ago into the archive; 0 moves all that have ended, with keepFailed no failed and no dead ones. With dryRun it
// only says what it would do. The error is an *Error where a user can do something.
func (s *Store) Compact(ctx context.Context, olderThan time.Duration, dryRun, keepFailed bool) (ledger.CompactReport, error) {
	return s.compact(ctx, olderThan, dryRun, keepFailed, 0)
}

// compact is Compact if nobody else has saved tasks.md for so long.
func (s *Store) compact(ctx context.Context, olderThan time.Duration, dryRun, keepFailed bool, quiet time.Duration) (ledger.CompactReport, error) {
	if olderThan < 0 {
		return ledger.CompactReport{}, task.Invalid("write for example 30d, 12h or 0", "tasks cannot be older than %s", olderThan)
	}
	before := s.Config.Now().Add(-olderThan)
	r, err := s.Store.Compact(ctx, dryRun, quiet, func(st *fold.State, out func(ledger.Moved) error) (ledger.Keep, error) {
		return st.Compact(before, keepFailed, out)
	})
	if err != nil {
		return r, s.errorOf(err)
	}
	if !dryRun && r.Archive != "" {
		s.View(func(*fold.State) { s.rejected = nil }) // they are gone
		s.Config.Log.Info("the ledger was compacted", "before", r.Before, "after", r.After, "merged", r.Merged, "archived", r.Archived, "archive", r.Archive)
	}
	return r, nil
}

// How often the size of the journal is looked at, and how soon a compaction is tried again: also how long nobody
// must have saved tasks.md, because they may save it once more from the same buffer.
const (
	compactEvery = time.Minute
	compactAgain = 10 * time.Minute
)

// CompactWhenLarge compacts, until ctx ends, when the journal is too large and has doubled since the last time.
func (s *Store) CompactWhenLarge(ctx context.Context) {
	if s.Config.CompactSize <= 0 {
		return
	}
	for wait := time.Duration(0); task.Sleep(ctx, wait) == nil; {
		wait = compactEvery
		if s.Size() <= s.Config.CompactSize || !Read(s, func(*fold.State) bool { return s.HasDoubled() }) {
			continue
		}
		if _, err := s.compact(ctx, s.Config.CompactOlderThan, false, false, compactAgain); err != nil && ctx.Err() == nil {
			s.Config.Log.Info("the ledger could not be compacted yet", "error", err)
			wait = compactAgain
		}
	}
}

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
	r, err := s.Store.Reconcile(ctx, accept)
	if err != nil {
		return task.Reconciled{}, s.errorOf(err)
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
