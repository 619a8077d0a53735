package main

import (
	"os"

	"github.com/spf13/cobra"

	"stint/coordinator"
)

// ownRun gives the run that this command is part of; "" if no agent has started it.
// A master looks by itself, too.
func ownRun() string { return os.Getenv("STINT_RUN_ID") }

// noRun makes a command one that no run may use: it changes the state directory also
// where no master looks.
func noRun(build func(*app) *cobra.Command) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		c := build(a)
		do := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			if ownRun() != "" {
				return coordinator.ErrFromRun
			}
			return do(c, args)
		}
		return c
	}
}
