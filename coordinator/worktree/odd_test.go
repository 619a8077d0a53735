package worktree_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/checkout"
	"stint/coordinator/worktree"
)

// hook is a command that makes a hook of the repository.
func hook(name, script string) string {
	return "mkdir -p .git/hooks; printf '#!/bin/sh\n" + script + "\n' >.git/hooks/" + name + "; chmod +x .git/hooks/" + name
}

const signing = `ssh-keygen -q -t ed25519 -N '' -f ~/key; git config gpg.format ssh; git config user.signingKey ~/key.pub; git config commit.gpgSign true; `

// TestOddRepositories lets work land in each of them, or be refused with a sentence.
func TestOddRepositories(t *testing.T) {
	t.Parallel()
	for _, odd := range []struct {
		name   string
		begin  string // in the user's checkout
		agent  string // in the worktree; "": a file and a change
		later  string // in the user's checkout, before it lands
		o      worktree.Options
		refuse string // part of the sentence with which it does not land
		check  string // in the user's checkout, once it has
		want   string // what that prints
	}{
		{name: "plain", check: "cat b; sed -n 5p a; git log --format=%s", want: "new\nfive\nwork of web\nstart"},
		{name: "submodule", begin: "git init -q ../sub; git -C ../sub commit -q --allow-empty -m sub; git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub", check: "cat b; git submodule status | cut -c1; ls -d sub/.git", want: "new\n \nsub/.git"},
		{name: "submodule with other commits", begin: "git init -q ../sub; git -C ../sub commit -q --allow-empty -m sub; git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub", agent: "git -c protocol.file.allow=always submodule --quiet update --init; cd sub; git commit -q --allow-empty -m more", check: "git log -1 --format=%s; git ls-tree HEAD sub | cut -c1-6; git status --porcelain", want: "work of web\n160000\n M sub"},
		{name: "filter", begin: "git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z'; git config filter.up.required true; echo '*.u filter=up' >.gitattributes; echo one >x.u; git add .; git commit -qm u", agent: "echo two >>x.u", check: "cat x.u; git show HEAD:x.u; git status --porcelain", want: "one\ntwo\nONE\nTWO"},
		{name: "filter that fails", begin: "git config filter.up.clean false; git config filter.up.required true", agent: "echo '*.u filter=up' >.gitattributes; echo two >x.u", refuse: "clean filter 'up' failed"},
		{name: "sparse checkout", begin: "mkdir in out; echo 1 >in/x; echo 2 >out/x; git add .; git commit -qm dirs; git sparse-checkout set in 2>/dev/null", agent: "echo more >in/y", check: "ls; git ls-files; git status --porcelain", want: "a\nin\na\nin/x\nin/y\nout/x"},
		{name: "another base", begin: "git tag v1; echo c >c; git add c; git commit -qm c; git config x.base v1", check: "cat b c", want: "new\nc"},
		{name: "unknown base", begin: "git config x.base nowhere", refuse: "nowhere"},
		{name: "unborn", begin: "rm -rf .git; git init -q .", refuse: "has no commit yet"},
		{name: "autocrlf", begin: "git config core.autocrlf true; rm a; git checkout -q -f", agent: `printf 'x\r\ny\r\n' >b; printf '10\r\n' >>a`, check: "git show HEAD:b | od -c | head -1; git status --porcelain", want: "0000000   x  \\n   y  \\n\n"},
		{name: "hook that fails", begin: hook("pre-commit", "echo no such luck; exit 1"), refuse: "no such luck"},
		{name: "hook that rewrites and adds", begin: hook("pre-commit", "echo hook >>b; git add b"), check: "cat b; git status --porcelain", want: "new\nhook"},
		{name: "hook that rewrites and does not add", begin: hook("pre-commit", "echo hook >>b"), check: "cat b; git status --porcelain", want: "new"},
		{name: "hook that leaves something running", begin: hook("post-commit", "sleep 30 &\necho $! >~/pid"), check: "cat b; kill $(cat ~/pid)", want: "new"},
		{name: "hook that leaves a conflict", begin: hook("pre-commit", "for i in 1 2; do echo 100644 $(git rev-parse HEAD:a) $i a; done | git update-index --index-info; exit 1"), refuse: "git could not make the commit"},
		{name: "hook of the message", begin: hook("commit-msg", "echo Signed-off-by: ana >>$1"), check: "git log -1 --format=%B", want: "work of web\nSigned-off-by: ana"},
		{name: "signed", begin: signing, check: "git log -1 --format=%G? --show-signature 2>/dev/null | tail -1; git cat-file commit HEAD | grep -c 'BEGIN SSH'", want: "N\n1"},
		{name: "signed, in a merge", begin: signing + "git config log.showSignature true", o: worktree.Options{Mode: worktree.Merge}, check: "git cat-file commit HEAD | grep -c 'BEGIN SSH'; git cat-file commit HEAD^2 | grep -c 'BEGIN SSH' || :", want: "1\n0"},
		{name: "signed, rebased", begin: signing, later: "echo c >c; git add c; git commit -qm c", o: worktree.Options{Mode: worktree.Rebase}, check: "git cat-file commit HEAD | grep -c 'BEGIN SSH'", want: "1"},
		{name: "signing fails", begin: "git config gpg.format ssh; git config user.signingKey /nowhere; git config commit.gpgSign true", refuse: "/nowhere"},
		{name: "strange names", agent: `echo 1 >'a b'; echo 2 >'"q'\'; echo 3 >"$(printf 'new\nline')"; echo 4 >./-f; echo 5 >"$(printf '\377')"; mkdir -- '-d'; echo 6 >./-d/--; echo 7 >'*'`, check: "git ls-files -z | wc -c; git show HEAD --stat | tail -1; git status --porcelain", want: fmt.Sprint(2+4+4+9+3+2+6+2) + "\n 7 files changed, 7 insertions(+)"},
		{name: "directory for a file", agent: "rm a; mkdir a; echo 1 >a/b", check: "ls -R a; git status --porcelain", want: "a:\nb"},
		{name: "file for a directory", begin: "mkdir d; echo 1 >d/x; git add .; git commit -qm d", agent: "rm -r d; echo 2 >d", check: "cat d; git status --porcelain", want: "2"},
		{name: "link for a directory", begin: "mkdir d; echo 1 >d/x; git add .; git commit -qm d", agent: "rm -r d; ln -s /etc d", check: "readlink d; git status --porcelain", want: "/etc"},
		{name: "executable", agent: "echo x >run; chmod +x run a; ln -s a link", check: "git ls-files -s run a link | cut -c1-6; ls -l a | cut -c4", want: "100755\n120000\n100755\nx"},
		{name: "ignored", begin: "echo '*.o' >.gitignore; git add .; git commit -qm i", agent: "echo 1 >x.o; echo 2 >y", check: "ls; git status --porcelain", want: "a\ny"},
		{name: "merge.ff=no", begin: "git config merge.ff no", check: "git log --format=%s", want: "work of web\nstart"},
		{name: "merge.ff=only", begin: "git config merge.ff only", later: "echo c >c; git add c; git commit -qm c", o: worktree.Options{Mode: worktree.Merge}, check: "cat b c", want: "new\nc"},
		{name: "mergeOptions", begin: "git config branch.main.mergeOptions --squash; git config merge.verifySignatures true", check: "git log --format=%s; git status --porcelain", want: "work of web\nstart"},
		{name: "rebase.updateRefs", begin: "git config rebase.updateRefs true", later: "echo c >c; git add c; git commit -qm c; git branch mine stint/web; git rev-parse mine >../mine", o: worktree.Options{Mode: worktree.Rebase}, check: "git log --format=%s; git rev-parse mine | diff - ../mine", want: "work of web\nc\nstart"},
		{name: "git killed when it made a worktree", begin: "git worktree add -q ../half; cd .git/worktrees/half; : >commondir; touch -d '1 minute ago' commondir", check: "cat b", want: "new"},
		{name: "no reflogs", begin: "git config core.logAllRefUpdates false", check: "cat b", want: "new"},
		{name: "colors", begin: "git config color.ui always; git config status.showUntrackedFiles no; git config diff.noprefix true; git config commit.cleanup strip", check: "cat b", want: "new"},
		{name: "dirty", later: "echo mine >>a", refuse: "has changes that are not committed (M a)"},
		{name: "staged", later: "echo mine >m; git add m", refuse: "has changes that are not committed (A  m)"},
		{name: "untracked in the way", later: "echo mine >b", refuse: "would be overwritten"},
		{name: "untracked beside", later: "echo mine >m", check: "cat b m; git status --porcelain", want: "new\nmine\n?? m"},
		{name: "touched", later: "touch -d tomorrow a", check: "cat b; git status --porcelain", want: "new"},
		{name: "target elsewhere", begin: "git branch other", later: "git worktree add -q ../elsewhere other", o: worktree.Options{Onto: "other"}, refuse: "other is checked out in "},
		{name: "target that nobody has", begin: "git branch other", o: worktree.Options{Onto: "other"}, check: "ls; git show other:b; git log --format=%s main", want: "a\nnew\nstart"},
		{name: "target is rebased", later: "git checkout -q -b side; echo 1 >>a; git commit -qam 1; git checkout -q main; echo 2 >>a; git commit -qam 2; ! git rebase -q side 2>/dev/null >&2", o: worktree.Options{Onto: "main"}, refuse: "a rebase of main is going on"},
		{name: "detached", later: "git checkout -q --detach", refuse: "has no branch checked out"},
		{name: "protected", o: worktree.Options{Protected: []string{"main"}}, refuse: "main is one of protected_branches"},
		{name: "unknown target", o: worktree.Options{Onto: "nowhere"}, refuse: "there is no branch nowhere"},
		{name: "stint's own", o: worktree.Options{Onto: "stint/web"}, refuse: "is stint's own branch"},
		{name: "not committed", agent: "echo 1 >b; git add b; git commit -qm b; echo 2 >b", o: worktree.Options{Mode: "never"}, refuse: "has changes that are not committed: git commit there"},
		{name: "verify fails", o: worktree.Options{Verify: func() error { return fmt.Errorf("not like this") }}, refuse: "not like this"},
		{name: "ignored in the way", begin: "echo b >.gitignore; git add .; git commit -qm i; echo mine >b", agent: "echo new >b; git add -f b", refuse: "would be overwritten: b"},
		{name: "ignored above it", begin: "echo b >.gitignore; git add .; git commit -qm i; echo mine >b", agent: "mkdir b; echo new >b/c; git add -f b", refuse: "would be overwritten: b"},
		{name: "ignored link above it", begin: "mkdir ../out; echo mine >../out/c; ln -s ../out b; echo b >.gitignore; git add .; git commit -qm i", agent: "mkdir b; echo new >b/c; git add -f b", refuse: "exit status 1: what git does not track there would be overwritten: b"},
		{name: "ignored below it", begin: "mkdir d; echo 1 >d/x; echo key >.gitignore; git add .; git commit -qm i; echo mine >d/key", agent: "rm -r d; echo 2 >d", refuse: "would be overwritten: d/key"},
		{name: "branch that stands for another one", begin: "git symbolic-ref refs/heads/trunk refs/heads/main", o: worktree.Options{Onto: "trunk"}, check: "cat b; git status --porcelain", want: "new"},
		{name: "protected, by another name", begin: "git symbolic-ref refs/heads/trunk refs/heads/main", o: worktree.Options{Onto: "trunk", Protected: []string{"main"}}, refuse: "main is one of protected_branches"},
		{name: "conflict without marks", begin: `printf 'a\0' >x; git add x; git commit -qm x`, agent: `printf 'b\0' >x`, later: `printf 'c\0' >x; git commit -qam c`, refuse: "both sides have changed x, and git cannot mark where"},
		{name: "removed on one side", agent: "echo 10 >>a", later: "git rm -q a; git commit -qm r", refuse: "both sides have changed a, and git cannot mark where"},
		{name: "rebase of a merge", agent: "git merge -q --no-ff --no-commit $(git commit-tree -p HEAD -m x 'HEAD^{tree}') >/dev/null; echo 1 >b; git add b; git commit -qm merge", o: worktree.Options{Mode: worktree.Rebase}, refuse: "stint/web has a merge"},
		{name: "hook of the branch", begin: "mkdir h; printf '#!/bin/sh\n' >h/pre-commit; chmod +x h/pre-commit; git add .; git commit -qm h; git config core.hooksPath h", agent: "echo exit 1 >>h/pre-commit", check: "git log -1 --format=%s", want: "work of web"},
		{name: "hook beside the branch", begin: "mkdir h; printf '#!/bin/sh\necho no such luck; exit 1' >h/pre-commit; chmod +x h/pre-commit; git config core.hooksPath h", refuse: "no such luck"},
		{name: "taken for bare", later: "git config core.bare true", refuse: "for a bare repository"},
		{name: "hidden from git", agent: "git update-index --assume-unchanged a; echo 10 >>a", check: "tail -n 1 a", want: "10"},
		{name: "included through a link, or not ignored", begin: "mkdir ../out; ln -s $HOME/out c; git add c; git commit -qm l; git tag v1; git config x.base v1; git rm -q c; mkdir -p c .git/info; echo k >.git/info/exclude; echo .env >.gitignore; printf 'k\n.env\n' >.worktreeinclude; git add .; git commit -qm i; echo s >c/k; echo s >k; echo s >.env", agent: "cat k >b", check: "ls ../out; git show HEAD --name-only --format=; cat b", want: "b\ns"},
		{name: "branch checked out by the user", later: "git worktree remove --force $(git worktree list | sed -n '2s/ .*//p'); git checkout -q stint/web", o: worktree.Options{Onto: "main"}, refuse: "is gone"},
	} {
		t.Run(odd.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.in(p.root, "{ "+odd.begin+"\n:; }")
			tree := p.tree("web")
			_, err := tree.Make(p.run, "web", p.in(p.root, "git config x.base || :"), now, func() error { return nil })
			if err == nil {
				agent := odd.agent
				if agent == "" {
					agent = "echo new >b; sed -i s/5/five/ a"
				}
				p.in(tree.Path, agent)
				author := &worktree.Author{}
				if odd.o.Mode == "never" {
					author, odd.o.Mode = nil, worktree.Squash
				}
				_, err = tree.Save(p.run, "work of web", author)
			}
			before := ""
			if err == nil {
				p.in(p.root, "{ "+odd.later+"\n:; }")
				before = p.files() + p.in(p.root, "git for-each-ref refs/heads")
				_, err = p.land(tree, odd.o)
			}
			if odd.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), odd.refuse) {
					t.Fatalf("%v", err)
				}
				if before != "" && p.files()+p.in(p.root, "git for-each-ref refs/heads") != before {
					t.Fatalf("it was refused, and the checkout is another one: %s", p.files())
				}
				return
			}
			must(t, err)
			if got := p.in(p.root, odd.check); got != strings.TrimSpace(odd.want) {
				t.Fatalf("%s\nand not\n%s", got, odd.want)
			}
			if tree.IsMade() {
				must(t, tree.Drop(p.run, now, true))
			}
		})
	}
}

// TestOddPlaces: a worktree from a linked worktree, in a bare repository, on another file system.
func TestOddPlaces(t *testing.T) {
	t.Parallel()
	for _, odd := range []struct {
		name  string
		begin func(p *place)
		onto  string
	}{
		{"linked", func(p *place) {
			p.in(p.root, "git worktree add -q -b side ../linked")
			p.root = filepath.Join(p.home, "linked")
		}, "side"},
		{"bare", func(p *place) {
			p.in(p.root, "git clone -q --bare . ../bare.git")
			p.root = filepath.Join(p.home, "bare.git")
		}, "main"},
		{"file system", func(p *place) {
			dir, err := os.MkdirTemp("/dev/shm", "stint")
			if err != nil { // where there is no other one
				dir = filepath.Join(p.home, "elsewhere")
			}
			p.t.Cleanup(func() { must(p.t, os.RemoveAll(dir)) })
			p.trees.Dir = filepath.Join(dir, "worktrees")
		}, "main"},
		{"repository beside", func(p *place) { p.in(p.root, "git init -q --separate-git-dir ../beside") }, "main"},
		{"submodule", func(p *place) {
			p.in(p.root, "git init -q ../lib; git -C ../lib commit -q --allow-empty -m lib; git -c protocol.file.allow=always submodule --quiet add ../lib lib; touch lib/a; git -C lib add a; git -C lib commit -qm a")
			p.root = filepath.Join(p.root, "lib")
		}, "main"},
		{"name", func(p *place) {
			p.in(p.root, `git clone -q . "../it's [a] *"`)
			p.root = filepath.Join(p.home, "it's [a] *")
		}, "main"},
	} {
		t.Run(odd.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			odd.begin(p)
			tree := p.session("web")
			must(t, os.WriteFile(filepath.Join(tree.Path, "b"), []byte("new\n"), 0o600))
			p.save(tree)
			r, err := p.land(tree, worktree.Options{})
			must(t, err)
			show := p.command(context.Background(), "git show "+odd.onto+":b")
			show.Dir = p.root
			if got, err := runIn(show, ""); r.Target != odd.onto || err != nil || got != "new\n" {
				t.Fatalf("%+v, %s, %v", r, got, err)
			}
			_, err = tree.Undo(context.Background(), p.run)
			must(t, err)
			must(t, tree.Drop(p.run, now, true))
			if _, err := os.Stat(p.trees.PathOf("web", "")); err == nil {
				t.Fatal("its directory is left")
			}
		})
	}
}

// TestHostileWorktree: what an agent puts where git looks does not run when stint commits, lands and drops.
func TestHostileWorktree(t *testing.T) {
	t.Parallel()
	const config = `git config core.fsmonitor "touch $HOME/ran"; git config core.hooksPath $PWD/.git/h; git config filter.x.clean "touch $HOME/ran"; git config filter.x.smudge "touch $HOME/ran"; git config diff.external "touch $HOME/ran"; mkdir -p .git/h; for h in post-checkout pre-commit post-commit reference-transaction post-index-change; do printf '#!/bin/sh\ntouch $HOME/ran\n' >.git/h/$h; chmod +x .git/h/$h; done; `
	const repository = "git init -q .; " + config + "git -c core.fsmonitor= -c core.hooksPath=/dev/null commit -q --allow-empty -m own; "
	for name, act := range map[string]string{
		"directory":          "rm .git; " + repository,
		"file":               "rm .git; mkdir $HOME/other; (cd $HOME/other; " + repository + "); echo gitdir: $HOME/other/.git >.git",
		"link":               "rm .git; mkdir $HOME/other; (cd $HOME/other; " + repository + "); ln -s $HOME/other/.git .git",
		"nested":             "mkdir own; (cd own; " + repository + "); echo 1 >own/x",
		"nested for a file":  "rm a; mkdir a; (cd a; " + repository + ")",
		"filter":             "echo '* filter=x diff=x merge=x' >.gitattributes",
		"link to elsewhere":  "cd ..; rm -r $OLDPWD; mkdir $HOME/other; (cd $HOME/other; " + repository + "); ln -s $HOME/other $OLDPWD",
		"link to the user's": "cd ..; rm -r $OLDPWD; ln -s $HOME/shop $OLDPWD",
		"link above it":      "cd ../..; d=$OLDPWD; rm -r ${d%/*}; ln -s $HOME ${d%/*}",
		"file for it":        "cd ..; rm -r $OLDPWD; echo 1 >$OLDPWD",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tree := p.session("web")
			p.work(tree, "echo 1 >kept")
			p.in(tree.Path, act+"\nrm -f $HOME/ran")
			files := p.files()
			ran := func(after string) {
				t.Helper()
				if _, err := os.Stat(filepath.Join(p.home, "ran")); err == nil {
					t.Fatalf("after %s: it ran", after)
				}
				if got := p.files(); got != files {
					t.Fatalf("after %s the user's checkout has\n%s", after, got)
				}
			}
			_, err := tree.Look(p.run)
			ran("looking")
			if name == "link above it" { // which is refused
				_, saveErr := tree.Save(p.run, "work", &worktree.Author{})
				_, makeErr := tree.Make(p.run, "web", "", now, func() error { return nil })
				_, landErr := p.land(tree, worktree.Options{})
				for _, err := range []error{err, saveErr, makeErr, landErr, tree.Drop(p.run, now, true)} {
					if err == nil || !strings.Contains(err.Error(), "remove that link") {
						t.Fatal(err)
					}
				}
				ran("all")
				return
			}
			p.save(tree)
			ran("saving")
			_ = p.look(tree)
			_, err = tree.Make(p.run, "web", "", now, func() error { return nil })
			must(t, err)
			ran("making")
			p.save(tree)
			_, err = p.land(tree, worktree.Options{})
			if name == "nested for a file" { // which is in the way of the file, and stays
				if err == nil || !strings.Contains(err.Error(), "would lose untracked files") {
					t.Fatal(err)
				}
				ran("landing")
				return
			}
			must(t, err)
			if got := p.in(p.root, "cat kept; git status --porcelain; git fsck 2>&1 | grep -v dangling || :"); got != "1" {
				t.Fatal(got)
			}
			files = p.files()
			ran("landing")
			must(t, tree.Drop(p.run, now, true))
			ran("dropping")
		})
	}
}

// TestRepositoriesStay: one in the worktree whose commits nobody else has is named, also where git tracks or ignores it.
func TestRepositoriesStay(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]string{
		"tracked":   "git init -q own; git -C own commit -q --allow-empty -m own; git add own 2>/dev/null",
		"ignored":   "echo own >.gitignore; git init -q own; git -C own commit -q --allow-empty -m own",
		"alternate": "git init -q --bare .own; rm -r .own/refs; echo .own >.gitignore; echo $PWD/.own/objects >>$(git rev-parse --git-common-dir)/objects/info/alternates; echo 1 >b; GIT_ALTERNATE_OBJECT_DIRECTORIES=$HOME/shop/.git/objects GIT_OBJECT_DIRECTORY=.own/objects git add b",
		"submodule": "git init -q $HOME/lib; git -C $HOME/lib commit -q --allow-empty -m lib; git -c protocol.file.allow=always submodule --quiet add $HOME/lib own; git -C own commit -q --allow-empty -m own",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tree := p.session("web")
			p.work(tree, act)
			_, err := p.land(tree, worktree.Options{})
			must(t, err)
			if err := tree.Drop(p.run, now, false); err == nil || !strings.Contains(err.Error(), "own") {
				t.Fatal(err)
			}
			if name == "submodule" {
				p.in(tree.Path, "git -C own push -q origin HEAD:refs/heads/own")
				must(t, tree.Drop(p.run, now, false))
			}
		})
	}
}

// TestManyLandAtOnce: each lands on what the one before has made.
func TestManyLandAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.in(p.root, "git branch other")
	var all sync.WaitGroup
	errs := make(chan error, 10)
	for i := range 10 {
		all.Go(func() {
			errs <- func() error {
				name := fmt.Sprint("s", i)
				tree, err := p.trees.At(name, p.root)
				if err != nil {
					return err
				}
				if _, err = tree.Make(p.run, name, "", now, func() error { return nil }); err != nil {
					return err
				}
				if err = os.WriteFile(filepath.Join(tree.Path, name), []byte(name), 0o600); err != nil {
					return err
				}
				if _, err = tree.Save(p.run, name, &worktree.Author{}); err != nil {
					return err
				}
				o := worktree.Options{Mode: worktree.Squash, Verify: func() error { return nil }}
				if i%3 == 0 {
					o.Onto = "other"
				}
				if _, err = tree.Land(context.Background(), p.run, &o); err != nil {
					return err
				}
				return tree.Drop(p.run, now, false)
			}()
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if got := p.in(p.root, "git log --format=%s main | wc -l; git log --format=%s other | wc -l; git status --porcelain; git for-each-ref refs/heads | wc -l; git worktree list | wc -l"); got != "7\n5\n2\n1" {
		t.Fatal(got)
	}
}

// TestDroppedStaysReachable: for 30 days, and is named before.
func TestDroppedStaysReachable(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tree := p.session("web")
	p.work(tree, "echo 1 >b")
	p.in(tree.Path, "echo 2 >c; git checkout -q --detach; git add .; git commit -qm lost; git checkout -q stint/web; echo rest >left")
	err := tree.Drop(p.run, now, false)
	if err == nil || !strings.Contains(err.Error(), "work of web") || !strings.Contains(err.Error(), "what was not committed") {
		t.Fatal(err)
	}
	made := p.commits(all)
	must(t, tree.Drop(p.run, now, true))
	must(t, p.session("web").Drop(p.run, now, true)) // in the same second
	p.in(p.root, "git reflog expire --expire=now --all && git gc --prune=now -q")
	made.check(p, "dropped")
	p.in(p.root, "git log --all --format= -p | grep '^+rest'")
	for range 2 {
		must(t, p.session("bob").Drop(p.run, now.Add(worktree.KeepDropped-time.Minute), false))
	}
	made.check(p, "dropped for nearly 30 days")
	must(t, p.session("bob").Drop(p.run, now.Add(worktree.KeepDropped+time.Minute), false))
	if got := p.in(p.root, "git for-each-ref refs/stint/dropped/web"); got != "" {
		t.Fatal(got)
	}
}

// TestDropOfWhatIsGone: commits that only stint has named are not dropped without force; where nothing was made, clean removes it.
func TestDropOfWhatIsGone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tree := p.session("web")
	p.work(tree, "echo 1 >b")
	p.in(p.root, "git worktree remove --force '"+tree.Path+"'; git branch -q -D stint/web")
	if err := tree.Drop(p.run, now, false); err == nil || !strings.Contains(err.Error(), "have not landed") {
		t.Fatal(err)
	}
	must(t, tree.Drop(p.run, now, true))
	p.in(p.root, "git branch stint")
	_, err := tree.Make(p.run, "web", "", now, func() error { return nil })
	removed, wrong := p.trees.Clean(context.Background(), func(context.Context, string) checkout.Shell { return p.run }, time.Now(), 0, nil)
	if err == nil || wrong != nil || len(removed) != 1 {
		t.Fatal(err, removed, wrong)
	}
}

// TestTargetMovesMeanwhile: what the user does while the result is verified is not lost, and nothing lands elsewhere.
func TestTargetMovesMeanwhile(t *testing.T) {
	t.Parallel()
	for _, odd := range []struct{ name, begin, meanwhile, onto, refuse, want string }{
		{"commit", "", "echo c >c; git add c; git commit -qm c", "", "", "main: work of web c start; HEAD: work of web c start"},
		{"another branch", "", "git checkout -q -b mine", "", "", "main: work of web start; HEAD: start"},
		{"checked out now", "git branch other", "git checkout -q other", "other", "", "main: start; HEAD: work of web start"},
		{"dirty", "", "echo 1 >>a", "", "has changes that are not committed", "main: start; HEAD: start"},
		{"elsewhere", "git branch other", "git worktree add -q ../elsewhere other", "other", "is checked out in", "main: start; HEAD: start"},
		{"branch moved", "", "git update-ref refs/heads/stint/web main", "", "stint/web", "main: work of web start; HEAD: work of web start"},
		{"always", "", "git commit -q --allow-empty -m again", "", "moves main all the time", "main: again again again again again start; HEAD: again again again again again start"},
	} {
		t.Run(odd.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.in(p.root, odd.begin+"\n:")
			tree := p.session("web")
			p.work(tree, "echo 1 >b")
			done := false
			_, err := p.land(tree, worktree.Options{Onto: odd.onto, Verify: func() error {
				if !done || odd.name == "always" {
					p.in(p.root, odd.meanwhile)
					p.in(tree.Path, "echo verified >>b; echo new >left; git checkout -q --detach main~0 2>/dev/null || :")
				}
				done = true
				return nil
			}})
			if odd.refuse == "" && err != nil || odd.refuse != "" && (err == nil || !strings.Contains(err.Error(), odd.refuse)) {
				t.Fatalf("%v", err)
			}
			if got := p.in(p.root, "echo main: $(git log --format=%s main)'; 'HEAD: $(git log --format=%s); git status --porcelain --untracked-files=no"); strings.TrimSuffix(got, "\n M a") != odd.want {
				t.Fatalf("%s\nand not\n%s (%v)", got, odd.want, err)
			}
			made := p.commits(all)
			p.save(tree)
			made.check(p, "saved")
			if got := p.in(tree.Path, "git branch --show-current; cat b; git status --porcelain"); odd.name != "branch moved" && got != "stint/web\n1" {
				t.Fatalf("the worktree: %s", got)
			}
		})
	}
}

// TestUndoLosesNoCommit: the user commits just before the target moves back.
func TestUndoLosesNoCommit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tree := p.session("web")
	p.work(tree, "echo 1 >b")
	_, err := p.land(tree, worktree.Options{})
	must(t, err)
	done := false
	_, err = tree.Undo(context.Background(), func(command, stdin string) (string, error) {
		if !done && strings.Contains(command, "at_root; move ") {
			done = true
			p.in(p.root, "echo c >c; git add c; git commit -qm c")
		}
		return p.shell(command, stdin)
	})
	if err == nil || !strings.Contains(err.Error(), "has moved on") {
		t.Fatal(err)
	}
	if got := p.in(p.root, "git log --format=%s; git status --porcelain; ls; git -C "+tree.Path+" status --porcelain -b"); got != "c\nwork of web\nstart\na\nb\nc\n## stint/web" {
		t.Fatal(got)
	}
}

// TestBranchOfTheUsers: a branch that the user has checked out is neither dropped nor taken.
func TestBranchOfTheUsers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tree := p.session("web")
	p.work(tree, "echo 1 >b")
	p.in(p.root, "git worktree remove --force "+tree.Path+"; git checkout -q stint/web")
	files := p.files()
	_, err := tree.Make(p.run, "web", "", now, func() error { return nil })
	for _, err := range []error{err, tree.Drop(p.run, now, true)} {
		if err == nil || !strings.Contains(err.Error(), "stint/web is checked out in "+p.root) {
			t.Fatal(err)
		}
	}
	if got := p.files(); got != files {
		t.Fatal(got)
	}
}

// withGit is shell with a git that first looks at its arguments, with a space behind them, as the branches of a shell's case say.
func (p *place) withGit(branches string) checkout.Shell {
	must(p.t, os.WriteFile(filepath.Join(p.home, "git"), []byte("#!/bin/sh\ncase \"$* \" in "+branches+" esac\nexec /usr/bin/env PATH=\"${PATH#*:}\" git \"$@\"\n"), 0o700))
	return func(command, stdin string) (string, error) { return p.shell("PATH=$HOME:$PATH\n"+command, stdin) }
}

// TestGitThatCannotList: where git does not tell what lies in the way in the checkout, nothing lands over it; nor is
// a worktree dropped in which repositories may lie.
func TestGitThatCannotList(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.in(p.root, "echo b >.gitignore; git add .; git commit -qm ignore; echo mine >b")
	tree := p.session("web")
	p.work(tree, "echo 1 >b; git add -f b")
	_, err := tree.Land(context.Background(), p.withGit(`*'ls-files --others --'*) exit 3 ;;`), &worktree.Options{Verify: func() error { return nil }, Mode: worktree.Squash})
	if err == nil || !strings.Contains(err.Error(), "what git could not list") {
		t.Fatal(err)
	}
	if got := p.in(p.root, "cat b; git log --format=%s"); got != "mine\nignore\nstart" {
		t.Fatal(got)
	}

	other := p.session("other")
	run := p.withGit(`*'update-ref refs/stint/work/'*) touch "$HOME/saved" ;; *'ls-files -z --others'*) [ ! -e "$HOME/saved" ] || exit 3 ;;`)
	if err := other.Drop(run, now, false); err == nil || !strings.Contains(err.Error(), "what git could not list") || !p.tree("other").IsMade() {
		t.Fatal(err)
	}
	must(t, other.Drop(p.run, now, false))
}

// TestGitThatFails: a command of git that fails in the midst of others is not taken for one that finds nothing.
func TestGitThatFails(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"reflog", "rev-list", "ls-files -z --others", "ls-files -z --modified", "update-index", "for-each-ref", "commit-tree", "write-tree", "update-ref"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tree := p.session("web")
			p.work(tree, "echo 1 >b")
			p.in(tree.Path, "git reset -q --hard HEAD~1; echo two >c; echo three >>a")
			run := p.withGit("*' " + name + " '*) exit 3 ;;")
			made := p.commits(all)
			_, err := tree.Save(run, "work", &worktree.Author{})
			if wrong := tree.Drop(run, now, true); err == nil && wrong == nil && name != "reflog" {
				t.Fatal("nothing was wrong")
			}
			made.check(p, "it failed")
			if p.tree("web").IsMade() {
				must(t, p.tree("web").Drop(p.run, now, true))
			}
			p.in(p.root, "git reflog expire --expire=now --all && git gc --prune=now -q")
			made.check(p, "dropped")
			if got := p.in(p.root, "git log --format= --patch --all | grep ^+t"); !strings.Contains(got, "+two") || !strings.Contains(got, "+three") {
				t.Fatalf("what was written: %s", got)
			}
		})
	}
}
