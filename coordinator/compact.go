package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// Compact merges the records of each task into one, in both files, and moves the
// tasks that ended more than olderThan ago into the archive; 0 moves all that have
// ended. With dryRun it only says what it would do. The error is an *Error where a
// user can do something about it.
func (c *Coordinator) Compact(ctx context.Context, olderThan time.Duration, dryRun bool) (ledger.CompactReport, error) {
	defer c.Call()()
	if olderThan < 0 {
		return ledger.CompactReport{}, task.Invalid("write for example 30d, 12h or 0", "tasks cannot be older than %s", olderThan)
	}
	r, err := c.Store.Compact(ctx, func(st *fold.State) (ledger.Keep, error) {
		keep, err := st.Compact(c.Config.Now().Add(-olderThan))
		keep.Dry = dryRun
		return keep, err
	})
	if err != nil {
		return r, c.compactError(err)
	}
	if !dryRun && r.Archive != "" {
		c.Config.Log.Info("the ledger was compacted", "before", r.Before, "after", r.After, "merged", r.Merged, "archived", r.Archived, "archive", r.Archive)
	}
	return r, nil
}

func (c *Coordinator) compactError(err error) error {
	var refused *ledger.RefusedError
	switch {
	case errors.As(err, &refused):
		hint := refused.Hint
		if hint == "" {
			hint = "try again"
		}
		return &task.Error{Code: task.CodeConflict, Message: "the ledger was not compacted: " + refused.Why, Hint: hint}
	case errors.Is(err, ledger.ErrClosed):
		return c.StoppedError()
	}
	return err
}

// CompactOffline is Compact where no master runs: it locks the state directory,
// compacts and closes. The error has CodeBusy if a master does run.
func CompactOffline(ctx context.Context, cfg task.Config, olderThan time.Duration, dryRun bool) (ledger.CompactReport, error) {
	c, err := Open(cfg)
	if err != nil {
		return ledger.CompactReport{}, err
	}
	r, err := c.Compact(ctx, olderThan, dryRun)
	return r, errors.Join(err, c.Close())
}

// How often the size of the journal is looked at, and how soon a compaction is tried
// again that something stood in the way of: also how long nobody must have saved tasks.md,
// because who did that may save it once more from the same buffer.
const (
	compactEvery = time.Minute
	compactAgain = 10 * time.Minute
)

// compactWhenLarge compacts by itself when the journal is larger than configured
// and at least half of it can go, until ctx ends.
func (c *Coordinator) compactWhenLarge(ctx context.Context) {
	if c.Config.CompactSize <= 0 {
		return
	}
	limit := c.Config.CompactSize // looked at again when the journal is larger than that
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = compactEvery
		size := c.Size()
		if size <= limit {
			limit = min(limit, max(size, c.Config.CompactSize))
			continue
		}
		if time.Since(c.SavedByHand()) < compactAgain {
			continue
		}
		done, err := c.compactHalf(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.Config.Log.Info("the ledger could not be compacted yet", "error", err)
			wait = compactAgain
		case !done:
			limit = size + size/4
		}
	}
}

// compactHalf compacts if at least half of the journal can go. To find that out
// exactly takes seconds in which nothing can be submitted, so it is estimated first.
func (c *Coordinator) compactHalf(ctx context.Context) (done bool, err error) {
	size := c.Size()
	before := c.Config.Now().Add(-c.Config.CompactOlderThan)
	left := task.Read(c.Store, func(st *fold.State) int64 { return st.CompactedSize(before, size) })
	if left > size/2 {
		return false, nil
	}
	r, err := c.Compact(ctx, c.Config.CompactOlderThan, true)
	if err != nil || r.After > r.Before/2 {
		return false, err
	}
	_, err = c.Compact(ctx, c.Config.CompactOlderThan, false)
	return err == nil, err
}

// ListArchive returns the tasks in the archive of dir that a filter lets through, the
// one that ended last first, without their texts. Those that were brought back are
// not among them. It needs no master.
func ListArchive(dir string, f state.Filter) ([]state.Task, error) {
	entries, err := ledger.ReadArchive(nil, dir)
	if err != nil {
		return nil, err
	}
	now, err := foldDir(dir)
	switch {
	case err == nil:
		entries = slices.DeleteFunc(entries, func(e ledger.ArchiveEntry) bool { _, away := now.Archived(e.ID); return !away })
	case !errors.Is(err, fs.ErrNotExist): // without a journal nothing was brought back
		return nil, err
	}
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
		t, err := task.ReadArchived(dir, e)
		if err != nil {
			return list, err
		}
		if !f.Match(&t) {
			continue
		}
		t.Prompt, t.Result, t.InputFiles, t.OutputFiles = "", "", nil, nil
		list = append(list, t)
	}
	return list, nil
}

// feedArchive tells a fold that is made beside the master what is in the archive.
func feedArchive(st *fold.State, dir string) error {
	entries, err := ledger.ReadArchive(nil, dir)
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	for _, e := range entries {
		st.Archive(e)
	}
	return nil
}
