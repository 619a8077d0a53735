package attempt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/coordinator/worktree"
	"stint/ledger/durable"
	"stint/ledger/lock"
	"stint/state"
)

const (
	setupName  = "setup" // in a run's directory: what the setup command of a new worktree has printed
	treeName   = "git-worktree"
	treeLimit  = 10 * time.Minute // of one command of git, which may fetch large files
	landLimit  = time.Hour        // how long a run waits for a landing, with what that verifies
	mostTitled = 72               // characters of a commit's subject
)

// treeOf returns the worktree in which a task works; nil if it works elsewhere.
func (a *Attempts) treeOf(t *state.Task) (*worktree.Tree, error) {
	name, origin, ok := a.tasks.Config.Trees.Origin(t.Workspace)
	if !ok {
		return nil, nil
	}
	if real := task.WithoutLinks(origin); real != origin {
		return nil, fmt.Errorf("the workspace %s leads to %s: name that", origin, real)
	}
	root := task.RepositoryRoot(origin)
	if !task.IsCheckout(root) {
		return nil, fmt.Errorf("%s is in no git checkout any more, whose worktree the task is to work in", origin)
	}
	tree, err := a.tasks.Config.Trees.At(name, root)
	if err == nil && tree.Path != a.tasks.Config.Trees.PathOf(name, root) {
		err = fmt.Errorf("the worktree of %s is %s, below another worktree_dir: set that again, or land and drop it first", name, tree.Path)
	}
	return tree, err
}

// enterTree locks the worktree of a task, if it works in one, and makes it ready for a turn. wrong is how the run ends if that
// cannot be done. leave unlocks it.
func (a *Attempts) enterTree(r *Run, t *state.Task) (leave func(), wrong *task.Outcome) {
	leave = func() {}
	failed := func(class state.Class, err error) *task.Outcome {
		if errors.Is(context.Cause(r.Ctx), task.ErrCanceled) {
			class = state.ClassCanceled
		} else if r.Ctx.Err() != nil {
			class = state.ClassInterrupted
		}
		return &task.Outcome{Class: class, ExitCode: -1, Error: err.Error(), Shortage: task.ShortageOf(err)}
	}
	tree, err := a.treeOf(t)
	if err != nil {
		return leave, failed(state.ClassSetup, err)
	}
	if tree == nil {
		return leave, nil
	}
	unlock, err := tree.Lock(r.Ctx, landLimit)
	if errors.Is(err, lock.ErrLocked) {
		return leave, failed(state.ClassSessionBusy, fmt.Errorf("the worktree of %s is in use: it is being landed, or another session works there", tree.Name))
	} else if err != nil {
		return leave, failed(state.ClassSetup, err)
	}
	leave = func() { a.tasks.TroubleUnlessStopped("a worktree could not be unlocked", unlock()) }
	if r.Task.Phase != "" {
		r.tree = tree
		return leave, nil
	}
	base, _ := state.WorktreeBase(t.Isolation)
	run := a.shell(r.Ctx, r, t, tree.Root, tree.Root, treeName, treeLimit)
	note, err := tree.Make(run, t.Lane(), base, a.tasks.Config.Now(), func() error { return a.setUpTree(r, t, tree) })
	r.note = joined(r.note, note)
	if err == nil && t.Workspace != tree.Path { // the checkout may have a directory that the branch has not
		var top *os.Root
		if top, err = os.OpenRoot(tree.Path); err == nil {
			err = errors.Join(top.MkdirAll(strings.TrimPrefix(t.Workspace, tree.Path+"/"), durable.DirMode), top.Close())
		}
	}
	if err != nil {
		return leave, failed(state.ClassSetup, fmt.Errorf("the worktree: %w", err))
	}
	r.tree = tree
	return leave, nil
}

// setUpTree runs the command that sets a new worktree up.
func (a *Attempts) setUpTree(r *Run, t *state.Task, tree *worktree.Tree) error {
	set := a.tasks.Workspace(t.Workspace)
	if set.WorktreeSetup == "" {
		return nil
	}
	dir := filepath.Join(a.tasks.RunDir(r.ID), setupName)
	if err := a.tasks.MakeDir(dir); err != nil {
		return err
	}
	a.log(r, task.LogEvent{Kind: task.LogVerify, State: task.LogStarted, Text: set.WorktreeSetup})
	res := a.tasks.Config.Shell.Verify(r.Ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.ID, Attempt: t.Attempt, RunDir: dir, Workspace: tree.Path, Env: a.environment(r, t), Command: set.WorktreeSetup,
		Timeout: set.SetupTimeout, Grace: a.tasks.Config.Grace, Lives: func(isStart bool) { a.noteLife(r, isStart) },
	})
	a.log(r, task.LogEvent{Kind: task.LogVerify, State: task.LogCompleted, Output: res.Output, ExitCode: &res.ExitCode, Failed: !res.Passed()})
	if res.Passed() {
		return nil
	}
	return fmt.Errorf("worktree_setup (%s): %s; what it printed is in %s: %s", set.WorktreeSetup, strings.Replace(res.Error, "the verify command", "it", 1),
		filepath.Join(dir, "stdout"), task.HeadAndTail(strings.TrimSpace(res.Output), 1000, ""))
}

// saveTree commits what an attempt has left in its worktree, and notes what is on the branch.
func (a *Attempts) saveTree(r *Run, t *state.Task) {
	tree := r.tree
	if tree == nil {
		return
	}
	var work worktree.Work
	ctx, set := context.WithoutCancel(r.Ctx), a.tasks.Workspace(t.Workspace)
	run := a.shell(ctx, r, t, tree.Root, tree.Root, treeName, treeLimit)
	author := &set.CommitAuthor
	if set.Commit == queue.CommitNever {
		author = nil
	}
	note, err := tree.Save(run, commitMessage(t), author)
	if err == nil {
		work, err = tree.Look(run)
	}
	if err != nil {
		note = joined(note, "what it left in the worktree could not be committed: "+err.Error())
	}
	r.note = joined(r.note, note)
	if work.Tip != "" {
		if r.changes == nil {
			r.changes = &state.Changes{}
		}
		r.changes.Branch = &work.Branch
	}
}

// commitMessage returns the message of the commit that has what a task left: the first line of its prompt, and its id.
func commitMessage(t *state.Task) string {
	first, _, _ := strings.Cut(strings.TrimSpace(t.Prompt), "\n")
	return state.Cut(strings.TrimSpace(first), mostTitled) + "\n\nStint-Task: " + t.ID + "\n"
}
