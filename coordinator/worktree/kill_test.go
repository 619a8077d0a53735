package worktree_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/checkout"
	"stint/coordinator/worktree"
)

// seen are the commits that somebody has made. Those of stint's own notes are not among them.
type seen map[string]bool

var ownNotes = regexp.MustCompile(`^(refs/heads/|dropped stint/)`)

// commits returns those that git finds in that way, also beside a worktree of which a killed git has not written the commondir yet.
func (p *place) commits(where string) seen {
	p.t.Helper()
	s := seen{}
	for line := range strings.Lines(p.in(p.root, "find .git/worktrees -name commondir -empty -exec mv {} {}.empty \\; 2>/dev/null; git log --format='%H %s' "+where+`
is=$?; find .git/worktrees -name commondir.empty -execdir mv {} commondir \; 2>/dev/null; exit $is`)) {
		if id, subject, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); !ownNotes.MatchString(subject) {
			s[id] = true
		}
	}
	return s
}

const (
	kept = "--branches --glob=refs/stint" // what cannot go away
	all  = "--glob=refs/ --reflog HEAD"   // what git still knows; --all fails at a worktree half made, whose HEAD is none yet
)

// check fails unless all of them are on a branch or below refs/stint.
func (s seen) check(p *place, when string) {
	p.t.Helper()
	have := p.commits(kept)
	for id := range s {
		if !have[id] {
			p.t.Fatalf("%s: the commit %s is lost: %s\n%s", when, id, p.in(p.root, "git log -1 --format=%s "+id), p.in(p.root, "git log --graph --all --oneline --decorate"))
		}
	}
}

// files returns what lies in the user's checkout, and what git says of it.
func (p *place) files() string {
	p.t.Helper()
	return p.content() + p.in(p.root, "git status --porcelain; git symbolic-ref -q HEAD || :")
}

// content returns what lies in the user's checkout.
func (p *place) content() string {
	p.t.Helper()
	var text strings.Builder
	must(p.t, filepath.WalkDir(p.root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.Name() == ".git" && e.IsDir():
			return filepath.SkipDir
		case e.Type().IsRegular():
			data, err := os.ReadFile(path)
			fmt.Fprintf(&text, "%s %x\n", path, sha256.Sum256(data))
			return err
		}
		return nil
	}))
	return text.String()
}

// A cut is what happens to the n-th command, and to those after it.
type cut int

const (
	before cut = iota // it does not run, and none after it
	after             // it has run, and seems to have failed; those after it run
	kill              // it is killed meanwhile, with all that it has started
)

// errCut is what a command returns that was cut off.
var errCut = errors.New("cut off")

// cutAt lets n commands run, and then cuts. lasts is how long a killed command lives. done counts the commands.
func (p *place) cutAt(how cut, n int, lasts time.Duration) (run checkout.Shell, done *int) {
	done = new(int)
	return func(command, stdin string) (string, error) {
		*done++
		switch {
		case *done <= n || how == after && *done > n+1:
			return p.shell(command, stdin)
		case how == before || *done > n+1:
			return "", errCut
		case how == after:
			if out, err := p.shell(command, stdin); err != nil {
				return out, err
			}
			return "", errCut
		}
		ctx, stop := context.WithTimeout(context.Background(), lasts)
		defer stop()
		cmd := p.command(ctx, command)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		if _, err := runIn(cmd, stdin); err != nil {
			return "", err
		}
		return "", errCut
	}, done
}

// age makes the locks of refs that a killed git has left old. It removes those of the user's own checkout, as git tells the user to.
func (p *place) age() {
	p.t.Helper()
	p.in(p.root, `git worktree list >/dev/null; rm -f .git/index.lock .git/HEAD.lock .git/packed-refs.lock .git/refs/heads/*.lock .git/ORIG_HEAD.lock
find .git/refs .git/logs -name '*.lock' -exec touch -d '1 minute ago' {} +`)
}

// An operation is what is cut off at each of its commands.
type operation struct {
	name   string
	target string // of a landing; "": that of the checkout
	begin  func(p *place)
	do     func(p *place, tree *worktree.Tree) error // also to be done again
}

func operations() (list []operation) {
	worked := func(p *place) {
		tree := p.session("web")
		p.work(tree, "echo one >b")
		p.in(tree.Path, "rm a; mkdir d; seq 9 >d/c; git add .; git commit -q -m two; git commit -q --amend -m 2; echo x >d/x")
		p.in(p.root, "git branch other; echo mine >c; git add c; git commit -q -m mine; echo untracked >u")
	}
	saved := func(p *place) { worked(p); p.save(p.tree("web")) }
	list = append(list, operation{"make", "", func(*place) {}, func(p *place, tree *worktree.Tree) error {
		_, err := tree.Make(p.run, "web", "", now, func() error { return nil })
		return err
	}}, operation{"save", "", worked, func(p *place, tree *worktree.Tree) error {
		_, err := tree.Save(p.run, "work of web", &worktree.Author{})
		return err
	}}, operation{"save elsewhere", "", func(p *place) {
		worked(p)
		p.in(p.tree("web").Path, "git checkout -q -b mine main && echo more >e && git add e && git commit -q -m more && echo f >f")
	}, func(p *place, tree *worktree.Tree) error {
		_, err := tree.Save(p.run, "work of web", &worktree.Author{})
		return err
	}}, operation{"make anew", "", func(p *place) {
		saved(p)
		p.in(p.tree("web").Path, "git checkout -q --detach && echo more >e && git add e && git commit -q -m more && rm -r $PWD && cd "+p.root+" && git update-ref -d refs/heads/stint/web")
	}, func(p *place, tree *worktree.Tree) error {
		_, err := tree.Make(p.run, "web", "", now, func() error { return nil })
		return err
	}}, operation{"drop", "", saved, func(p *place, tree *worktree.Tree) error { return tree.Drop(p.run, now, true) }})
	for _, target := range []string{"", "other"} {
		for _, mode := range []worktree.Mode{worktree.Squash, worktree.Merge, worktree.Rebase} {
			land := func(p *place, tree *worktree.Tree) error {
				_, err := p.land(tree, worktree.Options{Mode: mode, Onto: target})
				return err
			}
			list = append(list, operation{string(mode) + " " + target, target, saved, land})
			if mode == worktree.Squash {
				list = append(list, operation{"undo " + target, target, func(p *place) { saved(p); must(p.t, land(p, p.tree("web"))) }, func(p *place, tree *worktree.Tree) error {
					_, err := tree.Undo(context.Background(), p.run)
					return err
				}})
			}
		}
	}
	return append(list, operation{"conflict", "", func(p *place) { saved(p); p.in(p.root, "echo other >b; git add b; git commit -q -m b") }, func(p *place, tree *worktree.Tree) error {
		_, err := p.land(tree, worktree.Options{})
		if _, ok := errors.AsType[*worktree.ConflictError](err); ok {
			err = nil
		}
		return err
	}})
}

// tree returns the worktree of a session, as somebody sees it who has just begun.
func (p *place) tree(name string) *worktree.Tree {
	p.t.Helper()
	tree, err := p.trees.At(name, p.root)
	must(p.t, err)
	return tree
}

// outcome is what must be the same with and without a cut: all but the ids, and what is kept beside the branches.
func (p *place) outcome() string {
	p.t.Helper()
	return p.in(p.root, `git for-each-ref --format='%(refname) %(tree)' refs/heads refs/stint/tip refs/stint/landed
for b in main other stint/web; do git log --format="$b %s" $b 2>/dev/null || :; done; git worktree list | sed 's/ .*//'; find `+p.trees.Dir+`/web -type f ! -path '*/.git' 2>/dev/null | sort | xargs md5sum; git -C `+p.trees.PathOf("web", p.root)+` status --porcelain 2>/dev/null; :`) + "\n" + p.files()
}

// TestCutOffAnywhere cuts each operation at each of its commands. Nothing is lost, and whoever does it again arrives where
// it ends undisturbed. STINT_TEST_CUTS is the share of the cuts in percent, as all take minutes.
func TestCutOffAnywhere(t *testing.T) {
	t.Parallel()
	share, seed := number(t, "STINT_TEST_CUTS", 6), number(t, "STINT_TEST_SEED", 1)
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			op.begin(p)
			p.in(p.home, "mkdir ../keep && cp -a . ../keep")
			reset := func() {
				p.run = p.shell
				p.in("/", "find "+p.home+" -mindepth 1 -delete && cp -a "+p.home+"/../keep/. "+p.home)
			}
			start, known := p.files(), p.commits(kept)
			run, total := p.cutAt(before, 1000, 0)
			p.run = run
			begun := time.Now()
			must(t, op.do(p, p.tree("web")))
			took := time.Since(begun) / time.Duration(*total)
			again := func() error { // as the next run, and the user
				tree := p.tree("web")
				if op.name != "drop" && op.name != "make" {
					_, err := tree.Make(p.run, "web", "", now, func() error { return nil })
					must(t, err)
					p.save(tree)
				}
				return op.do(p, tree)
			}
			want, end := p.outcome(), p.files()
			for n := range *total {
				for _, how := range []cut{before, after, kill} {
					if (n*7+int(how)*13+seed*31)*37%100 >= share {
						continue
					}
					when := fmt.Sprintf("%s, cut %d at command %d of %d", op.name, how, n, *total)
					reset()
					p.run, _ = p.cutAt(how, n, took*time.Duration((n*31+seed)%7+1)/8)
					err := op.do(p, p.tree("web"))
					p.run = p.shell
					p.age()
					known.check(p, when)
					if got := p.files(); how != kill && got != start && got != end {
						t.Fatalf("%s: the checkout has\n%s\nand not\n%s", when, got, start)
					}
					made := p.commits(all)
					errAgain := again()
					made.check(p, when+", then done again")
					if got := p.outcome(); got != want {
						t.Fatalf("%s (%v), then done again (%v):\n%s\n\nand undisturbed:\n%s", when, err, errAgain, got, want)
					}
				}
			}
		})
	}
}

// TestHalfCheckedOut: git is killed with some files of a landing written and others not.
func TestHalfCheckedOut(t *testing.T) {
	t.Parallel()
	for _, half := range []struct{ name, at, dir, files, refuse string }{
		{"worktree", "(build ", "tree", "echo mine >c; echo new >x; touch $(git rev-parse --git-path index.lock)", ""},
		{"checkout", "at_root; move ", "root", "sed -i s/5/five/ a; echo 1 >b", ""},
		{"moved checkout", "at_root; move ", "root", "git read-tree -m -u main $(git -C $TREE rev-parse HEAD)", ""},
		{"edited checkout", "at_root; move ", "root", "sed -i s/5/five/ a; echo 1 >b; echo mine >>c", "has changes that are not committed"},
	} {
		t.Run(half.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tree := p.session("web")
			p.work(tree, "echo 1 >b; echo 2 >d; sed -i s/5/five/ a")
			p.in(p.root, "echo mine >c; git add c; git commit -qm c")
			dirs := map[string]string{"tree": tree.Path, "root": p.root}
			killed := false
			p.run = func(command, stdin string) (string, error) {
				if killed = killed || strings.Contains(command, half.at); !killed {
					return p.shell(command, stdin)
				}
				return "", errCut
			}
			_, err := p.land(tree, worktree.Options{})
			if !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			p.in(dirs[half.dir], "TREE="+tree.Path+"; "+half.files)
			p.run = p.shell
			edited, made := p.files(), p.commits(all)
			tree = p.tree("web")
			p.save(tree)
			if got := p.in(tree.Path, "git log --format=%s; git status --porcelain; ls"); got != "work of web\nstart\na\nb\nd" {
				t.Fatal(got)
			}
			made.check(p, "saved")
			_, err = p.land(tree, worktree.Options{})
			if half.refuse != "" {
				if got := p.files(); err == nil || !strings.Contains(err.Error(), half.refuse) || got != edited {
					t.Fatalf("%v, %s", err, got)
				}
				return
			}
			must(t, err)
			if got := p.in(p.root, "git log --format=%s; git status --porcelain; ls"); got != "work of web\nc\nstart\na\nb\nc\nd" {
				t.Fatal(got)
			}
		})
	}
}

// TestGoneBeforeItWasSaved: what an agent has committed on its branch is known, though its worktree is gone.
func TestGoneBeforeItWasSaved(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"git worktree remove --force .", "cd ..; rm -r $OLDPWD; git -C $HOME/shop worktree prune", "cd ..; rm -r $OLDPWD"} {
		p := newPlace(t)
		tree := p.session("web")
		p.in(tree.Path, "echo 1 >b; git add b; git commit -qm one; git commit -q --amend -m two")
		made := p.commits(all)
		p.in(tree.Path, gone)
		p.save(tree)
		p.in(p.root, "git worktree prune; git branch -q -D stint/web; git reflog expire --expire=now --all; git gc --prune=now -q")
		made.check(p, gone)
	}
}
