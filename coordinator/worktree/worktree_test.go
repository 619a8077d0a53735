package worktree_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"stint/coordinator/checkout"
	"stint/coordinator/worktree"
)

var now = time.Date(2026, 11, 21, 3, 12, 45, 0, time.UTC)

// A place is a repository with the file a on the branch main, and the worktrees of its sessions.
type place struct {
	t     testing.TB
	home  string // of its user, with all that follows
	root  string
	trees *worktree.Trees
	run   checkout.Shell
}

func newPlace(t testing.TB) *place {
	t.Helper()
	dir := t.TempDir()
	// Nobody pulls a plug here, so git need not wait for the disk.
	must(t, os.WriteFile(filepath.Join(dir, ".gitconfig"), []byte("[user]\nname = ana\nemail = ana@localhost\n[init]\ndefaultBranch = main\ntemplateDir =\n[core]\nfsync = none\n"), 0o600))
	p := &place{t: t, home: dir, root: filepath.Join(dir, "shop"), trees: &worktree.Trees{State: filepath.Join(dir, "state", "worktrees"), Dir: filepath.Join(dir, "data", "worktrees")}}
	p.run = p.shell
	must(t, os.Mkdir(p.root, 0o700))
	p.in(p.root, `git init -q . && printf '1\n2\n3\n4\n5\n6\n7\n8\n9\n' >a && git add . && git commit -q -m start`)
	return p
}

// shell runs a command as the user.
func (p *place) shell(command, stdin string) (string, error) {
	return runIn(p.command(context.Background(), command), stdin)
}

func (p *place) command(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Env = []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1"}
	return cmd
}

func runIn(cmd *exec.Cmd, stdin string) (string, error) {
	cmd.Stdin = strings.NewReader(stdin)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problem.String())
	}
	return string(out), err
}

// in runs a command in a directory, and returns what it prints.
func (p *place) in(dir, command string) string {
	p.t.Helper()
	out, err := p.shell("cd '"+dir+"' && "+command, "")
	if err != nil {
		p.t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(out)
}

// session makes the worktree of a session.
func (p *place) session(name string) *worktree.Tree {
	p.t.Helper()
	tree, err := p.trees.At(name, p.root)
	must(p.t, err)
	_, err = tree.Make(p.run, name, "", now, func() error { return nil })
	must(p.t, err)
	return tree
}

// work lets an agent write into a worktree, and commits that.
func (p *place) work(tree *worktree.Tree, command string) {
	p.t.Helper()
	p.in(tree.Path, command)
	p.save(tree)
}

func (p *place) save(tree *worktree.Tree) (note string) {
	p.t.Helper()
	note, err := tree.Save(p.run, "work of "+tree.Name, &worktree.Author{})
	must(p.t, err)
	return note
}

func (p *place) land(tree *worktree.Tree, o worktree.Options) (worktree.Result, error) {
	if o.Verify == nil {
		o.Verify = func() error { return nil }
	}
	if o.Mode == "" {
		o.Mode = worktree.Squash
	}
	return tree.Land(context.Background(), p.run, &o)
}

func (p *place) look(tree *worktree.Tree) worktree.Work {
	p.t.Helper()
	w, err := tree.Look(p.run)
	must(p.t, err)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWorkLandsInEachMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []worktree.Mode{worktree.Squash, worktree.Merge, worktree.Rebase} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tree := p.session("web")
			if w := p.look(tree); w.State != worktree.Clean || w.Commits != 0 {
				t.Fatalf("a new one: %+v", w)
			}
			p.in(tree.Path, "echo new >b")
			if w := p.look(tree); w.State != worktree.Changed {
				t.Fatalf("with a file: %+v", w)
			}
			p.save(tree)
			p.work(tree, "echo more >>b; rm a")
			if w := p.look(tree); w.State != worktree.Ahead || w.Commits != 2 || w.Files != 2 || w.Added != 2 || w.Removed != 9 {
				t.Fatalf("after two runs: %+v", w)
			}
			p.in(p.root, "echo mine >c && git add c && git commit -q -m mine && echo untracked >d")
			r, err := p.land(tree, worktree.Options{Mode: mode})
			must(t, err)
			if w := p.look(tree); w.State != worktree.Landed || r.Target != "main" || r.Before == r.Commit {
				t.Fatalf("landed: %+v, %+v", w, r)
			}
			if got := p.in(p.root, "ls; git status --porcelain; git log --format=%s"); mode == worktree.Squash && got != "b\nc\nd\n?? d\nwork of web\nmine\nstart" {
				t.Fatalf("%s", got)
			}
			if got := p.in(tree.Path, "ls; git status --porcelain; git branch --show-current"); got != "b\nc\nstint/web" {
				t.Fatalf("in the worktree: %s", got)
			}
			again, err := p.land(tree, worktree.Options{Mode: mode})
			must(t, err)
			if again.Before != again.Commit {
				t.Fatalf("nothing to land, and it moved: %+v", again)
			}
			_, err = tree.Undo(context.Background(), p.run)
			must(t, err)
			if w := p.look(tree); w.State != worktree.Ahead || w.Commits != 2 {
				t.Fatalf("undone: %+v", w)
			}
			_, err = p.land(tree, worktree.Options{Mode: mode})
			must(t, err)
			must(t, tree.Drop(p.run, now, false))
			if got := p.in(p.root, "git branch; git worktree list | wc -l; git for-each-ref refs/stint | wc -l; ls "+p.trees.Dir); got != "* main\n1\n1" {
				t.Fatalf("dropped: %s", got)
			}
		})
	}
}

// TestUndoOfWhatLandedAsItWas: a rebase onto a branch that has not moved lands the very commits of the branch.
func TestUndoOfWhatLandedAsItWas(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tree := p.session("web")
	p.work(tree, "echo new >b")
	r, err := p.land(tree, worktree.Options{Mode: worktree.Rebase})
	must(t, err)
	back, err := tree.Undo(context.Background(), p.run)
	must(t, err)
	if w := p.look(tree); back.Commit != r.Before || w.State != worktree.Ahead || w.Commits != 1 {
		t.Fatalf("%+v, %+v", back, w)
	}
	if got := p.in(p.root, "ls; git log --format=%s; git status --porcelain"); got != "a\nstart" {
		t.Fatal(got)
	}
}

func TestConflictsStayInTheWorktree(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tree := p.session("web")
	p.work(tree, "sed -i s/5/five/ a")
	p.in(p.root, "sed -i s/5/FIVE/ a && git commit -qam mine")
	_, err := p.land(tree, worktree.Options{})
	conflict, ok := errors.AsType[*worktree.ConflictError](err)
	if !ok || len(conflict.Files) != 1 || conflict.Files[0] != "a" {
		t.Fatalf("%v", err)
	}
	if w := p.look(tree); w.State != worktree.Conflicted {
		t.Fatalf("%+v", w)
	}
	if note := p.save(tree); !strings.Contains(note, "conflicts are not resolved: a") {
		t.Fatalf("nobody resolved them: %q", note)
	}
	p.work(tree, "printf '1\\n2\\n3\\n4\\nfive and FIVE\\n6\\n7\\n8\\n9\\n' >a")
	_, err = p.land(tree, worktree.Options{})
	must(t, err)
	if got := p.in(p.root, "sed -n 5p a; git status --porcelain"); got != "five and FIVE" {
		t.Fatalf("%s", got)
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	must(t, err)
	return n
}
