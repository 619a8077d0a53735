package main

import (
	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

func (a *app) moveCommand() *cobra.Command {
	var to task.Place
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:   "move [OPTIONS] ID --first | --before ID",
		Short: "change a queued task's place in its session or directory",
		Example: `  stint move 2b4f6c8e --first
  stint move 2b4f6c8e --before 91c0d3aa
  stint session queue web`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !to.First && to.Before == "" {
				return usage("stint move "+args[0]+" --first, or --before ID", "stint move does not say where to")
			}
			var view wire.TaskView
			err := a.call(c.Context(), func(cl *client.Client) (err error) { view, err = cl.Move(c.Context(), args[0], to); return err })
			if err != nil {
				return err
			}
			return a.printEnd(&waitOptions{json: asJSON, quiet: quiet}, &view)
		},
	}
	c.Flags().BoolVar(&to.First, "first", false, "before all others that wait there")
	c.Flags().StringVar(&to.Before, "before", "", "before the task with this `id`")
	jsonFlag(c, &asJSON)
	quietFlag(c, &quiet)
	exclusive(c, "first", "before")
	c.ValidArgsFunction = a.completeQueued
	if err := c.RegisterFlagCompletionFunc("before", a.completeQueued); err != nil {
		panic(err) // the option does not exist: a mistake of ours
	}
	return c
}
