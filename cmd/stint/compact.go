package main

import (
	"cmp"
	"fmt"
	"math"
	"net/http"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

var (
	compactCommand = compacting("compact-tasks [OPTIONS]", "merge the records of each task, and archive old tasks", false)
	cleanCommand   = compacting("clean [OPTIONS]", "move tasks that are done or canceled to the archive", true)
)

// compacting returns how to build `stint compact-tasks`, or `stint clean`.
func compacting(use, short string, isClean bool) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		var failed, files, dryRun bool
		var age string
		c := command(use, short, cobra.NoArgs, func(c *cobra.Command, _ []string) error {
			cfg, err := a.base()
			if err != nil {
				return err
			}
			ctx, olderThan := c.Context(), cfg.CompactOlderThan
			switch {
			case c.Flags().Changed("older-than"):
				if olderThan, err = parseDuration(age); err != nil {
					return usage(c.CommandPath()+" --help", "--older-than: %v", err)
				}
			case files:
				olderThan = cmp.Or(cfg.Retention, math.MaxInt64)
			case isClean:
				olderThan = 0
			}
			if files {
				pruned, err := fetch[task.Pruned](ctx, a.callOrOpen, http.MethodPost, "/v1/ledger/prune", wire.PruneBody{OlderThan: olderThan.String(), DryRun: dryRun})
				if err != nil {
					return err
				}
				text := "removed "
				if dryRun {
					text = ""
					for _, l := range pruned.Removed {
						text += fmt.Sprintf("%s  %8d KiB  %s\n", localTime(l.At), l.Size>>10, l.Path)
					}
					text += "would remove "
				}
				return a.print(pruned, text+fmt.Sprintf("%s, %d KiB; %d KiB left", count(len(pruned.Removed), "place"), pruned.Bytes>>10, pruned.Left>>10))
			}
			body := wire.CompactBody{OlderThan: olderThan.String(), DryRun: dryRun, KeepFailed: isClean && !failed, KeepJobs: isClean}
			r, err := fetch[wire.Compacted](ctx, a.callOrOpen, http.MethodPost, "/v1/ledger/compact", body)
			if err != nil {
				return err
			}
			text := map[bool]string{true: "this would be done:\n"}[dryRun] + fmt.Sprintf("journal:  %d bytes before, %d after\nmerged:   %s left\narchived: %s\nfile:     archive/%s",
				r.Before, r.After, count(r.Merged, "record"), count(r.Archived, "task"), r.Archive)
			if r.Archive == "" {
				text = fmt.Sprintf("nothing to compact: %s in %d bytes", count(r.Merged, "record"), r.Before)
			}
			if j := r.Jobs; j != nil {
				text += fmt.Sprintf("\njobs.md:  %d bytes of journal before, %d after; %s left, %d archived", j.Before, j.After, count(j.Merged, "record"), j.Archived)
			}
			return a.print(r, text)
		})
		without := map[bool]string{true: "all that have ended; with --files: retention", false: "compact_older_than"}[isClean]
		c.Flags().StringVar(&age, "older-than", "", "archive tasks that ended longer ago than this `duration`, such as 30d or 12h (default: "+without+")")
		c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
		a.withJSON(c)
		if isClean {
			c.Flags().BoolVar(&failed, "failed", false, "also failed and dead tasks")
			c.Flags().BoolVar(&files, "files", false, "remove files of ended tasks instead")
			exclusive(c, "failed", "files")
		}
		return c
	}
}
