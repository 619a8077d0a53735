package statedir

import (
	"context"
	"slices"

	"stint/coordinator/queue"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/state"
)

// List returns the tasks of dir that a filter lets through, the newest first, as far as its
// journal has them. It needs no master and writes nothing.
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

// ListArchive returns the tasks in the archive of dir that a filter lets through, the
// one that ended last first, without their texts unless it asks for prompts. Those that were brought back are
// not among them. It needs no master.
func ListArchive(dir string, f state.Filter) ([]state.Task, error) {
	entries, err := archive.Read(nil, dir)
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
		t, _, err := queue.ReadArchived(dir, e)
		if err != nil {
			return list, err
		}
		if !f.Match(&t) {
			continue
		}
		if t.Result, t.InputFiles, t.OutputFiles = "", nil, nil; !f.Prompts {
			t.Prompt = ""
		}
		list = append(list, t)
	}
	return list, nil
}
