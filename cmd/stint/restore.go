package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/statedir"
	"stint/state"
)

func (a *app) restoreCommand() *cobra.Command {
	var dryRun, yes bool
	c := command("restore [OPTIONS] FILE", "go back to an earlier copy of tasks.md", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		file, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		dir, err := a.ownState()
		if err != nil {
			return err
		}
		var plan *statedir.RestorePlan
		r, err := interruptibly(ctx, interrupted, func() (r *statedir.Restoration, err error) {
			if plan, err = statedir.ReadRestore(dir, file); err == nil {
				r, err = plan.Compare(dir)
			}
			return r, err
		})
		if err != nil {
			return err
		}
		if len(r.Findings) > 0 {
			a.showFindings(r.Findings)
			return &cliError{
				code: exitFailure, message: fmt.Sprintf("%s has %s; nothing was restored", r.From, count(len(r.Findings), "finding")),
				try: "fix it, or leave those sections out with: stint fsck --repair --output NEW " + r.From + ", then stint restore NEW",
			}
		}
		if dryRun && a.json {
			return printJSON(a.stdout, r)
		}
		if dryRun {
			var rows [][]string
			add := func(what string, tasks []state.Task) {
				for _, t := range tasks {
					rows = append(rows, []string{what, t.ID, string(t.Status), t.Title})
				}
			}
			add("gone", r.Gone)
			add("changed", r.Changed)
			add("back", r.Back)
			if err := writeTable(a.stdout, escapeRows(rows), nil); err != nil {
				return err
			}
			a.hint("stint: %s\n", summary(r))
			return nil
		}
		switch h, err := a.health(ctx); {
		case err == nil && !h.Background:
			return &cliError{
				code: exitBusy, message: fmt.Sprintf("a master is running (pid %d), and it writes the ledger", h.PID),
				try: "stint serve --stop, then stint restore " + r.From,
			}
		case errors.Is(err, guard.ErrForeign):
			return err
		case errors.Is(err, client.ErrNoMaster) && len(r.Running) > 0:
			return r.RunningError() // nobody looks after the task that runs
		}
		agreed := ""
		confirm := func(r *statedir.Restoration) error { // once more if the ledger has changed since
			text := summary(r)
			if yes || text == agreed {
				return nil
			}
			agreed = text
			if !isTTY(a.stdin) {
				return usage("stint restore --yes ..., or first: stint restore --dry-run ...", "%s, and there is no terminal to ask on", text)
			}
			if answer, _ := a.ask(ctx, text+"; restore it (y), or not (n)?", "yn"); answer != 'y' {
				return &cliError{code: max(exitFailure, exitCode(context.Cause(ctx))), message: "nothing was restored"}
			}
			return nil
		}
		if err := confirm(r); err != nil {
			return err
		}
		base, err := a.base()
		if err != nil {
			return err
		}
		m := a.offlineMaster(dir, base)
		config := m.coordinatorConfig(ctx)
		if err := m.claim(ctx, func() (err error) {
			r, err = statedir.Restore(config, plan, confirm)
			return err
		}); err != nil {
			return err
		}
		if a.json {
			return printJSON(a.stdout, r)
		}
		a.hint("stint: %s is the ledger now, with %s; what it was before is kept\n  undo: stint restore %s\n", r.From, count(r.Tasks, strings.TrimSuffix(r.File, "s.md")), filepath.Join(r.Backup, r.File))
		return nil
	})
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would change, and change nothing")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return a.withJSON(c)
}

// summary returns in a sentence what a restore changes.
func summary(r *statedir.Restoration) string {
	parts := []string{
		count(len(r.Gone), strings.TrimSuffix(r.File, "s.md")) + " newer than " + filepath.Base(r.From) + " will be gone",
		fmt.Sprintf("%d will be as they were", len(r.Changed)),
	}
	if n := len(r.Back); n > 0 {
		parts = append(parts, fmt.Sprintf("%d will be there again", n))
	}
	return strings.Join(parts, ", ")
}
