package queue

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state/fold"
)

// Prune removes what tasks have left in the state directory: directories of runs, transcripts and locks of
// sessions, private indexes of git, environments. What tasks left that ended more than olderThan ago goes, and then the
// oldest until all together is no larger than configured; but nothing of a task that has not ended, and no
// session that can be resumed. With dryRun it only says what it would do. No record tells of it.
func (s *Store) Prune(ctx context.Context, olderThan time.Duration, dryRun bool) (r task.Pruned, err error) {
	now, most := s.Config.Now(), s.Config.RetentionSize
	all, err := s.leftovers(ctx, now)
	for _, l := range all {
		r.Left += l.Size
	}
	slices.SortStableFunc(all, func(a, b *leftover) int { return a.At.Compare(b.At) })
	r.Removed = []task.Leftover{}
	for _, l := range all {
		if l.kept || !l.At.Before(now.Add(-olderThan)) && (most == 0 || r.Left <= most) {
			continue
		}
		if ctx.Err() != nil || s.IsGone() {
			return r, errors.Join(err, context.Cause(ctx), s.Err())
		}
		if !dryRun {
			gone, failed := s.remove(l, now)
			if err = errors.Join(err, failed); !gone {
				continue
			}
		}
		r.Removed, r.Bytes, r.Left = append(r.Removed, l.Leftover), r.Bytes+l.Size, r.Left-l.Size
	}
	return r, err
}

// PruneByTime prunes as configured, at once and then every hour, until ctx ends.
func (s *Store) PruneByTime(ctx context.Context) {
	for on := s.Config.Retention > 0 || s.Config.RetentionSize > 0; on; on = task.Sleep(ctx, time.Hour) == nil {
		r, err := s.Prune(ctx, cmp.Or(s.Config.Retention, math.MaxInt64), false)
		if err != nil && ctx.Err() == nil {
			s.Trouble("not all that ended tasks have left could be removed", err)
		}
		if len(r.Removed) > 0 {
			s.Config.Log.Info("removed what ended tasks have left", "places", len(r.Removed), "bytes", r.Bytes, "left", r.Left)
		}
		if s.Config.Retention > 0 && s.Config.Git != nil {
			var dirs []string // in which a task is to work
			s.View(func(st *fold.State) {
				for _, id := range st.OpenIDs() {
					t, _ := st.Peek(id)
					dirs = append(dirs, t.Workspace)
				}
			})
			if _, err := s.Config.Trees.Clean(ctx, s.Config.Git, s.Config.Now(), s.Config.Retention, dirs); err != nil && ctx.Err() == nil {
				s.Trouble("not all worktrees that have landed could be removed", err)
			}
		}
	}
}

// A leftover is what tasks have left at one place.
type leftover struct {
	task.Leftover
	kept bool // it may still be needed
}

const (
	goneName = ".gone-"  // begins the name of what is being removed; what a crash leaves of it goes next time
	minAge   = time.Hour // of what no task is known to have: its record may be still to come
)

// leftovers returns all that there is. What cannot be looked at is told by the error.
func (s *Store) leftovers(ctx context.Context, now time.Time) (all []*leftover, err error) {
	open := s.OpenEnvironments("")
	for _, top := range []string{"runs", "sessions", CheckoutsName, "env"} {
		dir := filepath.Join(s.Config.StateDir, top)
		entries, lost := os.ReadDir(dir)
		if fi, e := os.Lstat(dir); e == nil && !fi.IsDir() {
			entries, lost = nil, fmt.Errorf("%s is no directory: nothing is removed there", dir)
		}
		if !errors.Is(lost, fs.ErrNotExist) {
			err = errors.Join(err, lost)
		}
		for _, e := range entries {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			path := filepath.Join(dir, e.Name())
			fi, lost := e.Info()
			if lost != nil || top == "sessions" && filepath.Ext(path) != ".jsonl" { // the lock goes with the transcript
				continue
			}
			l := &leftover{task.Leftover{Path: filepath.Join(top, e.Name()), At: fi.ModTime(), Size: sizeOf(path)}, top == "env" && open[e.Name()]}
			if top == "runs" && fi.IsDir() {
				l.TaskID = rundir.ReadFirst(path).Task // as the master wrote it; from then on the directory was the agent's
			}
			s.View(func(st *fold.State) { s.judge(st, l, now) })
			all = append(all, l)
		}
	}
	return all, err
}

// judge says when the task that has left it has ended, and whether it stays.
func (s *Store) judge(st *fold.State, l *leftover, now time.Time) {
	name := filepath.Base(l.Path)
	t, ok := st.Peek(l.TaskID)
	_, isUsed := st.SessionByID(strings.TrimSuffix(name, ".jsonl"))
	runs := slices.ContainsFunc(st.Running(), func(id string) bool { r, _ := st.Peek(id); return r.RunID == name })
	switch {
	case strings.HasPrefix(name, goneName):
		l.At = time.Time{}
	case isUsed || runs || ok && !t.Status.Terminal():
		l.kept = true
	case !ok:
		l.kept = l.kept || now.Sub(l.At) < minAge
	case t.UpdatedAt.After(l.At):
		l.At = t.UpdatedAt
	}
}

// sizeOf returns the room that a file or a directory takes on the disk. It follows no link.
func sizeOf(path string) (size int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be read is not counted
		}
		if fi, err := d.Info(); err == nil {
			size += fi.Sys().(*syscall.Stat_t).Blocks * 512 // on every file system
		}
		return nil
	})
	return size
}

// remove removes what still is to go. It loses its name with the fold in view, so that it goes as a whole
// or, because its task is to run again, not at all.
func (s *Store) remove(l *leftover, now time.Time) (gone bool, err error) {
	path := filepath.Join(s.Config.StateDir, l.Path)
	aside := filepath.Join(filepath.Dir(path), goneName+strings.TrimPrefix(filepath.Base(path), goneName))
	s.View(func(st *fold.State) {
		if s.judge(st, l, now); l.kept || path == aside {
			return
		}
		if fi, e := os.Lstat(path); e == nil && fi.ModTime().After(l.At) { // it was used since it was looked at
			l.kept = true
			return
		}
		if err = os.Rename(path, aside); err == nil && filepath.Ext(path) == ".jsonl" {
			_ = os.Remove(strings.TrimSuffix(path, ".jsonl") + ".lock") // nobody holds it, for no task uses the session
		}
	})
	if l.kept || err != nil {
		return false, err
	}
	root, err := os.OpenRoot(filepath.Dir(aside) + "/")
	if err != nil {
		return true, err
	}
	return true, errors.Join(rundir.RemoveTree(root, filepath.Base(aside)), root.Close())
}

// The environment of the call that submitted a task is kept outside of the ledger, once for all
// tasks that have the same: env/<digest>. The task's record has the digest.

func (s *Store) environmentPath(digest string) string {
	return filepath.Join(s.Config.StateDir, "env", digest)
}

// KeepEnvironment makes a captured environment durable, where it is not, and returns its digest; "" for none.
func (s *Store) KeepEnvironment(env []string) (digest string, err error) {
	data, digest := task.EncodeEnvironment(env)
	if digest == "" {
		return "", nil
	}
	if old, err := durable.ReadFile(durable.OS, s.environmentPath(digest)); err == nil && bytes.Equal(old, data) && touch(s.environmentPath(digest)) == nil {
		return digest, nil
	}
	if err = durable.MkdirAll(durable.OS, s.environmentPath("")); err == nil {
		err = durable.WriteFile(durable.OS, s.environmentPath(digest), data)
	}
	return digest, err
}

// touch notes that a file is used, by the clock of the files.
func touch(path string) error { return os.Chtimes(path, time.Time{}, time.Now()) }

// Environment returns the environment with that digest, KEY=VALUE. ok is false if it is lost:
// its file is not there, or was changed. Without a digest it is nil.
func (s *Store) Environment(digest string) (env []string, ok bool) {
	if !task.IsEnvironmentDigest(digest) {
		return nil, digest == ""
	}
	data, err := durable.ReadFile(durable.OS, s.environmentPath(digest))
	if err != nil {
		return nil, false
	}
	_ = touch(s.environmentPath(digest)) // else it is removed sooner
	return task.DecodeEnvironment(data, digest)
}

// OpenEnvironments returns the digests of environments of an agent's open tasks; "": of any agent's.
func (s *Store) OpenEnvironments(agent string) map[string]bool {
	digests := map[string]bool{}
	for _, id := range Read(s, (*fold.State).OpenIDs) {
		if t, err := s.Peek(id); err == nil && (agent == "" || t.Agent == agent) {
			digests[t.Environment] = true
		}
	}
	return digests
}
