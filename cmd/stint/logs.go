package main

import "github.com/spf13/cobra"

func (a *app) logsCommand() *cobra.Command {
	var follow, stderr bool
	c := &cobra.Command{
		Use:   "logs [OPTIONS] ID",
		Short: "print what a task's last run wrote",
		Example: `  stint logs @last
  stint logs -f 2b4f6c8e            # until the task has ended
  stint logs --stderr 2b4f6c8e`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			stream := "stdout"
			if stderr {
				stream = "stderr"
			}
			err := a.copyLog(c.Context(), args[0], stream, follow)
			if isDetached(c.Context()) {
				return &cliError{code: exitInterrupted}
			}
			return err
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the task has ended")
	c.Flags().BoolVar(&stderr, "stderr", false, "what the agent wrote to stderr")
	c.ValidArgsFunction = a.completeIDs
	return c
}
