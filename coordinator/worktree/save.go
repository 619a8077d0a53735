package worktree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"stint/coordinator/checkout"
	"stint/state"
)

// include copies the ignored files of the checkout that its .worktreeinclude names, which has the form of a .gitignore.
func (t *Tree) include(run checkout.Shell) error {
	if _, err := os.Stat(filepath.Join(t.Root, ".worktreeinclude")); err != nil {
		return nil
	}
	_, err := t.sh(run, "", "at_root; include")
	return err
}

// An Author is who commits what a run leaves. The zero value is the user as git knows them, or stint where it knows nobody.
type Author struct{ Name, Email string }

// Save commits what lies in the worktree and is not committed, with that message, on its branch; with author nil it commits
// nothing. It brings HEAD back to the branch where an agent has left that, and keeps whatever was committed meanwhile. note
// says what a user should know. Nobody but the caller, who has the lock, is at work there.
func (t *Tree) Save(run checkout.Shell, message string, author *Author) (note string, err error) {
	if err := errors.Join(t.find(run), t.unlock()); err != nil {
		return "", err
	}
	if !t.isThere() {
		return "its worktree is gone: what was not committed there is lost; the next run makes it anew from its branch", t.keep(run)
	}
	if note, err = t.settle(run); err == nil && author != nil {
		var marked string
		if marked, err = t.sh(run, message, "inside; save", author.Name, author.Email); marked != "" {
			note = strings.Trim(note+"; conflicts are not resolved: "+marked, "; ")
		}
	}
	return note, errors.Join(err, t.keep(run))
}

// merging returns the commit that is being merged; "" if none is.
func (t *Tree) merging(run checkout.Shell) (string, error) {
	return t.sh(run, "", "inside; ours rev-parse -q --verify MERGE_HEAD || :")
}

// attach brings HEAD back to the branch, also after a landing that was cut off.
func (t *Tree) attach(run checkout.Shell) (note string, err error) {
	landed := ""
	if t.Landing {
		if landed, err = t.tip(run); err == nil {
			landed, err = t.resume(run, landed)
		}
		if err != nil {
			return "", err
		}
	}
	left, err := t.sh(run, "", "inside; attach", landed)
	if err == nil && t.Landing {
		t.Landing = false
		return "", t.write()
	}
	if left != "" {
		note = fmt.Sprintf("the worktree had left its branch: commit %s is kept, and not on %s", left[:12], t.Branch())
	}
	return note, err
}

// tip returns the last commit of the branch: where it is, or was after the last run.
func (t *Tree) tip(run checkout.Shell) (string, error) {
	return t.sh(run, "", "at_root; last")
}

// stash returns a commit on top of parent that has what lies in the worktree; parent if that has all of it.
func (t *Tree) stash(run checkout.Shell, parent string) (string, error) {
	return t.sh(run, "", "inside; stash", parent)
}

// keep notes where the branch is now, and keeps what it no longer has: of the last tip, and of all that HEAD has been since.
func (t *Tree) keep(run checkout.Shell) error {
	_, err := t.sh(run, "", "at_root; keep")
	return err
}

// Work is what is on a branch, and on no other one but stint's.
type Work struct {
	State        State  `json:"state"`
	state.Branch        // its files and lines are those since it left the branch of the checkout
	Since        string `json:"-"` // where that was
}

// A State is what a worktree is, in a word.
type State string

// The states of a worktree, the gravest first.
const (
	Missing    State = "missing"    // its directory or its branch is gone
	Conflicted State = "conflicted" // conflicts of a landing are to be resolved in it
	Changed    State = "changed"    // it has something that is not committed
	Ahead      State = "ahead"      // it has commits that have not landed
	Landed     State = "landed"     // all of its commits have
	Clean      State = "clean"      // it has none
)

// Look returns what is on the branch.
func (t *Tree) Look(run checkout.Shell) (w Work, err error) {
	if err := t.find(run); err != nil {
		return w, err
	}
	w.Name, w.State = t.Branch(), Missing
	out, err := t.sh(run, "", "at_root; look")
	if err == nil && out != "" {
		_, err = fmt.Sscan(out, &w.State, &w.Tip, &w.Since, &w.Commits, &w.Files, &w.Added, &w.Removed)
	}
	return w, err
}

// Diff returns what is on the branch since it left that of the checkout, as git prints it; with stat only the sizes.
func (t *Tree) Diff(run checkout.Shell, w *Work, stat bool) (string, error) {
	form := "--patch"
	if stat {
		form = "--stat"
	}
	text, err := t.git(run, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "-M", form, w.Since, w.Tip)
	if text != "" {
		text += "\n"
	}
	return text, err
}

// HasChanged reports whether the branch, or what is not committed, has changed files below a directory of the worktree that fit a pattern.
func (t *Tree) HasChanged(run checkout.Shell, dir string, patterns []string) (bool, error) {
	if err := t.find(run); err != nil || !t.isThere() {
		return false, err
	}
	below, err := filepath.Rel(t.Path, dir)
	if err != nil {
		return false, err
	}
	var paths []string
	for _, p := range patterns {
		paths = append(paths, ":(top,glob)"+filepath.Join(below, p))
	}
	out, err := t.sh(run, "", `at_root; s=$(since) && inside && ours diff --name-only --no-ext-diff --no-textconv --ignore-submodules=all "$s" --`, paths...)
	return out != "", err
}
