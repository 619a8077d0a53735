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
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/coordinator/worktree"
	"stint/state"
)

// mostConflicts is how many tasks in a row are to resolve the conflicts of a landing.
const mostConflicts = 2

func (a *app) landCommand() *cobra.Command {
	o, undo := worktree.Options{Mode: worktree.Squash}, false
	c := a.withJSON(command("land [OPTIONS] ID|SESSION", "land what is on the branch of a worktree on another branch", cobra.ExactArgs(1), a.withTree(false, func(ctx context.Context, found *foundTree, cfg *Config) error {
		idle := func() error { // what an agent in the checkout does would be mixed with what lands there
			if at, _ := found.run("unset GIT_DIR; git symbolic-ref -q --short HEAD", ""); o.Onto != "" && o.Onto != strings.TrimSpace(at) {
				return nil
			}
			return a.isIdle(ctx, found.Root, "landed")
		}
		if err := idle(); err != nil {
			return err
		}
		if undo {
			r, err := found.Undo(ctx, found.run)
			if err != nil {
				return err
			}
			return a.print(map[string]string{"target": r.Target, "commit": r.Commit}, fmt.Sprintf("%s is back at %s", r.Target, r.Commit[:12]))
		}
		o.Protected = cfg.forWorkspace(found.Path).Protected
		for _, v := range []*wire.TaskView{&found.last, &found.with} { // whole; none, if all were removed
			if v.ID == "" {
				continue
			}
			var err error
			if *v, err = a.task(ctx, v.ID); err != nil {
				return err
			}
		}
		o.Verify = func() error { return cmp.Or(a.verifyLanding(ctx, found), idle()) }
		r, err := found.Land(ctx, found.run, &o)
		if conflict, ok := errors.AsType[*worktree.ConflictError](err); ok {
			return a.resolve(ctx, found, conflict)
		}
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%s is at %s", r.Target, r.Commit[:12])
		if r.Commit == r.Before {
			text = "nothing to land: " + r.Target + " has all of " + found.Branch()
		}
		return a.print(map[string]string{"target": r.Target, "commit": r.Commit, "before": r.Before}, text)
	}), a.completeTrees))
	f := c.Flags()
	f.StringVar(&o.Onto, "onto", "", "the `branch` to land on; by default the one that is checked out in the task's directory")
	f.BoolFunc("squash", "as one commit (the default)", func(string) error { o.Mode = worktree.Squash; return nil })
	f.BoolFunc("merge", "by a commit that merges the branch", func(string) error { o.Mode = worktree.Merge; return nil })
	f.BoolFunc("rebase", "each commit anew on top of the branch", func(string) error { o.Mode = worktree.Rebase; return nil })
	f.BoolVar(&undo, "undo", false, "take the last landing back")
	exclusive(c, "squash", "merge", "rebase", "undo")
	exclusive(c, "onto", "undo")
	return c
}

// verifyLanding runs the newest verify command of the worktree's tasks on what is to land.
func (a *app) verifyLanding(ctx context.Context, found *foundTree) error {
	if !task.HasVerify(&found.with.Task) {
		return nil
	}
	a.hint("stint: verifying what is to land: %s\n", escapeText(oneLine(found.with.VerifyCommand)))
	var output bytes.Buffer
	code, err := a.runVerify(ctx, &found.with, &output)
	if err == nil && code != 0 {
		if said := strings.TrimSpace(output.String()); said != "" {
			a.hint("%s\n", escapeText(task.HeadAndTail(said, 4000, "")))
		}
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return &cliError{code: exitVerify, message: fmt.Sprintf("nothing has landed: the verify command of task %s does not pass on the result", shortID(found.with.ID)), try: "stint send " + found.Lane + ` "what is wrong"`, err: err}
	}
	return nil
}

// resolve queues the task that is to resolve the conflicts of a landing, which lie in the worktree.
func (a *app) resolve(ctx context.Context, found *foundTree, conflict *worktree.ConflictError) error {
	refused := &cliError{code: exitFailure, message: fmt.Sprintf("nothing has landed: %v", conflict), try: fmt.Sprintf("git commit in %s once they are resolved, then stint land %s", found.Path, found.Name)}
	if found.Conflicts > mostConflicts {
		refused.message += fmt.Sprintf("; %d tasks have tried to resolve that", mostConflicts)
		return refused
	}
	last := &found.last
	spec := task.TaskSpec{
		Prompt: fmt.Sprintf("The work on branch %s is to land on %s, which has other changes in the same places. A merge of %[2]s has been begun in this checkout, and these files have git's conflict marks (<<<<<<<, =======, >>>>>>>):\n\n%s\n\n"+
			"Resolve the conflicts: keep what both sides were to do, and remove all marks. Change nothing else. Do not commit, merge, rebase or check out anything: the merge is committed when you are done.", found.Branch(), conflict.Target, strings.Join(conflict.Files, "\n")),
		Workspace: cmp.Or(last.Workspace, found.Path), Agent: last.Agent, Model: last.Model, VerifyCommand: found.with.VerifyCommand, Label: "land",
	}
	if task.IsNamedLane(found.Lane) {
		spec.SessionKey = found.Lane
	} else {
		spec.AgentSession, spec.Parallel = last.AgentSession, true
	}
	view, err := ask(ctx, a.call, func(cl *client.Client) (wire.TaskView, error) { return cl.Submit(ctx, spec) })
	if err != nil {
		return errors.Join(refused, err)
	}
	refused.message += "; task " + shortID(view.ID) + " is to resolve that"
	refused.try = fmt.Sprintf("stint wait %s && stint land %s", shortID(view.ID), found.Name)
	return refused
}

func (a *app) dropCommand() *cobra.Command {
	var force bool
	c := command("drop [OPTIONS] ID|SESSION", "remove a worktree and its branch", cobra.ExactArgs(1), a.withTree(true, func(_ context.Context, found *foundTree, _ *Config) error {
		err := found.Drop(found.run, time.Now(), false)
		left, ok := errors.AsType[*worktree.UnlandedError](err)
		if ok {
			for _, commit := range left.Commits {
				a.hint("stint: not landed: %s\n", escapeText(oneLine(commit)))
			}
		}
		if ok && !force {
			return &cliError{code: exitFailure, message: fmt.Sprintf("%s has %s that did not land, and stays", left.Branch, count(len(left.Commits), "commit")), try: "stint land " + found.Name + ", or stint drop --force " + found.Name}
		}
		if err != nil && force {
			err = found.Drop(found.run, time.Now(), true)
		}
		if err == nil && force {
			a.hint("stint: what was on %s stays below refs/stint/dropped/%s for 30 days\n", found.Branch(), found.Name)
		}
		return err
	}), a.completeTrees)
	c.Flags().BoolVar(&force, "force", false, "also with commits that have not landed; they stay below refs/stint/dropped/ for 30 days")
	return c
}

func (a *app) prCommand() *cobra.Command {
	var onto, remote string
	c := command("pr [OPTIONS] ID|SESSION", "push the branch of a worktree, and open a pull request with gh", cobra.ExactArgs(1), a.withTree(false, func(ctx context.Context, found *foundTree, cfg *Config) error {
		w, err := found.Look(found.run)
		if err != nil {
			return err
		}
		if w.Commits == 0 {
			return &cliError{code: exitFailure, message: found.Branch() + " has no commit that is on no other branch", try: "stint diff " + found.Name}
		}
		push := []string{"git", "-C", found.Root, "push", "--set-upstream", remote, found.Branch()}
		create := []string{"gh", "pr", "create", "--head", found.Branch(), "--fill"}
		if onto != "" {
			create = append(create, "--base", onto)
		}
		if _, err := exec.LookPath("gh"); err != nil {
			a.hint("stint: gh is not installed; nothing was pushed. These two commands do it:\n")
			return printText(a.stdout, state.ShellLine(push)+"\ncd "+state.ShellQuote(found.Root)+" && "+state.ShellLine(create))
		}
		if out, err := outside(ctx, found.Root, []string{"gh", "auth", "status"}); err != nil {
			return &cliError{code: exitAgent, message: "gh is not logged in; nothing was pushed: " + oneLine(out), try: "gh auth login"}
		}
		if out, err := outside(ctx, found.Root, push); err != nil {
			return fmt.Errorf("git push: %w: %s", err, strings.TrimSpace(out))
		}
		out, err := outside(ctx, found.Root, create)
		if err != nil && !strings.Contains(out, "already exists") { // with what is pushed now
			return fmt.Errorf("%s is pushed; gh pr create: %w: %s", found.Branch(), err, strings.TrimSpace(out))
		}
		return printText(a.stdout, out)
	}), a.completeTrees)
	c.Flags().StringVar(&onto, "onto", "", "the `branch` that is to take it; by default that of the repository on GitHub")
	c.Flags().StringVar(&remote, "remote", "origin", "the `remote` to push to")
	return c
}

// outside runs a program that may ask the user something, and returns what it prints.
func outside(ctx context.Context, dir string, argv []string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin = dir, os.Stdin
	out, err := cmd.CombinedOutput()
	return string(out), err
}
