package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"stint/coordinator/rundir"
	"stint/state"
)

func (a *app) filesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "files [OPTIONS] ID [PATH]",
		Short: "list the files that were collected after a task, or print one",
		Long: `List the files that --output-spec named and that were collected after a task, with
their sizes. With PATH, print that one on stdout, byte for byte where that is no terminal.`,
		Example: `  stint files @last
  stint files @last out/report.pdf >report.pdf`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 && asJSON {
				return usage("stint files --json ID", "--json is for the list; the file itself is printed as it is")
			}
			if len(args) == 2 {
				return a.printFile(c.Context(), args[0], args[1])
			}
			view, err := a.task(c.Context(), args[0])
			if err != nil {
				return err
			}
			if files := collectedFiles(&view, false); asJSON {
				return printEach(a.stdout, files)
			}
			if len(view.OutputFiles) == 0 {
				a.hint("stint: task %s has no collected files\n", shortID(view.ID))
				return nil
			}
			return printText(a.stdout, fileList(&view))
		},
	}
	jsonFlag(c, &asJSON)
	c.ValidArgsFunction = a.completeIDs
	return c
}

// printFile prints a collected file.
func (a *app) printFile(ctx context.Context, ref, path string) error {
	view, err := a.task(ctx, ref)
	if err != nil {
		return err
	}
	missing := func(why error) error {
		return &cliError{code: exitNotFound, message: fmt.Sprintf("the file %q of task %s cannot be printed", path, shortID(view.ID)), err: why, try: "stint files " + shortID(view.ID)}
	}
	if !slices.ContainsFunc(view.OutputFiles, func(f state.OutputFile) bool { return f.Path == path }) {
		return missing(errors.New("none of that name was collected"))
	}
	if view.RunDir == "" {
		return missing(rundir.ErrNotKept)
	}
	f, _, err := rundir.OpenCollected(view.RunDir, path)
	if err != nil {
		return missing(err)
	}
	defer func() { _ = f.Close() }() // only read from
	out := terminalSafe(a.stdout)
	if _, err = io.Copy(out, f); err == nil {
		err = out.flush()
	}
	return err
}
