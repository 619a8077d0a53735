package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stint/coordinator/checkout"
)

// Clean drops the worktrees without work in the last olderThan that have nothing which has not landed, and returns their names.
// Those stay in which somebody is at work, or that have one of the directories inUse. git returns what runs commands there.
func (s *Trees) Clean(ctx context.Context, git func(ctx context.Context, dir string) checkout.Shell, now time.Time, olderThan time.Duration, inUse []string) (removed []string, err error) {
	all, err := s.List()
	for _, t := range all {
		fi, wrong := os.Stat(t.file(".json")) // each run writes it
		isUsed := func(dir string) bool {
			return dir == t.Path || strings.HasPrefix(dir, t.Path+string(filepath.Separator))
		}
		if wrong != nil || now.Sub(fi.ModTime()) < olderThan || slices.ContainsFunc(inUse, isUsed) {
			continue
		}
		unlock, wrong := t.Lock(ctx, 0)
		if wrong != nil {
			continue
		}
		run := git(ctx, t.Root)
		w, wrong := t.Look(run)
		if wrong == nil && (w.Tip != "" || !t.Ready) && w.Commits == 0 && (w.State == Landed || w.State == Clean || w.State == Missing) {
			if wrong = t.Drop(run, now, false); wrong == nil {
				removed = append(removed, t.Name)
			}
		}
		err = errors.Join(err, wrong, unlock())
	}
	return removed, err
}
