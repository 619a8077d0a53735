package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// Compact merges the records of each task into one, in both files, and moves the
// tasks that ended more than olderThan ago into the archive; 0 moves all that have
// ended. With dryRun it only says what it would do. The error is an *Error where a
// user can do something about it.
func (c *Coordinator) Compact(ctx context.Context, olderThan time.Duration, dryRun bool) (ledger.CompactReport, error) {
	defer c.call()()
	if olderThan < 0 {
		return ledger.CompactReport{}, task.Invalid("write for example 30d, 12h or 0", "tasks cannot be older than %s", olderThan)
	}
	r, err := c.ledger.Compact(ctx, func() (ledger.Keep, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		keep, err := c.state.Compact(c.cfg.Now().Add(-olderThan))
		keep.Dry = dryRun
		return keep, err
	})
	if err != nil {
		return r, c.compactError(err)
	}
	if !dryRun && r.Archive != "" {
		c.log.Info("the ledger was compacted", "before", r.Before, "after", r.After, "merged", r.Merged, "archived", r.Archived, "archive", r.Archive)
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
		return c.stopped()
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
	if c.cfg.CompactSize <= 0 {
		return
	}
	limit := c.cfg.CompactSize // looked at again when the journal is larger than that
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = compactEvery
		size := c.ledger.Size()
		if size <= limit {
			limit = min(limit, max(size, c.cfg.CompactSize))
			continue
		}
		if time.Since(c.ledger.SavedByHand()) < compactAgain {
			continue
		}
		done, err := c.compactHalf(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.log.Info("the ledger could not be compacted yet", "error", err)
			wait = compactAgain
		case !done:
			limit = size + size/4
		}
	}
}

// compactHalf compacts if at least half of the journal can go. To find that out
// exactly takes seconds in which nothing can be submitted, so it is estimated first.
func (c *Coordinator) compactHalf(ctx context.Context) (done bool, err error) {
	size := c.ledger.Size()
	c.mu.Lock()
	left := c.state.CompactedSize(c.cfg.Now().Add(-c.cfg.CompactOlderThan), size)
	c.mu.Unlock()
	if left > size/2 {
		return false, nil
	}
	r, err := c.Compact(ctx, c.cfg.CompactOlderThan, true)
	if err != nil || r.After > r.Before/2 {
		return false, err
	}
	_, err = c.Compact(ctx, c.cfg.CompactOlderThan, false)
	return err == nil, err
}

// archived notes a task that was moved out. The log calls it with mu held.
func (c *Coordinator) archived(e ledger.ArchiveEntry) { c.state.Archive(e) }

// refold begins the fold anew after a compaction. The log calls it with mu held,
// which it keeps until refolded. Nobody hears of the records in between: they say
// what was said before.
func (c *Coordinator) refold() {
	c.state = state.New(sections(func() *ledger.Log { return c.ledger }))
	c.live, c.refolding, c.rejected = false, true, nil
}

// refolded ends it. Who follows lists anew, also where nothing has gone to the archive:
// the records have other numbers, and those that readers know mean nothing any more.
func (c *Coordinator) refolded() {
	c.refolding = false
	c.goLive()
	c.publishResync()
	c.poke()
}

// readArchived gives a task that was moved out, with its texts. The caller holds mu
// or not: files of the archive are only ever appended to.
func (c *Coordinator) readArchived(e ledger.ArchiveEntry) (state.Task, error) {
	return ReadArchived(c.cfg.StateDir, e)
}

// ReadArchived gives a task of the archive in dir, with its texts.
func ReadArchived(dir string, e ledger.ArchiveEntry) (state.Task, error) {
	s, err := ledger.ReadArchived(nil, dir, e)
	if err != nil {
		return state.Task{}, err
	}
	t, err := state.TaskOf(s)
	t.Archived = e.File
	return t, err
}

// revive appends the whole record of a task that is in the archive, before what
// changes it: so it comes back. Of other tasks it does nothing.
func (c *Coordinator) revive(tx *ledger.Tx, id string) error {
	c.mu.Lock()
	e, ok := c.state.Archived(id)
	c.mu.Unlock()
	if !ok {
		return nil
	}
	s, err := ledger.ReadArchived(nil, c.cfg.StateDir, e)
	if err != nil {
		return err
	}
	r := s.Record()
	r.Fields = slices.DeleteFunc(r.Fields, func(f ledger.Pair) bool { return f.Key == ledger.KeyArchived })
	tx.Append(&r)
	return nil
}

// ListArchive gives the tasks in the archive of dir that a filter lets through, the
// one that ended last first, without their texts. Those that were brought back are
// not among them. It needs no master.
func ListArchive(dir string, f state.Filter) ([]state.Task, error) {
	entries, err := ledger.ReadArchive(nil, dir)
	if err != nil {
		return nil, err
	}
	now, err := fold(dir)
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
		t, err := ReadArchived(dir, e)
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

// rawArchived gives the record of an archived task as it stands in the archive.
func (c *Coordinator) rawArchived(e ledger.ArchiveEntry) ([]byte, error) {
	s, err := ledger.ReadArchived(nil, c.cfg.StateDir, e)
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimRight(string(s.Raw), "\n") + "\n\n"), nil
}

// feedArchive tells a fold that is made beside the master what is in the archive.
func feedArchive(st *state.State, dir string) error {
	entries, err := ledger.ReadArchive(nil, dir)
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	for _, e := range entries {
		st.Archive(e)
	}
	return nil
}
