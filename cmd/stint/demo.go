package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// demoScript is what the demo does: commands as a user would type them.
//
//go:embed help/demo.sh
var demoScript string

func (a *app) demoCommand() *cobra.Command {
	return command("demo", "show in ten seconds what stint does, in a temporary directory", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		defer cancel()
		base, err := os.MkdirTemp("", "stint-demo-")
		self, wrong := os.Executable()
		if err = cmp.Or(err, wrong); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", demoScript, "sh", base, self)
		// Neither the commands nor the master are to have any of the user's settings.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "STINT_") })
		cmd.Stdout, cmd.Stderr = a.stdout, a.stderr
		cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, masterWait // it ends its master then
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("the demo did not come to its end: %w", cmp.Or(context.Cause(ctx), err))
		}
		return nil
	})
}
