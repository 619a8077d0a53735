package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/checkout"
	"stint/coordinator/task"
	"stint/state"
)

// uncertain says what the changes of an attempt may also be.
const uncertain = "another task ran in this checkout at the time, so some of it may be its work"

func (a *app) diffCommand() *cobra.Command {
	var stat bool
	c := command("diff [OPTIONS] ID|SESSION", "show what a task changed, or the branch of its worktree", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if err := a.treeDiff(c.Context(), args[0], stat); !errors.Is(err, errNoTree) {
			return err
		}
		view, root, err := a.changedTask(c.Context(), args[0])
		if err != nil {
			return err
		}
		if view.Changes.Uncertain {
			a.hint("stint: %s\n", uncertain)
		}
		if view.Changes.Files == 0 {
			a.hint("stint: task %s changed no files\n", shortID(view.ID))
		}
		if a.json {
			return printJSON(a.stdout, struct {
				*state.Changes
				List []state.FileChange `json:"changedFiles"`
			}{view.Changes, append([]state.FileChange{}, view.ChangedFiles...)})
		}
		text, err := runGit(c.Context(), view.Workspace)(checkout.Diff(root, view.Changes.Before, view.Changes.After, stat), "")
		if err != nil {
			return err
		}
		return copySafe(a.stdout, strings.NewReader(text))
	}, a.completeIDs())
	c.Flags().BoolVar(&stat, "stat", false, "only the files, and how many lines of each")
	return a.withJSON(c)
}

func (a *app) undoCommand() *cobra.Command {
	return a.withJSON(command("undo [OPTIONS] ID", "reverse what a task's last attempt changed in its git checkout", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		view, root, err := a.changedTask(ctx, args[0])
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "stint-undo-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		place := &checkout.Place{Root: root, Dir: dir}
		idle := func() error { return a.isIdle(ctx, root, "undone") }
		if err := idle(); err != nil {
			return err
		}
		undone, left, err := place.Undo(runGit(ctx, view.Workspace), view.Changes.Before, view.Changes.After, idle)
		if overlap, ok := errors.AsType[*checkout.OverlapError](err); ok {
			for _, f := range overlap.Files {
				a.hint("stint: %s\n", escapeText(oneLine(f)))
			}
			return &cliError{code: exitFailure, message: fmt.Sprintf("nothing was undone: %s in the way", count(len(overlap.Files), "file")), try: "stint diff " + shortID(view.ID)}
		}
		if err != nil {
			return err
		}
		for _, name := range left {
			a.hint("stint: left as it is: %s\n", escapeText(oneLine(name)))
		}
		if len(undone)+len(left) == 0 {
			a.hint("stint: nothing is left to undo: the files are as they were before task %s\n", shortID(view.ID))
		}
		if a.json {
			return printJSON(a.stdout, map[string][]string{"undone": append([]string{}, undone...), "left": append([]string{}, left...)})
		}
		if len(undone) == 0 {
			return nil
		}
		a.hint("stint: %s changed back\n", count(len(undone), "file"))
		return printText(a.stdout, strings.Join(mapped(undone, func(name *string) string { return oneLine(*name) }), "\n"))
	}, a.completeIDs()))
}

// isIdle returns an error if a task runs in a checkout, or in one around it or in it that is no worktree of a session's: nothing was done then.
func (a *app) isIdle(ctx context.Context, root, done string) error {
	trees, err := a.trees()
	if err != nil {
		return err
	}
	running, err := ask(ctx, a.call, func(cl *client.Client) ([]wire.TaskView, error) {
		return cl.List(ctx, state.Filter{Status: []state.Status{state.Running}})
	})
	if t := find(running, func(t *wire.TaskView) bool {
		_, _, inTree := trees.Origin(t.Workspace)
		return task.IsBelow(root, t.Workspace) || task.IsBelow(t.Workspace, root) && (!inTree || task.IsBelow(root, trees.Dir))
	}); t != nil {
		return &cliError{code: exitBusy, message: fmt.Sprintf("task %s is running in this checkout; nothing was %s", shortID(t.ID), done), try: "stint wait " + shortID(t.ID)}
	}
	return err
}

// changedTask returns a task whose changes are known, and the top of its checkout.
func (a *app) changedTask(ctx context.Context, ref string) (view wire.TaskView, root string, err error) {
	if view, err = a.task(ctx, ref); err != nil {
		return view, "", err
	}
	if root = task.RepositoryRoot(view.Workspace); view.Changes == nil || view.Changes.Before == "" {
		message := fmt.Sprintf("what task %s has changed is not known: its last attempt has not ended, or worked outside a git checkout, or git failed (see master.log)", shortID(view.ID))
		return view, "", &cliError{code: exitFailure, message: message, try: "stint show " + shortID(view.ID)}
	}
	if _, err := os.Stat(view.Workspace); err != nil {
		return view, "", fmt.Errorf("the workspace of task %s cannot be used: %w", shortID(view.ID), err)
	}
	return view, root, nil
}

const gitLimit = 10 * time.Minute // hooks may run tests

// runGit returns what runs commands of package checkout in a directory, each for at most gitLimit.
func runGit(ctx context.Context, dir string) checkout.Shell {
	return func(command, stdin string) (string, error) {
		ctx, stop := context.WithTimeoutCause(ctx, gitLimit, fmt.Errorf("it ran longer than its limit of %s", gitLimit))
		defer stop()
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that nothing is left of it, nor waits for the terminal
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Minute // for what a hook has left with our pipes
		var problem bytes.Buffer
		cmd.Env = append(os.Environ(), "PATH="+task.SafePath(os.Environ(), task.RepositoryRoot(dir)))
		cmd.Dir, cmd.Stdin, cmd.Stderr = dir, strings.NewReader(stdin), &problem
		out, err := cmd.Output()
		if err = cmp.Or(context.Cause(ctx), err); err != nil {
			return "", fmt.Errorf("git: %w: %s", err, strings.TrimSpace(problem.String()))
		}
		return string(out), nil
	}
}

// changesLine returns what an attempt has changed, for people; "" if that is not known.
func changesLine(v *wire.TaskView) string {
	c := v.Changes
	switch {
	case c == nil || c.Before == "":
		return ""
	case c.Files == 0:
		return "none"
	}
	text := count(c.Files, "file")
	if c.Added+c.Removed > 0 {
		text += fmt.Sprintf(", +%d −%d", c.Added, c.Removed)
	}
	if c.Uncertain {
		text += " (" + uncertain + ")"
	}
	return text
}

// branchLine returns what is on the branch of a task's worktree, for people; "" if it has none.
func branchLine(v *wire.TaskView) string {
	if v.Changes == nil || v.Changes.Branch == nil {
		return ""
	}
	b := v.Changes.Branch
	if b.Commits == 0 {
		return fmt.Sprintf("%s at %.12s: nothing that had not landed", b.Name, b.Tip)
	}
	return fmt.Sprintf("%s at %.12s: %s, +%d −%d in %s not landed then", b.Name, b.Tip, count(b.Commits, "commit"), b.Added, b.Removed, count(b.Files, "file"))
}

func changedFiles(v *wire.TaskView) string {
	text := ""
	for _, f := range v.ChangedFiles {
		lines := fmt.Sprintf("+%d −%d", f.Added, f.Removed)
		if f.Binary {
			lines = "binary"
		}
		if f.From != "" {
			f.Path = f.From + " → " + f.Path
		}
		text += fmt.Sprintf("%-8s  %s  %s\n", f.Change, oneLine(f.Path), lines)
	}
	if v.Changes != nil && v.Changes.Files > len(v.ChangedFiles) {
		text += fmt.Sprintf("… and %d more\n", v.Changes.Files-len(v.ChangedFiles))
	}
	return text
}
