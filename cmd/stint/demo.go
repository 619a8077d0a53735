package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger/durable"
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
		d := &demonstration{workspace: filepath.Join(base, "workspace"), start: time.Now()}
		err = errors.Join(
			os.Mkdir(dir, durable.DirMode), os.Mkdir(d.workspace, durable.DirMode),
			os.WriteFile(config, []byte("agent = \"demo\"\ngrace = \"1s\"\nidle_exit = \"1m\"\n"), durable.FileMode),
		)
		for _, kv := range os.Environ() { // this process, and the master that it will start, are to have none of the user's settings
			if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "STINT_") {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}
		if err != nil {
			return err
		}
		d.app = &app{
			stdin: a.stdin, stdout: a.stdout, stderr: a.stderr, stateOption: dir, configOption: config,
			warned: true, // it is meant to be in the temporary directory
		}
		defer func() {
			end, cancel := context.WithTimeout(context.Background(), masterWait)
			defer cancel()
			err = errors.Join(err, d.stopMaster(end))
		}()
		d.printf("Everything happens in %s; the agent is the built-in one.\n", base)
		for _, step := range []func(context.Context) error{d.sideBySide, d.followUp, d.killed} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		d.printf("Done in %.1f s. What is left to look at:", time.Since(d.start).Seconds())
		d.printf("   %s    every step, in Markdown", filepath.Join(dir, "tasks.md"))
		d.printf("   %s        what the agent was sent and wrote", filepath.Join(dir, "runs"))
		d.printf("   stint --state-dir %s ls", dir)
		d.printf("Remove it with: rm -r %s", base)
		return nil
	})
}

type demonstration struct {
	*app
	workspace string
	start     time.Time
}

func (d *demonstration) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if width := terminalWidth(d.stdout); width > 0 && !strings.HasPrefix(text, " ") { // a command stays in one line
		text = strings.Join(wrap(text, width), "\n")
	}
	_, _ = fmt.Fprintln(d.stdout, text) // without anyone to see it, there is nothing to show
}

func (d *demonstration) add(ctx context.Context, session, prompt string) (wire.TaskView, error) {
	spec := task.TaskSpec{SessionKey: session, Workspace: d.workspace, Prompt: prompt}
	d.printf("   $ stint task -d --session %s %q", session, prompt)
	return ask(ctx, d.call, func(c *client.Client) (wire.TaskView, error) { return c.Submit(ctx, spec) })
}

func (d *demonstration) await(ctx context.Context, id string) (wire.TaskView, error) {
	view, err := d.wait(ctx, id)
	if err == nil {
		err = taskEnd(&view)
	}
	return view, err
}

// sideBySide shows that sessions do not wait for each other.
func (d *demonstration) sideBySide(ctx context.Context) error {
	d.printf("1. Three sessions run side by side; each task works for a second.")
	began := time.Now()
	var ids []string
	for _, session := range []string{"web", "api", "docs"} {
		view, err := d.add(ctx, session, "Look at the "+session+" folder. demo:sleep=1s")
		if err != nil {
			return err
		}
		ids = append(ids, view.ID)
	}
	for _, id := range ids {
		if _, err := d.await(ctx, id); err != nil {
			return err
		}
	}
	d.printf("   All three were done after %.1f s.\n", time.Since(began).Seconds())
	return nil
}

// followUp shows that a session goes on where it was.
func (d *demonstration) followUp(ctx context.Context) error {
	d.printf("2. The next task of the session web resumes the agent's own session.")
	view, err := d.add(ctx, "web", "And what did I ask you before?")
	if err == nil {
		view, err = d.await(ctx, view.ID)
	}
	if err != nil {
		return err
	}
	d.printf("   %s", strings.ReplaceAll(escapeText(strings.TrimSpace(view.Result)), "\n", "\n   "))
	d.printf("   It is the agent's session %s.\n", view.AgentSession)
	return nil
}

// killed shows that a run survives its master.
func (d *demonstration) killed(ctx context.Context) error {
	d.printf("3. The master is killed with SIGKILL while a task runs.")
	view, err := d.add(ctx, "api", "Work for a moment. demo:sleep=1s")
	if err != nil {
		return err
	}
	running, err := d.untilRunning(ctx, view.ID)
	if err != nil {
		return err
	}
	h, err := d.health(ctx)
	if err == nil {
		err = syscall.Kill(h.PID, syscall.SIGKILL)
	}
	if err != nil {
		return fmt.Errorf("cannot kill the demo's master: %w", err)
	}
	d.printf("   $ kill -9 %d", h.PID)
	d.printf("   $ stint wait %s          (starts a new master)", shortID(view.ID))
	after, err := d.await(ctx, view.ID)
	if err != nil {
		return err
	}
	same := map[bool]string{true: "the same one", false: "another one"}[after.AgentSession == running.AgentSession]
	d.printf("   The task is %s: run again with retries %d, in the agent's session %s (%s).\n", after.Status, after.Retries, after.AgentSession, same)
	return nil
}

// untilRunning returns a task once the agent works and its session is known.
func (d *demonstration) untilRunning(ctx context.Context, id string) (wire.TaskView, error) {
	for {
		view, err := d.task(ctx, id)
		switch {
		case err != nil:
			return view, err
		case view.Status.Terminal():
			return view, errors.New("the task ended before its master could be killed; the machine is too busy for the demo")
		case view.AgentSession != "" && view.LastOutput.After(d.start):
			return view, nil
		}
		if err := task.Sleep(ctx, masterPoll/5); err != nil {
			return view, err
		}
	}
}
