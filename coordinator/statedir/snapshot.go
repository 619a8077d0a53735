package statedir

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/follow"
	"stint/state"
	"stint/state/fold"
)

// A Snapshot is a state directory as its journal had it up to some record. It does not change; only a TaskRecord
// looks at the files of its runs and of the archive. TaskIDs, TaskRecord and Accounts are for one goroutine at a time.
type Snapshot struct {
	dir   string
	seq   uint64
	later map[string]bool // tasks and control sections that have records behind seq
	state *fold.State
}

// ReadSnapshot reads the state directory dir, an absolute path, as it was after the record with the number upTo;
// 0: as it is. It needs no lock and changes nothing. Of what a compaction behind upTo has merged nothing is known
// any more. The error has CodeNotFound if there is no ledger; it is ctx's cause if that ends.
func ReadSnapshot(ctx context.Context, dir string, upTo uint64) (*Snapshot, error) {
	data, archive, err := queue.ReadJournal(ctx, dir, ledger.TaskFiles)
	if err == nil && data == nil {
		return nil, &task.Error{Code: task.CodeNotFound, Message: "there is no ledger in " + dir, Hint: "stint doctor"}
	}
	if err != nil {
		return nil, err
	}
	c := &Snapshot{dir: dir, later: map[string]bool{}, state: newBook(ledger.TaskFiles, queue.BytesReader(data), archive).tasks}
	ledger.CheckJournal(data, func(s *ledger.Section) bool {
		if upTo == 0 || s.Seq <= upTo {
			c.seq = max(c.seq, s.Seq)
			_ = c.state.Apply(s) // what the fold refuses has no effect, here as there
		} else if s.Kind == ledger.KindTask || s.Kind == ledger.KindControl {
			c.later[string(s.ID)] = true
		}
		return ctx.Err() == nil
	})
	return c, context.Cause(ctx)
}

// Seq returns the number of the last record that is in the copy.
func (c *Snapshot) Seq() uint64 { return c.seq }

// Follow returns the records of the journal after that seq, as they are written; see [follow.Dir].
func (c *Snapshot) Follow(after uint64) *follow.Follower { return follow.Dir(nil, c.dir, after) }

// TaskIDs is [query.Query.TaskIDs].
func (c *Snapshot) TaskIDs(done, n int) []string { return c.state.IDs(done, n) }

// TaskRecord is [query.Query.TaskRecord].
func (c *Snapshot) TaskRecord(id string) (task.TaskRecord, error) {
	return queue.TaskRecord(c.dir, id, func(f func(*fold.State)) { f(c.state) })
}

// Accounts returns the accounts that the records tell of, no others.
func (c *Snapshot) Accounts() []state.AccountUse { return c.state.Accounts() }

// RunDir returns the directory of a run's files.
func (c *Snapshot) RunDir(runID string) string { return rundir.Dir(c.dir, runID) }

// ChangedLater reports whether the journal has a record behind Seq of a task, of which an
// TaskRecord tells what it was, or of a control section such as "account:NAME".
func (c *Snapshot) ChangedLater(id string) bool { return c.later[id] }

// List returns the tasks in the journal of dir that a filter lets through, newest first. It needs no master.
func List(ctx context.Context, dir string, f state.Filter) ([]state.Task, error) {
	st, err := queue.FoldDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	list, err := st.List(f)
	for i := 0; f.Prompts && i < len(list) && err == nil; i++ {
		var t state.Task
		t, _, err = st.Task(list[i].ID)
		list[i].Prompt = t.Prompt
	}
	return list, err
}

// ListArchive returns the tasks in the archive of dir that a filter lets through and that were not brought back,
// the one that ended last first, without texts but the prompts that it asks for. It needs no master. A record that cannot
// be read is left out; the error is the first one's.
func ListArchive(dir string, f state.Filter) ([]state.Task, error) {
	entries, err := archive.Read(nil, dir, ledger.TaskFiles)
	if err != nil {
		return nil, err
	}
	now, err := queue.FoldDir(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e ledger.ArchiveEntry) bool { _, away := now.Archived(e.ID); return !away })
	slices.Reverse(entries)
	slices.SortStableFunc(entries, func(a, b ledger.ArchiveEntry) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	var list []state.Task
	for _, e := range entries {
		if f.Limit > 0 && len(list) >= f.Limit {
			break
		}
		if len(f.Status) > 0 && !slices.Contains(f.Status, state.Status(e.Status)) {
			continue
		}
		t, _, rerr := queue.ReadArchived(dir, e)
		if rerr != nil {
			err = cmp.Or(err, fmt.Errorf("archive/%s: %w; all findings: stint fsck", e.File, rerr))
			continue
		}
		if !f.Match(&t) {
			continue
		}
		if t.Result, t.InputFiles, t.OutputFiles = "", nil, nil; !f.Prompts {
			t.Prompt = ""
		}
		list = append(list, t)
	}
	return list, err
}
