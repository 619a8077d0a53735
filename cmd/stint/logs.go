package main

import (
	"io"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
)

func (a *app) logsCommand() *cobra.Command {
	var follow, stderr bool
	var run string
	c := &cobra.Command{
		Use:   "logs [OPTIONS] ID",
		Short: "print what a task's agent and its verify command wrote, in their order",
		Example: `  stint logs @last
  stint logs -f 2b4f6c8e            # until the task has ended
  stint logs --stderr 2b4f6c8e
  stint logs --run 5d1c 2b4f6c8e    # of one run; stint show lists the verify runs`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			stream := "stdout"
			if stderr {
				stream = "stderr"
			}
			if follow && run != "" {
				return usage("stint logs --help", "--follow and --run exclude each other")
			}
			err := a.copyLog(c.Context(), args[0], func(cl *client.Client, w io.Writer) error {
				if run != "" {
					return cl.RunLogs(c.Context(), args[0], run, stream, w)
				}
				return cl.Logs(c.Context(), args[0], stream, follow, w)
			})
			if isDetached(c.Context()) {
				return &cliError{code: exitInterrupted}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the task has ended")
	c.Flags().BoolVar(&stderr, "stderr", false, "what the agent wrote to stderr")
	c.Flags().StringVar(&run, "run", "", "only this `run`, by id or number of the agent's from 1; else all of the last attempt")
	c.ValidArgsFunction = a.completeIDs
	return c
}
