package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
)

const verifyHelp = `Run the verify command of a task now, by itself: in the task's directory, with its
time limit, and nothing of it lives on. Its output goes to stdout, of more than
8 MiB the first and the last lines. How it ended is recorded with the task, whose
status stays as it is; if it waits for a round of its verify loop, and passes now, no
round follows. Nothing else is started in the task's lane meanwhile; Ctrl-C ends the
command.

Exit codes: 0 passed, 8 not passed, 5 a run is at work in that lane or max_workers
commands run by themselves already, 2 the task has no verify command or no directory,
1 it was archived, is held because an agent asked for it, or could not be started.`

func (a *app) verifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "verify [OPTIONS] ID",
		Short:   "run the verify command of a task again",
		Long:    verifyHelp,
		Example: "  stint verify 2b4f6c8e\n  stint verify @last",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			var res task.CheckResult
			err := a.call(ctx, func(c *client.Client) (err error) { res, err = c.Verify(ctx, args[0]); return err })
			switch {
			case isDetached(ctx):
				return &cliError{code: exitInterrupted, message: "interrupted; the verify command was ended"}
			case err != nil:
				return err
			}
			a.tellConfig(ctx)
			if asJSON {
				err = printJSON(a.stdout, res)
			} else {
				err = a.copyCheck(&res)
			}
			if err != nil || res.Passed {
				return err
			}
			return &cliError{code: exitVerify, message: fmt.Sprintf("%s, after %s", res.Error, res.Duration)}
		},
	}
	jsonFlag(c, &asJSON)
	c.ValidArgsFunction = a.completeIDs
	return c
}

// copyCheck prints what a verify command has printed: what its file has, if that is
// all, or else head and tail.
func (a *app) copyCheck(res *task.CheckResult) error {
	if res.Cut {
		return printText(a.stdout, res.Output)
	}
	f, err := rundir.OpenOutput(res.RunDir, "stdout")
	if err != nil {
		return printText(a.stdout, res.Output)
	}
	defer func() { _ = f.Close() }() // it was only read
	out, flush := terminalSafe(a.stdout)
	if _, err := io.Copy(out, f); err != nil {
		return err
	}
	return flush()
}
