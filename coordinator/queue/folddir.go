package queue

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// FoldDir folds the journal and the archive's index of a state directory, to the end. It needs
// no lock: a master may be at work. It ends with ctx, whose cause the error is then.
func FoldDir(ctx context.Context, dir string) (*fold.State, error) {
	data, entries, err := ReadJournal(ctx, dir, ledger.TaskFiles)
	if err != nil {
		return nil, err
	}
	st := fold.New(BytesReader(data))
	for _, e := range entries {
		st.Archive(e)
	}
	ledger.CheckJournal(data, func(s *ledger.Section) bool {
		_ = st.Apply(s) // what the fold refuses has no effect, here as there
		return ctx.Err() == nil
	})
	return st, context.Cause(ctx)
}

// ReadJournal reads a journal, nil if there is none, and the index of its archive, anew when a compaction has
// replaced the journal meanwhile. It ends with ctx, whose cause the error is then.
func ReadJournal(ctx context.Context, dir string, files ledger.Files) (data []byte, entries []ledger.ArchiveEntry, err error) {
	path := filepath.Join(dir, files.Journal())
	for {
		f, err := durable.Open(path, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) { // nothing was ever written
			entries, err = archive.Read(nil, dir, files)
			return nil, entries, err
		}
		if err != nil {
			return nil, nil, err
		}
		fi, err := f.Stat()
		if err == nil {
			data, err = durable.ReadPieces(ctx, f, fi.Size()) // what comes later is of later changes
		}
		if err == nil {
			entries, err = archive.Read(nil, dir, files)
		}
		now, statErr := os.Stat(path) // while f is open: no other file has its number
		if err = errors.Join(err, statErr, f.Close()); err != nil || os.SameFile(fi, now) {
			return data, entries, err
		}
	}
}

// BytesReader reads records from a journal in memory.
type BytesReader []byte

// SectionAt implements [fold.Reader].
func (b BytesReader) SectionAt(off int64) (*ledger.Section, error) { return ledger.SectionIn(b, off) }

// TaskRecord returns a task of the state directory dir, with its runs. with calls its argument with the
// fold, which nobody else uses meanwhile.
func TaskRecord(dir, id string, with func(func(*fold.State))) (i task.TaskRecord, err error) {
	var away ledger.ArchiveEntry
	var ended []state.Run
	known, archived := false, false
	with(func(st *fold.State) {
		if away, archived = st.Archived(id); !archived {
			i.Task, ended, known, err = st.TaskAndRuns(id)
			i.HoldsKey = st.HoldsKey(&i.Task)
		}
	})
	switch {
	case err != nil:
		return task.TaskRecord{}, err
	case archived:
		if i.Task, ended, err = ReadArchived(dir, away); err != nil {
			return task.TaskRecord{}, err
		}
		with(func(st *fold.State) { i.HoldsKey = st.HoldsKey(&i.Task) })
	case !known:
		return task.TaskRecord{}, notFound(id)
	}
	i.Runs = joinRuns(&i.Task, ended)
	for k := range i.Runs {
		rundir.Weigh(&i.Runs[k], dir)
	}
	return i, nil
}

// ReadArchived returns a task of the archive, with its texts, and what its agents' runs have used.
func ReadArchived(dir string, e ledger.ArchiveEntry) (t state.Task, ended []state.Run, err error) {
	s, err := archive.ReadRecord(nil, dir, e)
	if err != nil {
		return t, nil, err
	}
	if t, err = fold.TaskOf(s); err != nil {
		return t, nil, err
	}
	t.Archived = e.File
	return t, state.RunsAfter(nil, &state.Task{}, &t, s), nil
}

// joinRuns puts together what the steps of a task tell and what the agents' runs have used. The agent's have the
// numbers by which [rundir.FindRun] knows them.
func joinRuns(t *state.Task, ended []state.Run) []task.TaskRun {
	list, turns := []task.TaskRun{}, 0
	loop := task.HasVerify(t) || slices.ContainsFunc(t.Steps, func(s state.Step) bool { return s.Phase == state.PhaseVerify })
	for _, s := range rundir.RunsOf(t) {
		r := task.TaskRun{
			RunID: s.RunID, Phase: s.Phase, Attempt: s.Attempt, StartedAt: s.Started, EndedAt: s.Ended, ExitCode: s.ExitCode, Took: s.Took, Reason: s.Reason,
		}
		if s.Phase == "" {
			turns++
			r.Number = turns
		}
		if loop {
			r.Iteration = max(1, s.Iteration)
		}
		if s.RunID == t.RunID { // of which the task says more
			r.StartedAt = cmp.Or(r.StartedAt, t.RunStartedAt)
			if r.Phase != state.PhaseVerify {
				r.Agent, r.Model, r.Account = t.Agent, t.Model, t.AccountName()
			}
		}
		list = append(list, r)
	}
	for _, e := range ended {
		i := slices.IndexFunc(list, func(r task.TaskRun) bool { return r.RunID == e.ID })
		if i < 0 {
			continue
		}
		r := &list[i]
		r.Agent, r.Model, r.Account, r.Usage = e.Agent, e.Model, e.Account, r.Usage.Plus(e.Usage)
		if r.EndedAt.IsZero() {
			r.EndedAt = e.Ended
		}
	}
	return list
}
