package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) verifyCommand() *cobra.Command {
	return a.withJSON(command("verify [OPTIONS] ID", "run the verify command of a task again", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		view, err := a.task(c.Context(), args[0])
		switch {
		case err != nil:
			return err
		case !task.HasVerify(&view.Task) || view.Workspace == "":
			return usage("stint show "+shortID(view.ID), "task %s has no verify command, or no directory to run it in", shortID(view.ID))
		case view.Hold && view.Trigger == state.ByAgent:
			return &cliError{code: exitFailure, message: fmt.Sprintf("an agent has queued task %s, with its command: %s", shortID(view.ID), oneLine(view.VerifyCommand)), try: "stint release " + shortID(view.ID) + ", if that is what you want"}
		}
		var text bytes.Buffer
		output := a.stdout
		if a.json {
			output = &text
		}
		code, err := a.runVerify(c.Context(), &view, output)
		if a.json && err == nil {
			err = printJSON(a.stdout, map[string]any{"taskId": view.ID, "verifyCommand": view.VerifyCommand, "passed": code == 0, "exitCode": code, "output": text.String()})
		}
		if err == nil && code != 0 {
			err = &cliError{code: exitVerify, message: fmt.Sprintf("the verify command of task %s ended with exit code %d", shortID(view.ID), code)}
		}
		return err
	}, a.completeIDs()))
}

// runVerify runs a task's verify command in its directory, in the environment of this command, for as long as the task's may run. An error says
// that it did not end by itself.
func (a *app) runVerify(ctx context.Context, view *wire.TaskView, output io.Writer) (code int, err error) {
	cfg, err := a.base()
	if err != nil {
		return 0, err
	}
	limit := cfg.forWorkspace(view.Workspace).VerifyTimeout
	if d, err := time.ParseDuration(view.VerifyTimeout); err == nil {
		limit = d
	}
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, &cliError{code: exitVerify, message: fmt.Sprintf("the verify command ran longer than its limit of %s", limit)})
		defer stop()
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", view.VerifyCommand)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that nothing is left of it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out := terminalSafe(output) // it may print what an agent has written
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = view.Workspace, out, out, time.Second
	if err = cmd.Run(); cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left in the background
	}
	if wrong := out.flush(); wrong != nil {
		return 0, wrong
	}
	if cmd.ProcessState == nil || ctx.Err() != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	return cmd.ProcessState.ExitCode(), nil
}
