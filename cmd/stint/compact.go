package main

import (
	"cmp"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// compactOptions are the options of `stint compact-tasks` and `stint clean`.
type compactOptions struct {
	clean, files bool // stint clean, and that with --files
	failed       bool // also failed and dead tasks
	olderThan    string
	dryRun       bool
}

func (a *app) compactCommand() *cobra.Command {
	o := &compactOptions{failed: true}
	return a.compacting("compact-tasks [OPTIONS]", "merge the records of each task, and archive old tasks", o, "compact_older_than")
}

func (a *app) cleanCommand() *cobra.Command {
	o := &compactOptions{clean: true}
	c := a.compacting("clean [OPTIONS]", "move tasks that are done or canceled to the archive", o, "all that have ended; with --files: retention")
	c.Flags().BoolVar(&o.failed, "failed", false, "also failed and dead tasks")
	c.Flags().BoolVar(&o.files, "files", false, "remove files of ended tasks instead")
	exclusive(c, "failed", "files")
	return c
}

// compacting returns a command that runs compact.
func (a *app) compacting(use, short string, o *compactOptions, text string) *cobra.Command {
	c := command(use, short, cobra.NoArgs, func(c *cobra.Command, _ []string) error { return a.compact(c, o) })
	c.Flags().StringVar(&o.olderThan, "older-than", "", "archive tasks that ended longer ago than this `duration`, such as 30d or 12h (default: "+text+")")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	return a.withJSON(c)
}

func (a *app) compact(c *cobra.Command, o *compactOptions) error {
	cfg, err := a.base()
	if err != nil {
		return err
	}
	olderThan := cfg.CompactOlderThan
	switch {
	case c.Flags().Changed("older-than"):
		if olderThan, err = parseDuration(o.olderThan); err != nil {
			return usage(c.CommandPath()+" --help", "--older-than: %v", err)
		}
	case o.files:
		olderThan = cmp.Or(cfg.Retention, math.MaxInt64)
	case o.clean:
		olderThan = 0
	}
	ctx := c.Context()
	if o.files {
		pruned, err := ask(ctx, a.callOrOpen, func(cl *client.Client) (task.Pruned, error) { return cl.Prune(ctx, olderThan, o.dryRun) })
		if err != nil {
			return err
		}
		text := "removed "
		if o.dryRun {
			text = ""
			for _, l := range pruned.Removed {
				text += fmt.Sprintf("%s  %8d KiB  %s\n", localTime(l.At), l.Size>>10, l.Path)
			}
			text += "would remove "
		}
		return a.print(pruned, text+fmt.Sprintf("%s, %d KiB; %d KiB left", count(len(pruned.Removed), "place"), pruned.Bytes>>10, pruned.Left>>10))
	}
	r, err := ask(ctx, a.callOrOpen, func(cl *client.Client) (wire.Compacted, error) {
		return cl.Compact(ctx, wire.CompactBody{OlderThan: olderThan.String(), DryRun: o.dryRun, KeepFailed: !o.failed, KeepJobs: o.clean})
	})
	if err != nil {
		return err
	}
	text := compactText(&r, o)
	if j := r.Jobs; j != nil {
		text = fmt.Sprintf("%s\njobs.md:  %d bytes of journal before, %d after; %s left, %d archived", text, j.Before, j.After, count(j.Merged, "record"), j.Archived)
	}
	return a.print(r, text)
}

func compactText(r *wire.Compacted, o *compactOptions) string {
	switch {
	case r.Archive == "" && !o.failed:
		return "nothing to archive; failed and dead tasks stay unless you use --failed"
	case r.Archive == "":
		return fmt.Sprintf("nothing to compact: %s in %d bytes", count(r.Merged, "record"), r.Before)
	}
	if o.clean {
		return map[bool]string{false: "archived ", true: "would archive "}[o.dryRun] + count(r.Archived, "task")
	}
	return map[bool]string{true: "this would be done:\n"}[o.dryRun] + fmt.Sprintf("journal:  %d bytes before, %d after\nmerged:   %s left\narchived: %s\nfile:     archive/%s",
		r.Before, r.After, count(r.Merged, "record"), count(r.Archived, "task"), r.Archive)
}
