package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

func (a *app) demoCommand() *cobra.Command {
	return command("demo", "show in ten seconds what stint does, in a temporary directory", cobra.NoArgs, func(c *cobra.Command, _ []string) (err error) {
		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		defer cancel()
		base, err := os.MkdirTemp("", "stint-demo-")
		if err != nil {
			return err
		}
		dir, config := filepath.Join(base, "state"), filepath.Join(base, "config.toml")
		d := &demonstration{
			app:       &app{stdin: a.stdin, stdout: a.stdout, stderr: a.stderr, warned: true}, // the temporary directory is meant
			workspace: filepath.Join(base, "workspace"), start: time.Now(),
		}
		for _, kv := range os.Environ() { // neither this process, nor the commands and the master, are to have any of the user's settings
			if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "STINT_") {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}
		err = errors.Join(
			err, os.Mkdir(dir, durable.DirMode), os.Mkdir(d.workspace, durable.DirMode),
			os.WriteFile(config, []byte("agent = \"demo\"\ngrace = \"1s\"\nidle_exit = \"1m\"\n"), durable.FileMode),
			os.Setenv("STINT_STATE_DIR", dir), os.Setenv("STINT_CONFIG", config),
		)
		if err != nil {
			return err
		}
		defer func() {
			end, cancel := context.WithTimeout(context.Background(), masterWait)
			defer cancel()
			err = errors.Join(err, d.stopMaster(end))
		}()
		d.printf("Everything happens in %s; the agent is the built-in one.\n", base)
		d.printf("1. Three sessions run side by side; each task works for a second.")
		began, wait := time.Now(), []string{"wait"}
		for _, session := range []string{"web", "api", "docs"} {
			wait = append(wait, d.run(ctx, "task", "-d", "--session", session, "Look at the "+session+" folder. demo:sleep=1s"))
		}
		d.run(ctx, wait...)
		d.printf("   All three were done after %.1f s.\n", time.Since(began).Seconds())
		d.printf("2. The next task of the session web resumes the agent's own session.")
		d.run(ctx, "task", "--session", "web", "And what did I ask you before?")
		d.printf("   The agent knows what it was asked before.\n")
		d.printf("3. The master is killed with SIGKILL while a task runs. The next command starts another one.")
		id := d.run(ctx, "task", "-d", "--session", "api", "Work for a moment. demo:sleep=1s")
		d.kill(ctx, id)
		d.run(ctx, "wait", id)
		d.run(ctx, "logs", id)
		d.printf("   It was run again, in the session that the agent had begun.\n")
		d.printf("Done in %.1f s. What is left to look at:", time.Since(d.start).Seconds())
		d.printf("   %s    every step, in Markdown", filepath.Join(dir, "tasks.md"))
		d.printf("   %s        what the agent was sent and wrote", filepath.Join(dir, "runs"))
		d.printf("   stint --state-dir %s ls", dir)
		d.printf("Remove it with: rm -r %s", base)
		return d.err
	})
}

// A demonstration runs commands. It does and prints nothing more once something has gone wrong.
type demonstration struct {
	*app
	workspace string
	start     time.Time
	err       error
}

func (d *demonstration) printf(format string, args ...any) {
	if d.err != nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	if width := terminalWidth(d.stdout); width > 0 && !strings.HasPrefix(text, " ") { // a command stays in one line
		text = strings.Join(wrap(text, width), "\n")
	}
	_, _ = fmt.Fprintln(d.stdout, text) // without anyone to see it, there is nothing to show
}

// run prints a command, runs it in the workspace, and prints and returns what that prints.
func (d *demonstration) run(ctx context.Context, args ...string) string {
	d.printf("   $ stint %s", strings.Join(mapped(args, func(word *string) string { return state.ShellQuote(*word) }), " "))
	self, err := hold.SelfPath()
	if d.err = cmp.Or(d.err, err); d.err != nil {
		return ""
	}
	var said strings.Builder
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0], cmd.Dir, cmd.Stderr = "stint", d.workspace, &said
	out, err := cmd.Output()
	if err != nil {
		d.err = fmt.Errorf("stint %s: %w: %s", args[0], cmp.Or(context.Cause(ctx), err), oneLine(strings.TrimSpace(said.String())))
	}
	text := strings.TrimSpace(string(out))
	d.printf("   %s", strings.ReplaceAll(escapeText(text), "\n", "\n   "))
	return text
}

// kill kills the master as soon as the agent works at a task and its session is known.
func (d *demonstration) kill(ctx context.Context, id string) {
	for works := false; d.err == nil && !works; d.err = cmp.Or(d.err, task.Sleep(ctx, masterPoll/5)) {
		view, err := d.task(ctx, id)
		if works = view.AgentSession != "" && view.LastOutput.After(d.start); err == nil && view.Status.Terminal() {
			err = errors.New("the task ended before its master could be killed; the machine is too busy for the demo")
		}
		d.err = err
	}
	if d.err != nil {
		return
	}
	h, err := d.health(ctx)
	if err == nil {
		err = syscall.Kill(h.PID, syscall.SIGKILL)
	}
	if err != nil {
		d.err = fmt.Errorf("cannot kill the demo's master: %w", err)
	}
	d.printf("   $ kill -9 %d", h.PID)
}
