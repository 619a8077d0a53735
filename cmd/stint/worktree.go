package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/checkout"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/coordinator/worktree"
	"stint/ledger/lock"
	"stint/state"
)

// worktreesName is the directory of the state directory that knows the worktrees.
const worktreesName = "worktrees"

// trees returns the worktrees of the state directory.
func (a *app) trees() (*worktree.Trees, error) {
	cfg, err := a.base()
	if err != nil {
		return nil, err
	}
	dir, err := a.state()
	return &worktree.Trees{State: filepath.Join(dir, worktreesName), Dir: cfg.Trees.Dir}, err
}

// A foundTree is a worktree that was named on the command line.
type foundTree struct {
	*worktree.Tree
	run  checkout.Shell
	last wire.TaskView   // the newest of its tasks
	with wire.TaskView   // the newest in this worktree that names a verify command, or none
	open []wire.TaskView // those that run or wait
}

// errNoTree is wrapped by the error about a task that has no worktree.
var errNoTree = errors.New("it has no worktree")

// findTree returns the worktree of a session, by name, or of a task.
func (a *app) findTree(ctx context.Context, ref string) (found foundTree, err error) {
	trees, err := a.trees()
	if err != nil {
		return found, err
	}
	all, unread := trees.List()
	same := slices.DeleteFunc(slices.Clone(all), func(t *worktree.Tree) bool { return t.Lane != ref && t.Name != ref })
	if len(same) > 1 { // a session of several repositories
		if dir, err := workspace("", ""); err == nil {
			here := task.RepositoryRoot(dir)
			same = slices.DeleteFunc(same, func(t *worktree.Tree) bool { return t.Root != here })
		}
		if len(same) != 1 {
			return found, usage("cd to one of them", "%s has worktrees of several repositories", ref)
		}
	}
	if len(same) == 0 {
		view, err := a.task(ctx, ref)
		if err != nil {
			return found, cmp.Or(unread, err)
		}
		i := slices.IndexFunc(all, func(t *worktree.Tree) bool { return task.IsWithin(view.Workspace, t.Path) })
		if i < 0 {
			return found, &cliError{code: exitNotFound, message: "task " + shortID(view.ID), err: errors.Join(errNoTree, unread), try: "stint worktree ls"}
		}
		same = all[i : i+1]
	}
	found.Tree, found.run = same[0], runGit(ctx, same[0].Root)
	for _, lane := range []string{found.Lane, state.LanePrefixDir + found.Path} { // the second is that of follow-ups
		tasks, err := ask(ctx, a.call, func(cl *client.Client) ([]wire.TaskView, error) {
			return cl.List(ctx, state.Filter{Session: lane})
		})
		if err != nil {
			return found, err
		}
		for _, v := range tasks {
			if !task.IsWithin(v.Workspace, found.Path) {
				continue
			}
			if found.last.ID == "" {
				found.last = v
			}
			if found.with.ID == "" && v.VerifyCommand != "" && v.UpdatedAt.After(found.CreatedAt) {
				found.with = v
			}
			if !v.Status.Terminal() && v.Status != state.Draft {
				found.open = append(found.open, v)
			}
		}
	}
	return found, nil
}

// withTree returns what a command does that has the worktree which it names for itself: nothing is at work there, and what lies
// there is committed, unless commit is never or it is dropped.
func (a *app) withTree(isDropped bool, do func(ctx context.Context, found *foundTree, cfg *Config) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		found, err := a.findTree(ctx, args[0])
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(found.open, func(v wire.TaskView) bool { return isDropped || v.Status == state.Running }); i >= 0 {
			id := shortID(found.open[i].ID)
			return &cliError{code: exitBusy, message: fmt.Sprintf("task %s is %s in the worktree of %s", id, found.open[i].Status, found.Name), try: "stint wait " + id + ", or stint cancel " + id}
		}
		unlock, err := found.Lock(ctx, time.Second)
		if errors.Is(err, lock.ErrLocked) {
			return &cliError{code: exitBusy, message: "the worktree of " + found.Name + " is in use", try: "stint worktree ls"}
		}
		if err != nil {
			return err
		}
		defer func() { _ = unlock() }() // the process ends
		cfg, _ := a.base()              // it is known: a worktree was found with it
		if isDropped || !found.Ready {  // in which no agent has been
			return do(ctx, &found, cfg)
		}
		set := cfg.forWorkspace(found.Path)
		author := &set.CommitAuthor
		if set.Commit == queue.CommitNever {
			author = nil
		}
		note, err := found.Save(found.run, "Work in "+found.Name+"\n", author)
		if err != nil {
			return err
		}
		if note != "" {
			a.hint("stint: %s\n", escapeText(oneLine(note)))
		}
		if w, _ := found.Look(found.run); author == nil && w.State == worktree.Changed { // a landing would reset it
			return &cliError{code: exitFailure, message: found.Path + " has changes that are not committed (commit is never)", try: "git commit there"}
		}
		return do(ctx, &found, cfg)
	}
}

// treeDiff prints what is on the branch of a worktree.
func (a *app) treeDiff(ctx context.Context, ref string, stat bool) error {
	found, err := a.findTree(ctx, ref)
	if err != nil {
		return err
	}
	w, err := found.Look(found.run)
	if err == nil && w.Tip == "" {
		err = fmt.Errorf("the branch %s is gone: the next task of %s brings it back", found.Branch(), found.Name)
	}
	if err != nil {
		return err
	}
	if w.State == worktree.Changed {
		a.hint("stint: %s has changes that are not committed, and not shown\n", found.Path)
	}
	if a.json {
		return printJSON(a.stdout, viewOf(found.Tree, &w))
	}
	text, err := found.Diff(found.run, &w, stat)
	return cmp.Or(err, copySafe(a.stdout, strings.NewReader(text)))
}

// A treeView is a worktree in lists.
type treeView struct {
	*worktree.Tree
	worktree.Work
	Branch string `json:"branch"`
	Size   int64  `json:"size"` // bytes of its files
}

func (a *app) worktreeCommand() *cobra.Command {
	ls := a.withJSON(command("ls [OPTIONS]", "list the worktrees, with what has not landed", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		trees, err := a.trees()
		var list []treeView
		if err == nil {
			list, err = lookAtTrees(c.Context(), trees)
		}
		return printTable(a, list, err, `no worktrees; to work in one: stint task --session NAME --worktree "PROMPT"`, []string{"NAME", "STATE", "COMMITS", "CHANGES", "AGE", "SIZE", "OF", "PATH"}, []string{"PATH", "SIZE", "AGE"}, func(v treeView) (string, []string) {
			return v.Name, []string{v.Name, string(v.State), fmt.Sprint(v.Commits), fmt.Sprintf("+%d −%d", v.Added, v.Removed), ago(time.Since(v.CreatedAt)), shortSize(v.Size), v.Root, v.Path}
		})
	}))
	path := command("path ID|SESSION", "print where a worktree lies", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		found, err := a.findTree(c.Context(), args[0])
		if err != nil {
			return err
		}
		return printText(a.stdout, found.Path)
	}, a.completeTrees)
	var olderThan string
	clean := a.noRun(command("clean [OPTIONS]", "remove the worktrees that have nothing which has not landed", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		age, err := parseDuration(cmp.Or(olderThan, "0s"))
		if err != nil {
			return usage("stint worktree clean --older-than 7d", "--older-than %v", err)
		}
		trees, err := a.trees()
		if err != nil {
			return err
		}
		open, err := ask(c.Context(), a.call, func(cl *client.Client) ([]wire.TaskView, error) {
			return cl.List(c.Context(), state.Filter{Status: []state.Status{state.Queued, state.Running}})
		})
		if err != nil {
			return err
		}
		removed, err := trees.Clean(c.Context(), runGit, time.Now(), age, mapped(open, func(v *wire.TaskView) string { return v.Workspace }))
		for _, name := range removed {
			a.hint("stint: removed the worktree of %s\n", name)
		}
		return err
	}))
	clean.Flags().StringVar(&olderThan, "older-than", "", "only those without work for this `duration`, such as 7d")
	return group(command("worktree", "list worktrees, print their paths, remove what has landed", nil, nil), ls, path, clean)
}

// lookAtTrees returns all worktrees.
func lookAtTrees(ctx context.Context, trees *worktree.Trees) (list []treeView, err error) {
	all, err := trees.List()
	for _, t := range all {
		w, wrong := t.Look(runGit(ctx, t.Root))
		if wrong != nil { // its repository is gone
			w.State = worktree.Missing
		}
		list = append(list, viewOf(t, &w))
	}
	return list, err
}

func viewOf(t *worktree.Tree, w *worktree.Work) treeView {
	v := treeView{Tree: t, Work: *w, Branch: t.Branch()}
	_ = filepath.WalkDir(t.Path, func(_ string, e fs.DirEntry, err error) error { // what cannot be read is not counted
		if err == nil && e.Type().IsRegular() {
			if fi, err := e.Info(); err == nil {
				v.Size += fi.Size()
			}
		}
		return nil
	})
	return v
}

func (a *app) completeTrees(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	trees, err := a.trees()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := trees.List()
	return mapped(all, func(t **worktree.Tree) string { return (*t).Name }), cobra.ShellCompDirectiveNoFileComp
}

// notesDir returns where the notes of a workspace are searched: those of a worktree are the checkout's, unless its branch has changed them.
func notesDir(ctx context.Context, cfg *Config, trees *worktree.Trees, dir string) string {
	name, origin, ok := trees.Origin(dir)
	if !ok {
		return dir
	}
	tree, err := trees.At(name, task.RepositoryRoot(origin))
	if err != nil {
		return origin
	}
	if changed, err := tree.HasChanged(runGit(ctx, tree.Root), dir, notePaths(cfg.forWorkspace(origin))); err != nil || !changed {
		return origin
	}
	return dir
}

// examineTrees looks for worktrees without a branch or a directory, and for directories that are no worktrees any more.
func (a *app) examineTrees(ctx context.Context) (findings []finding) {
	const check = "worktrees"
	trees, err := a.trees()
	if err != nil {
		return nil
	}
	list, err := lookAtTrees(ctx, trees)
	if err != nil {
		return []finding{failed(check, healthFail, err)}
	}
	known := map[string]bool{}
	for _, v := range list {
		known[v.Path] = true
		if v.State == worktree.Missing {
			findings = append(findings, finding{check, healthWarn, fmt.Sprintf("the directory or the branch of %s is gone (%s, of %s)", v.Name, v.Path, v.Root), "stint drop " + v.Name + ", or go on: the next task makes it anew"})
		}
	}
	_ = filepath.WalkDir(trees.Dir, func(path string, e fs.DirEntry, err error) error { // what cannot be read is none of ours
		if err != nil || !e.IsDir() {
			return nil
		}
		if _, err := os.Lstat(filepath.Join(path, ".git")); err != nil && !strings.Contains(e.Name(), ".left") {
			return nil
		}
		if !known[path] {
			findings = append(findings, finding{check, healthWarn, path + " is the worktree of no session that is known here", "go on with its session, which takes it over, or look what is in it and remove it"})
		}
		return filepath.SkipDir
	})
	if len(findings) == 0 && len(list) > 0 {
		findings = []finding{{check, healthOK, count(len(list), "worktree"), ""}}
	}
	return findings
}
