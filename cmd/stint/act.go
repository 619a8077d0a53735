package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
)

func (a *app) whyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "why ID",
		Short:   "say in one sentence why a task is not running, or how it ended",
		Example: `  stint why 2b4f6c8e`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var why string
			err := a.call(c.Context(), func(cl *client.Client) (err error) { why, err = cl.Why(c.Context(), args[0]); return err })
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.stdout, map[string]string{"why": why})
			}
			return printText(a.stdout, why)
		},
	}
	jsonFlag(c, &asJSON)
	c.ValidArgsFunction = a.completeIDs
	return c
}

func (a *app) cancelCommand() *cobra.Command {
	return a.actCommand("cancel", "end tasks that are queued or running", (*client.Client).Cancel)
}

func (a *app) retryCommand() *cobra.Command {
	c := a.actCommand("retry", "queue tasks that have ended again", a.startsTasks(a.retryTask))
	c.Long = `Queue tasks again that have ended, with all their tries. A task that waits for its
time (--at, --delay) or for its next try starts as soon as it can; a draft is queued.
A hold of the account is lifted: who retries has mended what it was for.`
	return c
}

func (a *app) holdCommand() *cobra.Command {
	c := a.actCommand("hold", "let queued tasks wait until they are released", (*client.Client).Hold)
	c.ValidArgsFunction = a.completeQueued
	return c
}

func (a *app) releaseCommand() *cobra.Command {
	c := a.actCommand("release", "let held tasks run", a.startsTasks((*client.Client).Release))
	c.ValidArgsFunction = a.completeQueued
	return c
}

// startsTasks returns an act that lets a task run, with what the user should know then.
func (a *app) startsTasks(act func(*client.Client, context.Context, string) (wire.TaskView, error)) func(*client.Client, context.Context, string) (wire.TaskView, error) {
	return func(c *client.Client, ctx context.Context, ref string) (wire.TaskView, error) {
		view, err := act(c, ctx, ref)
		if err == nil {
			a.tellConfig(ctx)
		}
		return view, err
	}
}

// actCommand builds a command that does one thing to each of several tasks.
func (a *app) actCommand(name, short string, act func(*client.Client, context.Context, string) (wire.TaskView, error)) *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:     name + " [OPTIONS] ID...",
		Short:   short,
		Example: "  stint " + name + " 2b4f6c8e\n  stint " + name + " @last",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, refs []string) error {
			var errs []error
			for _, ref := range refs {
				var view wire.TaskView
				err := a.call(c.Context(), func(cl *client.Client) (err error) { view, err = act(cl, c.Context(), ref); return err })
				if err == nil {
					err = a.printEnd(&waitOptions{json: asJSON, quiet: quiet}, &view)
				} else if len(refs) > 1 {
					printError(a.stderr, fmt.Errorf("%s: %w", ref, err))
				}
				errs = append(errs, err)
			}
			return lastWord(firstError(errs), len(refs))
		},
	}
	jsonFlag(c, &asJSON)
	quietFlag(c, &quiet)
	c.ValidArgsFunction = a.completeIDs
	return c
}

// lastWord returns the error of several tasks; each of them was printed already.
func lastWord(err error, tasks int) error {
	if err == nil || tasks == 1 {
		return err
	}
	return &cliError{code: exitCode(err)}
}
