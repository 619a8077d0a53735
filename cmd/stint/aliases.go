package main

import "github.com/spf13/cobra"

// tasksCommand gives the names that other tools and schedulers use.
func (a *app) tasksCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "tasks",
		Short:   "the same as ls, show, retry and cancel",
		Example: "  stint tasks ls\n  stint tasks get 2b4f6c8e\n  stint tasks requeue 2b4f6c8e",
	}
	get, requeue := a.showCommand(), a.retryCommand()
	get.Use = "get [OPTIONS] ID"
	requeue.Use = "requeue [OPTIONS] ID..."
	c.AddCommand(a.lsCommand(), get, requeue, a.cancelCommand())
	return c
}
