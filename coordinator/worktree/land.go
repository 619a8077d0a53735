package worktree

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stint/coordinator/checkout"
	"stint/ledger/durable"
	"stint/state"
)

// A Mode is how commits land.
type Mode string

// The modes: one commit that has all changes, one that merges the branch, or each commit anew on top of the target.
const (
	Squash Mode = "squash"
	Merge  Mode = "merge"
	Rebase Mode = "rebase"
)

// Options say how a branch is to land.
type Options struct {
	Onto      string       // the branch; "": that of the checkout
	Mode      Mode         // ...
	Protected []string     // branches onto which nothing lands
	Verify    func() error // looks at the result, which lies in the worktree
}

// A Result is what has landed.
type Result struct {
	Target string // the branch
	Commit string // its last commit now
	Before string // and before; the same if there was nothing to land
}

// A ConflictError names the files that both sides have changed. They lie in the worktree, with the marks of git.
type ConflictError struct {
	Target string
	Files  []string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s has other changes in the same places: %s", e.Target, strings.Join(e.Files, ", "))
}

// mostTries is how often a landing begins anew because somebody else has moved the target.
const mostTries = 5

// Land lands the branch. The caller has the lock of the worktree, and its work is committed. Landings on one target come one after
// the other, each on what the one before has made. The result is made and verified in the worktree; then the target moves to it, if
// nobody has moved that meanwhile, and the branch goes there too. With an error, target and branch are where they were, but with a
// [ConflictError] the worktree is left with the conflicts, to be resolved and committed.
func (t *Tree) Land(ctx context.Context, run checkout.Shell, o *Options) (r Result, err error) {
	if err := t.find(run); err != nil {
		return r, err
	}
	if r.Target, err = t.target(run, o); err != nil {
		return r, err
	}
	free, err := t.queue(ctx, r.Target)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, free()) }()
	for range mostTries {
		var moved bool
		if moved, err = t.tryLand(run, o, &r); err != nil || !moved {
			return r, err
		}
	}
	return r, fmt.Errorf("somebody moves %s all the time: try again", r.Target)
}

// queue waits until nobody else lands on a branch, and keeps them out; with "" it is about what reads all worktrees.
func (t *Tree) queue(ctx context.Context, target string) (free func() error, err error) {
	return t.trees.lock(ctx, filepath.Join(t.trees.State, fmt.Sprintf("land-%x", sha256.Sum256([]byte(t.common+"\n"+target)))[:21]), 24*time.Hour)
}

// target returns the branch that is landed on.
func (t *Tree) target(run checkout.Shell, o *Options) (string, error) {
	from := "HEAD"
	if o.Onto != "" {
		from = heads + o.Onto
	}
	out, err := t.sh(run, "", "at_root; ours symbolic-ref -q "+state.ShellQuote(from)+" || :") // also of a branch that stands for another one
	name := cmp.Or(strings.TrimPrefix(out, heads), o.Onto)
	have := ""
	if err == nil && name != "" {
		have, err = t.ref(run, heads+name)
	}
	switch {
	case err != nil:
		return "", err
	case name == "":
		return "", fmt.Errorf("%s has no branch checked out: name one with --onto", t.Root)
	case have == "":
		return "", fmt.Errorf("there is no branch %s in %s; to make it: git branch %s", name, t.Root, state.ShellQuote(name))
	case strings.HasPrefix(name, branchPrefix):
		return "", fmt.Errorf("%s is stint's own branch: land on another one", name)
	case slices.Contains(o.Protected, name):
		return "", fmt.Errorf("%s is one of protected_branches: land on another one with --onto, or stint pr", name)
	}
	return name, nil
}

// tryLand lands on the target as it is now. moved says that it has moved meanwhile.
func (t *Tree) tryLand(run checkout.Shell, o *Options, r *Result) (moved bool, err error) {
	old, err := t.ref(run, heads+r.Target)
	if err != nil {
		return false, err
	}
	if _, err := t.inUse(run, r.Target); err != nil {
		return false, err
	}
	tip, err := t.tip(run)
	if err != nil {
		return false, err
	}
	r.Before, r.Commit = old, old
	if done, err := t.isAncestor(run, tip, old); err != nil || done {
		return false, err
	}
	if err := t.begin(run, tip); err != nil {
		return false, err
	}
	if r.Commit, err = t.build(run, o.Mode, old, tip); err == nil {
		err = o.Verify()
	}
	if err == nil && r.Commit != old {
		if _, err = t.sh(run, "", "at_root; note", heads+r.Target, r.Commit, old, tip); err == nil {
			moved, err = t.move(run, r.Target, old, r.Commit)
		}
	}
	if err == nil && !moved {
		t.Conflicts = 0
		_, err = t.git(run, "update-ref", "-m", "stint: landed on "+r.Target, heads+t.Branch(), r.Commit, tip)
	}
	_, wrong := t.here(run, "reset", "-q", "--hard") // what git, hooks or the command have left
	if wrong == nil {
		_, wrong = t.attach(run)
	}
	if wrong != nil { // the next run does that
		return false, errors.Join(err, wrong)
	}
	conflict, isConflict := errors.AsType[*ConflictError](err)
	if isConflict {
		conflict.Target = r.Target
		t.Conflicts, t.Landing = t.Conflicts+1, true
		if wrong := t.write(); wrong != nil {
			return false, errors.Join(err, wrong)
		}
		_, wrong := t.sh(run, "", "inside; ours merge -q --no-ff --no-commit "+old+" >/dev/null || :")
		err, t.Landing = errors.Join(err, wrong), false
	}
	return moved, errors.Join(err, t.keep(run), t.write())
}

// begin notes that what lies in the worktree is a landing's from now on; all that is an agent's must be committed.
func (t *Tree) begin(run checkout.Shell, tip string) error {
	if !t.isThere() {
		return fmt.Errorf("the worktree of %s is gone: its next task makes it anew from its branch", t.Name)
	}
	if merging, err := t.merging(run); err != nil || merging != "" {
		return cmp.Or(err, fmt.Errorf("conflicts of the last landing are not resolved in %s: stint send %s, or git commit there", t.Path, t.Name))
	}
	if left, err := t.stash(run, tip); err != nil || left != tip {
		return cmp.Or(err, fmt.Errorf("%s has changes that are not committed: git commit there", t.Path))
	}
	t.Landing = true
	return t.write()
}

// build makes the result in the worktree, without a branch, and returns it.
func (t *Tree) build(run checkout.Shell, mode Mode, old, tip string) (string, error) {
	out, err := t.sh(run, "", `inside; said=$(mktemp) && { (build `+state.ShellLine([]string{string(mode), old, tip})+`) >"$said" 2>&1; echo $?; cat "$said"; rm "$said"; }`) // no pipe, which what a hook leaves behind would hold
	if err != nil {
		return "", err
	}
	code, said, _ := strings.Cut(strings.Replace(out, "Automatic merge went well; stopped before committing as requested\n", "", 1), "\n")
	if code == "0" {
		out, err = t.sh(run, "", "inside; ours reset -q --hard && ours rev-parse HEAD") // without what a hook has changed and not committed
		return strings.TrimSpace(out), err
	}
	files, err := t.here(run, "diff", "--name-only", "--diff-filter=U", "--ignore-submodules=all")
	unmarked, wrong := t.sh(run, "", "inside; conflicts 1") // of which nobody could see later that they are not resolved
	switch err = errors.Join(err, wrong); {
	case err == nil && (files == "" || code != "3"):
		err = fmt.Errorf("git could not make the commit: %s", cmp.Or(strings.TrimSpace(said), "exit code "+code))
	case err == nil && unmarked != "":
		err = fmt.Errorf("both sides have changed %s, and git cannot mark where: git merge %s in %s, and commit what is right", strings.TrimSuffix(unmarked, ", "), old[:12], t.Path)
	}
	return "", cmp.Or(err, error(&ConflictError{Files: strings.Split(files, "\n")}))
}

// isOut reports whether a branch is checked out in a directory. In another one is an error.
func (t *Tree) isOut(run checkout.Shell, branch, dir string) (is bool, err error) {
	list, err := t.inTurn(run, "at_root; ours", "worktree", "list", "--porcelain")
	for entry := range strings.SplitSeq(list, "\n\n") {
		top, rest, _ := strings.Cut(strings.TrimPrefix(entry, "worktree "), "\n")
		says := strings.Split(rest, "\n")
		if top == t.common { // where .git is a file, also in a submodule, which is no linked worktree
			if own, wrong := t.git(run, "rev-parse", "--absolute-git-dir"); wrong == nil && own == top {
				top = t.Root
			}
		}
		if _, wrong := os.Lstat(filepath.Join(dir, ".git")); wrong == nil && top == dir && slices.Contains(says, "bare") { // and does not say what is checked out
			return true, fmt.Errorf("git takes %s for a bare repository: git config core.bare false there", dir)
		}
		if slices.Contains(says, "branch "+heads+branch) {
			if is = true; top != dir {
				return true, fmt.Errorf("%s is checked out in %s: check out another branch there, or name one with --onto; if that is gone: git worktree prune", branch, top)
			}
		}
	}
	return is, err
}

// inUse returns where the target is checked out, which can only be where the worktree is from, and clean; "" if it is not.
func (t *Tree) inUse(run checkout.Shell, target string) (at string, err error) {
	is, err := t.isOut(run, target, t.Root)
	if err != nil {
		return "", err
	}
	for _, name := range append(t.glob("*/head-name"), t.glob("worktrees/*/*/head-name")...) {
		if data, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(data)) == heads+target {
			return "", fmt.Errorf("a rebase of %s is going on (%s): finish it first", target, filepath.Dir(name))
		}
	}
	if !is {
		return "", nil
	}
	changed, err := t.git(run, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
	if err == nil && changed != "" {
		first, _, _ := strings.Cut(changed, "\n")
		err = fmt.Errorf("%s, where %s is checked out, has changes that are not committed (%s): commit or stash them, or land on another branch with --onto", t.Root, target, strings.TrimSpace(first))
	}
	return t.Root, err
}

// move moves the target from one commit to another one, and the checkout that has it. moved says that it was not where it should be.
func (t *Tree) move(run checkout.Shell, target, from, to string) (moved bool, err error) {
	checkedOut, err := t.inUse(run, target) // now, too
	if err != nil {
		return false, err
	}
	if _, err = t.sh(run, "", "at_root; move", heads+target, from, to, checkedOut); err == nil {
		return false, nil
	}
	if now, wrong := t.ref(run, heads+target); wrong == nil && now != from {
		return true, nil
	}
	return false, fmt.Errorf("%s stays where it was; move what is in the way, and try again: %w", target, err)
}

// resume returns where a landing that was cut off has brought the branch, which is at tip. The user's checkout was clean when that
// began: if all that is changed in it is as before the landing, or as after it, it goes where its branch is.
func (t *Tree) resume(run checkout.Shell, tip string) (string, error) {
	l, err := t.landing(run)
	if err != nil || l.result == "" || tip != l.tip && tip != l.result {
		return tip, err
	}
	if inUse, wrong := t.isOut(run, strings.TrimPrefix(l.target, heads), t.Root); wrong == nil && inUse {
		_, err = t.sh(run, "", "at_root; resume", l.before, l.result)
	}
	if isIn, wrong := t.isAncestor(run, l.result, l.target); err == nil && wrong == nil && isIn && l.tip == tip {
		return l.result, nil
	}
	return tip, err
}

// A landing is what is noted of the last one.
type landing struct{ target, result, before, tip string }

// landing returns what is noted of the last landing; the zero value if there was none.
func (t *Tree) landing(run checkout.Shell) (l landing, err error) {
	out, err := t.git(run, "for-each-ref", "--format=%(subject)", refs+"landed/"+t.Name)
	if words := strings.Fields(out); len(words) == 4 {
		l = landing{words[0], words[1], words[2], words[3]}
	}
	return l, err
}

// Undo takes back the last landing, if its target is still where that has left it. The branch has its own commits again, unless
// the session went on since.
func (t *Tree) Undo(ctx context.Context, run checkout.Shell) (r Result, err error) {
	if err := t.find(run); err != nil {
		return r, err
	}
	l, err := t.landing(run)
	if err != nil {
		return r, err
	}
	if l.result == "" {
		return r, fmt.Errorf("nothing of %s has landed", t.Name)
	}
	r = Result{Target: strings.TrimPrefix(l.target, heads), Commit: l.before, Before: l.result}
	free, err := t.queue(ctx, r.Target)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, free()) }()
	now, err := t.ref(run, l.target)
	tip, wrong := t.ref(run, heads+t.Branch())
	if err := errors.Join(err, wrong); err != nil {
		return r, err
	}
	goneOn := fmt.Errorf("%s has moved on since %s landed; to reverse that commit: git revert %s", r.Target, t.Branch(), l.result[:12])
	if now != l.result && (now != l.before || tip != l.result && tip != l.tip) { // nor was it cut off
		return r, goneOn
	}
	if tip == l.result && t.isThere() {
		err = t.begin(run, tip)
	}
	if err == nil && now == l.result {
		var moved bool
		if moved, err = t.move(run, r.Target, l.result, l.before); moved {
			err = goneOn
		}
	}
	if err == nil && t.Landing {
		_, err = t.here(run, "reset", "-q", "--keep", l.tip)
	} else if err == nil && tip == l.result {
		_, err = t.git(run, "update-ref", "-m", "stint: undo", heads+t.Branch(), l.tip, tip)
	}
	if t.Landing {
		_, wrong := t.attach(run)
		err = errors.Join(err, wrong)
	}
	if err = errors.Join(err, t.keep(run)); err == nil {
		_, err = t.git(run, "update-ref", "-d", refs+"landed/"+t.Name)
	}
	return r, err
}

// stampForm is the form of the times in the names of refs, in the order of which they sort.
const stampForm = "20060102T150405Z"

// Drop removes the worktree and its branch. Commits that have not landed are an error that names them, unless force is set; they
// stay reachable for [KeepDropped], as does what is not committed. The caller has the lock.
func (t *Tree) Drop(run checkout.Shell, now time.Time, force bool) error {
	if _, err := os.Stat(t.Root); errors.Is(err, fs.ErrNotExist) && !force {
		return fmt.Errorf("the repository of the worktree, %s, is gone: what is in %s stands nowhere else; to remove it: stint drop --force %s", t.Root, t.Path, t.Name)
	} else if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(removeTree(t.Path), durable.Drop(durable.OS, t.file(".json")))
	}
	if _, err := t.Save(run, "", nil); err != nil {
		return err
	}
	if _, err := t.isOut(run, t.Branch(), t.Path); err != nil {
		return err
	}
	tip, err := t.sh(run, "", "at_root; (last) 2>/dev/null || :")
	if err == nil && tip != "" && t.isThere() {
		if tip, err = t.stash(run, tip); err == nil {
			_, err = t.sh(run, "", "at_root; keep_commit", tip)
		}
	}
	if err != nil {
		return err
	}
	if tip != "" && !force {
		left, err := t.sh(run, "", "at_root; unlanded log --format='%h %s'", tip)
		if err != nil {
			return err
		}
		if left != "" {
			return &UnlandedError{Branch: t.Branch(), Commits: strings.Split(left, "\n")}
		}
	}
	if !force {
		own, err := t.sh(run, "", "at_root; own")
		if err != nil {
			return err
		}
		if own = strings.Join(strings.Split(own, "\n"), ", "); own != "" {
			return fmt.Errorf("repositories of their own lie in the worktree, with commits that nobody else has, and would be removed with it: %s; move them, or use --force", own)
		}
	}
	stamp := refs + "dropped/" + t.Name + "/" + now.UTC().Format(stampForm)
	if _, err := t.sh(run, "", "at_root; drop", stamp); err != nil {
		return err
	}
	if err := removeTree(t.Path); err != nil {
		return err
	}
	if _, err := t.inTurn(run, `[ -z "$admin" ] || rm -rf "$admin"`); err != nil {
		return err
	}
	for dir := filepath.Dir(t.Path); dir != t.trees.Dir && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
	}
	_, err = t.sh(run, "", "at_root; forget", now.Add(-KeepDropped).UTC().Format(stampForm))
	if err == nil {
		err = durable.Drop(durable.OS, t.file(".json"))
	}
	return err
}

// An UnlandedError names the commits that a branch has and no other one.
type UnlandedError struct {
	Branch  string
	Commits []string // the short id and the subject of each
}

func (e *UnlandedError) Error() string {
	return fmt.Sprintf("%s has commits that have not landed: %s", e.Branch, strings.Join(e.Commits, "; "))
}
