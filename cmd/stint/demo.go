package main

import (
	"cmp"
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
		d.sideBySide(ctx)
		d.followUp(ctx)
		d.killed(ctx)
		d.printf("Done in %.1f s. What is left to look at:", time.Since(d.start).Seconds())
		d.printf("   %s    every step, in Markdown", filepath.Join(dir, "tasks.md"))
		d.printf("   %s        what the agent was sent and wrote", filepath.Join(dir, "runs"))
		d.printf("   stint --state-dir %s ls", dir)
		d.printf("Remove it with: rm -r %s", base)
		return d.err
	})
}

// A demonstration does and prints nothing more once something has gone wrong.
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

// do returns the task that f returns.
func (d *demonstration) do(f func() (wire.TaskView, error)) (view wire.TaskView) {
	if d.err == nil {
		view, d.err = f()
	}
	return view
}

// add queues a task and returns its id.
func (d *demonstration) add(ctx context.Context, session, prompt string) string {
	spec := task.TaskSpec{SessionKey: session, Workspace: d.workspace, Prompt: prompt}
	d.printf("   $ stint task -d --session %s %q", session, prompt)
	return d.do(func() (wire.TaskView, error) {
		return ask(ctx, d.call, func(c *client.Client) (wire.TaskView, error) { return c.Submit(ctx, spec) })
	}).ID
}

func (d *demonstration) await(ctx context.Context, id string) wire.TaskView {
	return d.do(func() (wire.TaskView, error) {
		view, err := d.wait(ctx, id)
		return view, cmp.Or(err, taskEnd(&view))
	})
}

// sideBySide shows that sessions do not wait for each other.
func (d *demonstration) sideBySide(ctx context.Context) {
	d.printf("1. Three sessions run side by side; each task works for a second.")
	began := time.Now()
	var ids []string
	for _, session := range []string{"web", "api", "docs"} {
		ids = append(ids, d.add(ctx, session, "Look at the "+session+" folder. demo:sleep=1s"))
	}
	for _, id := range ids {
		d.await(ctx, id)
	}
	d.printf("   All three were done after %.1f s.\n", time.Since(began).Seconds())
}

// followUp shows that a session goes on where it was.
func (d *demonstration) followUp(ctx context.Context) {
	d.printf("2. The next task of the session web resumes the agent's own session.")
	view := d.await(ctx, d.add(ctx, "web", "And what did I ask you before?"))
	d.printf("   %s", strings.ReplaceAll(escapeText(strings.TrimSpace(view.Result)), "\n", "\n   "))
	d.printf("   It is the agent's session %s.\n", view.AgentSession)
}

// killed shows that a run survives its master.
func (d *demonstration) killed(ctx context.Context) {
	d.printf("3. The master is killed with SIGKILL while a task runs.")
	id := d.add(ctx, "api", "Work for a moment. demo:sleep=1s")
	running := d.do(func() (wire.TaskView, error) { return d.untilRunning(ctx, id) })
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
	d.printf("   $ stint wait %s          (starts a new master)", shortID(id))
	after := d.await(ctx, id)
	same := map[bool]string{true: "the same one", false: "another one"}[after.AgentSession == running.AgentSession]
	d.printf("   The task is %s: run again with retries %d, in the agent's session %s (%s).\n", after.Status, after.Retries, after.AgentSession, same)
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
