package checkout

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/state"
)

// A repo is a git checkout with the file a, which is committed.
type repo struct {
	t    testing.TB
	root string
	kept string
}

const commit = "git -c user.name=ana -c user.email=ana@localhost commit -q"

func newRepo(t testing.TB, options string) *repo {
	r := &repo{t, filepath.Join(t.TempDir(), "shop é"), t.TempDir()}
	if err := os.Mkdir(r.root, 0o700); err != nil {
		t.Fatal(err)
	}
	r.run("git init -q " + options + " . && printf '1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n' >a && git add . && " + commit + " -m start")
	return r
}

// run runs a command in the checkout and returns what it prints.
func (r *repo) run(command string) string {
	r.t.Helper()
	out, err := r.try(command, "")
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	return out
}

func (r *repo) try(command, stdin string) (string, error) { return r.in(r.root, command, stdin) }

func (r *repo) in(dir, command, stdin string) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return string(out), err
}

func (r *repo) place() *Place {
	return &Place{Root: r.root, Dir: r.t.TempDir(), Kept: r.kept}
}

// changed lets a command change the checkout between two snapshots, as an attempt does, and
// returns the two trees and the files.
func (r *repo) changed(command string) (before, after string, list []state.FileChange) {
	r.t.Helper()
	before = strings.TrimSpace(r.run(r.place().Begin("run")))
	r.run(command)
	out := r.run(r.place().End("run", before))
	after, rest, _ := strings.Cut(out, "\n")
	return before, after, ParseChanges(rest)
}

// private returns what of a checkout is the user's alone: index, HEAD, refs, logs and stash.
func (r *repo) private() string {
	return r.run(`for f in $(git rev-parse --git-path index); do [ ! -e $f ] || { cksum <$f; ls -li --time-style=full-iso $f; }; done
cat .git/HEAD 2>/dev/null; git for-each-ref --format='%(refname) %(objectname)' | grep -v ^refs/stint; find $(git rev-parse --git-common-dir)/logs -type f 2>/dev/null | sort | xargs -r cksum; git stash list; ls $(git rev-parse --git-dir) | grep -v COMMIT`)
}

func file12MiB(name string) string {
	return "dd if=/dev/zero of=" + name + " bs=1048576 count=12 2>/dev/null"
}

const submodule = "git init -q ../lib && (cd ../lib && echo 1 >l && git add . && " + commit + " -m lib) && git -c protocol.file.allow=always submodule --quiet add ../lib lib && " + commit + " -m sub"

// TestChanges: what a snapshot sees in every kind of checkout and of change; nothing of the user's is
// touched, and what an attempt has changed can be reversed exactly.
func TestChanges(t *testing.T) {
	t.Parallel()
	one := func(path, change string, added, removed int) []state.FileChange {
		return []state.FileChange{{Path: path, Change: change, Added: added, Removed: removed}}
	}
	for name, c := range map[string]struct {
		before, does string
		want         []state.FileChange
		left         bool // b stays as it is
		options      string
	}{
		"nothing":                    {"", "touch a", nil, false, ""},
		"modified":                   {"", "echo 10 >>a", one("a", "modified", 1, 0), false, ""},
		"staged":                     {"", "echo 10 >>a; git add a", one("a", "modified", 1, 0), false, ""},
		"committed":                  {"", "echo 10 >>a; " + commit + " -am more", one("a", "modified", 1, 0), false, ""},
		"changed before":             {"echo 10 >>a", "echo 11 >>a", one("a", "modified", 1, 0), false, ""},
		"new":                        {"", "mkdir d; echo 1 >d/b", one("d/b", "added", 1, 0), false, ""},
		"a strange name":             {"", "mkdir 'x :(top)*'; echo 1 >\"x :(top)*/$(printf 'a\\nb \"é')\"; echo 1 >-n", []state.FileChange{{Path: "-n", Change: "added", Added: 1}, {Path: "x :(top)*/a\nb \"é", Change: "added", Added: 1}}, false, ""},
		"untracked before":           {"printf '1\\n2\\n' >b", "echo 3 >>b", one("b", "modified", 1, 0), false, ""},
		"untracked, gone":            {"umask 077; printf '1\\n2\\n' >b", "rm b", one("b", "deleted", 0, 2), false, ""},
		"untracked, added":           {"printf '1\\n2\\n' >b", "git add b", nil, false, ""},
		"untracked, ignored":         {"echo 1 >b", "echo b >>.git/info/exclude", nil, false, ""},
		"ignored by the attempt":     {"umask 077; echo 1 >b; echo 1 >e; mkdir d; echo 1 >d/f", "echo 2 >>b; rm e; printf 'b\\ne\\nd\\nn\\n' >.gitignore; git rm -q --cached a; echo a >>.gitignore; echo 10 >>a; echo 1 >d/n; echo 1 >n; rm n d/n", []state.FileChange{{Path: ".gitignore", Change: "added", Added: 5}, {Path: "a", Change: "modified", Added: 1}, {Path: "b", Change: "modified", Added: 1}, {Path: "e", Change: "deleted", Removed: 1}}, false, ""},
		"ignored, added":             {"echo b >.git/info/exclude", "echo 1 >b; git add -f b", one("b", "added", 1, 0), true, ""},
		"ignored no more":            {"umask 077; echo b >.gitignore; echo 1 >b", "rm .gitignore", []state.FileChange{{Path: ".gitignore", Change: "deleted", Removed: 1}, {Path: "b", Change: "added", Added: 1}}, true, ""},
		"ignored":                    {"echo '*.log' >.git/info/exclude; echo 1 >x.log", "echo 2 >>x.log; echo 1 >y.log", nil, false, ""},
		"ignored and tracked":        {"echo a >.git/info/exclude", "echo 10 >>a", one("a", "modified", 1, 0), false, ""},
		"deleted":                    {"", "rm a", one("a", "deleted", 0, 9), false, ""},
		"renamed":                    {"", "mv a b", []state.FileChange{{Path: "b", From: "a", Change: "renamed"}}, false, ""},
		"mode":                       {"", "chmod +x a", one("a", "modified", 0, 0), false, ""},
		"a name like an option":      {"mkdir z; echo 1 >z/b; cp a ./-R; git add . && " + commit + " -m more; rm -r z; echo 1 >z; chmod 600 z", "rm ./-R z", []state.FileChange{{Path: "-R", Change: "deleted", Removed: 9}, {Path: "z", Change: "deleted", Removed: 1}}, false, ""},
		"private":                    {"chmod 640 a; umask 077; echo 1 >b", "chmod ug+x a; echo 10 >>a; echo 2 >>b", []state.FileChange{{Path: "a", Change: "modified", Added: 1}, {Path: "b", Change: "modified", Added: 1}}, false, ""},
		"a link":                     {"", "ln -s /etc/passwd b", one("b", "added", 1, 0), false, ""},
		"a file becomes a link":      {"", "rm a; ln -s /etc/passwd a", one("a", "modified", 1, 9), false, ""},
		"a file becomes a directory": {"umask 077; echo 1 >b", "rm b; mkdir b; echo 1 >b/c", []state.FileChange{{Path: "b/c", From: "b", Change: "renamed"}}, false, ""},
		"a directory becomes a file": {"umask 077; mkdir b; echo 1 >b/c", "rm -r b; echo 1 >b", []state.FileChange{{Path: "b", From: "b/c", Change: "renamed"}}, false, ""},
		"a directory becomes a link": {"mkdir b ../e; (umask 077; echo 1 >b/c); echo 1 >../e/c; echo 1 >b/t; cp b/t ../e; git add b/t", "mv b ../was; ln -s ../e b", []state.FileChange{{Path: "b", Change: "added", Added: 1}, {Path: "b/c", Change: "deleted", Removed: 1}, {Path: "b/t", Change: "deleted", Removed: 1}}, false, ""},
		"binary":                     {"", "printf 'a\\0b' >b", []state.FileChange{{Path: "b", Change: "added", Binary: true}}, false, ""},
		"large and new":              {"", file12MiB("b"), one("b", "added", 1, 0), true, ""},
		"large":                      {file12MiB("b"), "touch -t 202001010000 b", one("b", "modified", 1, 1), true, ""},
		"large and tracked":          {file12MiB("b") + "; git add b", "echo >>b", []state.FileChange{{Path: "b", Change: "modified", Binary: true}}, false, ""},
		"large, and more":            {"", "echo 10 >>a; " + file12MiB("b"), []state.FileChange{{Path: "a", Change: "modified", Added: 1}, {Path: "b", Change: "added", Added: 1}}, true, ""},
		"large, gone":                {file12MiB("b"), "rm b", one("b", "deleted", 0, 1), true, ""},
		"large, now binary":          {file12MiB("b"), "printf 'a\\0b' >b", []state.FileChange{{Path: "b", Change: "modified", Binary: true}}, true, ""},
		"grown large":                {"echo 1 >b", file12MiB("b"), one("b", "modified", 1, 1), true, ""},
		"a nested repository":        {"", "git init -q n; echo 1 >n/x", nil, false, ""},
		"submodule":                  {submodule, "echo 2 >>lib/l; echo 10 >>a", one("a", "modified", 1, 0), false, ""},
		"no commit":                  {"rm -rf .git; git init -q", "echo 10 >>a", one("a", "modified", 1, 0), false, ""},
		"no commit, staged":          {"rm -rf .git; git init -q; git add a", "rm a", one("a", "deleted", 0, 9), false, ""},
		"a merge that stopped":       {"git checkout -q -b x; echo x >a; " + commit + " -am x; git checkout -q -; echo y >a; " + commit + " -am y; git -c user.name=ana -c user.email=ana@localhost merge x >/dev/null || :", "echo z >a", one("a", "modified", 1, 5), false, ""},
		"line ends":                  {"echo '* text=auto eol=crlf' >.gitattributes; rm a; git checkout -q a; git add .", "printf '10\\r\\n' >>a", one("a", "modified", 1, 0), false, ""},
		"a large file with a filter": {"git config filter.up.clean 'tr a-z A-Z'; echo '* filter=up' >.gitattributes; echo x >a; " + file12MiB("b") + "; git add .", "echo y >>a; git add a; echo >>b", []state.FileChange{{Path: "a", Change: "modified", Added: 1}, {Path: "b", Change: "modified", Added: 1, Removed: 1}}, true, ""},
		"a filter":                   {"git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z'; echo '*.u filter=up' >.gitattributes; echo x >b.u; git add .", "echo y >>b.u", one("b.u", "modified", 1, 0), false, ""},
		"core.safecrlf":              {"git config core.autocrlf input; git config core.safecrlf true; printf 'a\\r\\n' >b", "echo 10 >>a", one("a", "modified", 1, 0), false, ""},
		"core.symlinks":              {"ln -s a b; git add b", "git config core.symlinks false; rm b; printf a >b", one("b", "modified", 0, 0), false, ""},
		"large, with an encoding":    {"echo 'b text working-tree-encoding=UTF-16LE' >.gitattributes; " + file12MiB("b"), "touch -t 202001010000 b", one("b", "modified", 1, 1), true, ""},
		"split index":                {"git config core.splitIndex true; git update-index --split-index", "echo 10 >>a", one("a", "modified", 1, 0), false, ""},
		"sha256":                     {"", "echo 10 >>a; echo 1 >b", []state.FileChange{{Path: "a", Change: "modified", Added: 1}, {Path: "b", Change: "added", Added: 1}}, false, "--object-format=sha256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, c.options)
			if c.before != "" {
				r.run(c.before)
			}
			list := "find . -path ./.git -prune -o ! -type d -print | grep -v -e ^./lib/ -e ^./n/ -e log$ | LC_ALL=C sort | while read -r f; do ls -l --time-style=+ \"$f\"; [ -L \"$f\" ] || cksum <\"$f\"; done"
			if c.left {
				list = strings.Replace(list, "-v", "-v -e ^./b", 1)
			}
			files, private := r.run(list), ""
			before, after, got := r.changed(c.does)
			if !cmp.Equal(got, c.want) {
				t.Errorf("got %+v", got)
			}
			private = r.private()
			r.run(r.place().Begin("again"))
			undone, left, err := r.place().Undo(r.try, before, after, func() error { return nil })
			if now := r.run(list); err != nil || now != files || c.left != (len(left) == 1 && left[0][:3] == "b: ") {
				t.Errorf("undo: %q, %v\n%s", undone, err, cmp.Diff(files, now))
			}
			if now := r.private(); now != private {
				t.Errorf("the user's own was touched: %s", cmp.Diff(private, now))
			}
		})
	}
}

// TestSpecialFile: a FIFO in the place of a file counts as nothing, and the rest is recorded.
func TestSpecialFile(t *testing.T) {
	t.Parallel()
	r := newRepo(t, "")
	_, _, got := r.changed("rm a; mkfifo a; echo 1 >b")
	if want := []state.FileChange{{Path: "a", Change: "deleted", Removed: 9}, {Path: "b", Change: "added", Added: 1}}; !cmp.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

// TestTrackedNoMore: a snapshot forgets what the user's index has forgotten and git ignores.
func TestTrackedNoMore(t *testing.T) {
	t.Parallel()
	r := newRepo(t, "")
	r.run("echo a >.git/info/exclude; echo 10 >>a")
	r.run(r.place().Begin("first"))
	r.run("git rm -q --cached a")
	if _, _, got := r.changed("echo 11 >>a"); got != nil {
		t.Errorf("got %+v", got)
	}
}

// TestUndoLater: what has changed since an attempt is merged, or it is refused with a list, and nothing
// is changed then.
func TestUndoLater(t *testing.T) {
	t.Parallel()
	const lines = "sed -e 's/^1$/one/' a >x; cat x >a; rm x" // the first line
	for name, c := range map[string]struct{ before, does, later, shows, want, refused string }{
		"in other lines":       {"", lines, "echo 10 >>a", "cat a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", ""},
		"in the same lines":    {"", lines, "sed -i.x -e 's/^one$/uno/' a; rm a.x", "head -1 a", "uno\n", "a: it has changed since, in the same lines"},
		"in another file":      {"", lines, "echo 1 >b", "head -1 a; cat b", "1\n1\n", ""},
		"reversed already":     {"", lines, "git checkout -q a", "head -1 a", "1\n", ""},
		"one of two":           {"", lines + "; echo 1 >b", "echo 2 >>b; rm a", "cat b; ls", "1\n2\nb\n", "a: it has changed since; b: it has changed since"},
		"a mode":               {"", lines, "chmod +x a", "head -1 a; test -x a && echo x", "1\nx\n", ""},
		"now ignored":          {"", "rm a", "echo a >.git/info/exclude; git rm -q --cached a; echo secret >a", "cat a", "secret\n", "a: something is there that git ignores"},
		"an ignored directory": {"", "rm a", "echo a >.git/info/exclude; git rm -q --cached a; mkdir a; echo secret >a/s", "cat a/s", "secret\n", "a: something is there that git ignores"},
		"was ignored":          {"echo b >.gitignore; echo secret >b", "rm .gitignore", "", "cat .gitignore b", "b\nsecret\n", ""},
		"was ignored, again":   {"echo b >.gitignore; echo secret >b; echo 1 >c", "rm .gitignore; echo 2 >c", "echo b >.gitignore", "cat .gitignore b c", "b\nsecret\n1\n", ""},
		"a link above it":      {"mkdir d; echo 1 >d/b", "echo 2 >>d/b; echo 3 >d/c", "mv d ../e; ln -s ../e d", "cat ../e/b; ls ../e; readlink d", "1\n2\nb\nc\n../e\n", "d/b: d is no directory now"},
		"a link to a deleted":  {"mkdir d; echo 1 >d/b", "rm -r d", "mkdir -p ../e; ln -s ../e d", "ls ../e; readlink d", "../e\n", "d/b: d is no directory now"},
		"a link in its place":  {"", lines, "cp a ../e; rm a; ln -s ../e a", "head -1 ../e; readlink a", "one\n../e\n", "a: it has changed since"},
		"moved away":           {"", lines, "mv a b", "head -1 b", "one\n", "a: it has changed since"},
		"a write that fails":   {"ln -s gone y.f", lines + "; rm y.f; echo 2 >y.f; mkdir d; echo 1 >d/n", "o=$(printf gone | git hash-object --stdin); r=${o#??}; rm -f .git/objects/${o%$r}/$r", "head -1 a; cat y.f d/n", "one\n2\n1\n", "unable to read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, "")
			r.run(c.before)
			before, after, _ := r.changed(c.does)
			r.run(c.later)
			private := r.private()
			undone, _, err := r.place().Undo(r.try, before, after, func() error { return nil })
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("undo: %q, %v", undone, err)
			}
			if got := r.run(c.shows); got != c.want {
				t.Errorf("got %q", got)
			}
			if now := r.private(); now != private {
				t.Errorf("the user's own was touched: %s", cmp.Diff(private, now))
			}
		})
	}
}

// TestUndoBreaksOff: an undo that is refused, that meets a file which is saved meanwhile, or cannot write
// one, leaves all files as they are, and nothing of its own. If it is killed, or a file cannot go back, what
// was there is in the directory was, which the next undo names and no snapshot has. An undo that was made
// before has nothing left to do.
func TestUndoBreaksOff(t *testing.T) {
	t.Parallel()
	r := newRepo(t, "")
	r.run("mkdir -m 700 d; echo 1 >d/n; echo 1 >z; ln -s gone y")
	before, after, _ := r.changed("echo 10 >>a; echo 2 >d/n; rm z y; echo 1 >y; mkdir e; echo 1 >e/f")
	const list = "ls -A; ls -ld --time-style=+ . d e | cut -c1-10; ls -l --time-style=full-iso a d/n y e/f; cat a d/n y e/f"
	was := r.run(list)
	none := func() error { return nil }
	const moveBack = " && cd .stint-undo-*/was && find . ! -type d -exec mv {} ../../{} ';' && rm -r ../../.stint-undo-*"
	for name, c := range map[string]struct {
		command           int // after which spoil runs: 2 puts all in place, 3 looks at what was there
		spoil, mend, want string
	}{
		"a directory went away":   {2, "mv d d.x; echo x >d", "rm d; mv d.x d", "not a directory"},
		"a file came":             {2, "echo x >z", "rm z", "something new is at z"},
		"a file became another":   {2, "mv y y.x; mkdir y; echo x >y/x", "rm -r y; mv y.x y", "something new is at y"},
		"what it was to put back": {2, "rm -r .stint-undo-*/3/y", "", "3/y"},
		"a file is saved":         {2, "cp -p a a.x; echo 11 >>a", "grep -q 11 a && mv a.x a", "nothing was undone: a: it is changing now"},
		"a file is saved late":    {3, "echo 11 >a", "grep -q 11 a && rm a" + moveBack, "was/a could not be moved back to a"},
		"killed":                  {3, "", "test ! -e a && grep -q 10 .stint-undo-*/was/a" + moveBack, "if none is, the files of before it are in "},
	} {
		n := 0
		undo := func() (undone, left []string, err error) {
			defer func() { _ = recover() }()
			return r.place().Undo(func(command, stdin string) (string, error) {
				out, err := r.try(command, stdin)
				if n++; n == c.command && c.spoil == "" {
					panic("killed")
				} else if n == c.command {
					r.run(c.spoil)
				}
				return out, err
			}, before, after, none)
		}
		undone, _, err := undo()
		if c.spoil == "" {
			undone, _, err = undo()
		}
		if r.run(c.mend); undone != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, undone, err)
		}
		if now := r.run(list); now != was {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(was, now))
		}
	}
	busy := func() error { return errors.New("a task runs") }
	if undone, _, err := r.place().Undo(r.try, before, after, busy); err == nil || undone != nil || r.run(list) != was {
		t.Errorf("%q, %v", undone, err)
	}
	for _, want := range [][]string{{"a", "d/n", "e/f", "y", "z"}, nil} {
		if undone, _, err := r.place().Undo(r.try, before, after, none); err != nil || !cmp.Equal(undone, want) {
			t.Errorf("%q, %v", undone, err)
		}
	}
	if got := r.run("ls -A | grep -v ^.git$; ls -ld d | cut -c1-10; cat z d/n"); got != "a\nd\ny\nz\ndrwx------\n1\n1\n" {
		t.Errorf("%s", got)
	}
}

// TestRunsNothing: whatever an attempt has configured or put into the checkout, no snapshot, diff or undo
// runs it, or waits for it.
func TestRunsNothing(t *testing.T) {
	t.Parallel()
	evil := "printf '#!/bin/sh\\ntouch \"%s/../ran\"\\nexit 1\\n' \"$PWD\" >../evil; chmod +x ../evil; e=$(cd ..; pwd)/evil; "
	for name, c := range map[string]struct{ setup, refused string }{
		"a filter":                         {`git config "filter.x'\$(a)\".z.clean" "sh '$e'"; git config "filter.x'\$(a)\".z.smudge" "sh '$e'"; printf "%s\n" "* filter=x'\$(a)\".z" >.git/info/attributes; touch a; echo 1 >b`, ""},
		"a filter process":                 {`git config filter.p.process "sh '$e'"; git config filter.p.required true; echo "* filter=p" >.git/info/attributes; touch a; echo 1 >b`, ""},
		"a filter of no name":              {`git config filter..clean "sh '$e'"; echo '* filter=' >.git/info/attributes`, ""},
		"a filter, and a repository below": {`git config filter.p.process "sh '$e'"; echo "* filter=p" >.git/info/attributes; touch a; echo 1 >b; mkdir s && cp -r .git/HEAD .git/refs s && mkdir s/objects && git config -f s/config core.repositoryFormatVersion 0`, ""},
		"fsmonitor":                        {`git config core.fsmonitor "sh '$e'"; ` + file12MiB("big"), ""},
		"a promisor":                       {`git config extensions.partialClone o; git config core.repositoryFormatVersion 1; git config remote.o.promisor true; git config protocol.ext.allow always; git config remote.o.url "ext::$e"; rm -rf .git/objects/??`, "bad object"},
		"excludes without end":             {"git config core.excludesFile /dev/zero", ""},
		"excludes from a pipe":             {"mkfifo ../pipe; git config core.excludesFile \"$PWD/../pipe\"", ""},
		"a pipe for an exclude":            {"rm -f .git/info/exclude; mkfifo .git/info/exclude", "is no file"},
		"a pipe for a .gitignore":          {"mkfifo .gitignore", "is no file"},
		"a pipe for a .gitattributes":      {"rm -f .gitattributes; mkfifo .gitattributes", "is no file"},
		"a device for an index":            {"ln -sf /dev/zero .git/index", "is no file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, "")
			before, after, _ := r.changed("echo 10 >>a")
			r.run(evil + c.setup)
			run := func(command, stdin string) (string, error) {
				return r.try("[ ! -d s ] || cd s\n"+command, stdin)
			}
			tree, err := run(r.place().Begin("other"), "")
			if err == nil {
				_, err = run(r.place().End("other", before), "")
			}
			if err == nil {
				_, err = run(Diff(r.root, before, strings.TrimSpace(tree), false), "")
			}
			if err == nil {
				_, _, err = r.place().Undo(run, before, after, func() error { return nil })
			}
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(r.root), "ran")); err == nil {
				t.Error("it was run")
			}
		})
	}
}

// TestManyUntracked: of untracked files that come to more than 256 MiB the largest are recorded by size and time
// only, and stay so while they do not change, whatever else does.
func TestManyUntracked(t *testing.T) {
	t.Parallel()
	r := newRepo(t, "")
	sparse := func(names string) string {
		return "for f in " + names + "; do dd if=/dev/zero of=$f bs=1 count=0 seek=9437184 2>/dev/null; done; "
	}
	r.run("mkdir d; cd d; " + sparse("$(seq 30)") + "echo 1 >small")
	before, after, got := r.changed("echo 10 >>a; echo 2 >>d/small; echo '# none' >.gitignore; git add d/2; touch -t 202001010000 d/1; rm d/[3-9]; " + sparse("e"))
	want := []state.FileChange{{Path: ".gitignore", Change: "added", Added: 1}, {Path: "a", Change: "modified", Added: 1}, {Path: "d/1", Change: "modified", Binary: true}}
	for i := '3'; i <= '9'; i++ {
		want = append(want, state.FileChange{Path: "d/" + string(i), Change: "deleted", Removed: 1})
	}
	want = append(want, state.FileChange{Path: "d/small", Change: "modified", Added: 1}, state.FileChange{Path: "e", Change: "added", Binary: true})
	if !cmp.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	undone, left, err := r.place().Undo(r.try, before, after, func() error { return nil })
	if !cmp.Equal(undone, []string{".gitignore", "a", "d/small", "e"}) || len(left) != 8 || err != nil {
		t.Errorf("%q, %q, %v", undone, left, err)
	}
}

// TestHiddenFromGit: what an attempt tells git to overlook or to replace is seen all the same.
func TestHiddenFromGit(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]string{
		"assume-unchanged": "git update-index --assume-unchanged a",
		"skip-worktree":    "git update-index --skip-worktree a",
		"both":             "git update-index --skip-worktree a; git update-index --assume-unchanged a",
		"a replacement":    "cp a x; echo 10 >>x; git replace $(git hash-object -w x) HEAD:a; rm x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, "")
			before, after, got := r.changed(does + "; echo 10 >>a")
			if diff := r.run(Diff(r.root, before, after, false)); len(got) != 1 || got[0].Added != 1 || !strings.Contains(diff, "\n+10\n") {
				t.Errorf("%+v\n%s", got, diff)
			}
			for _, name := range []string{"index", "base", "excludes", "tree"} {
				if fi, err := os.Stat(filepath.Join(r.kept, name)); err != nil || fi.Mode() != 0o600 {
					t.Errorf("%s: %v, %v", name, fi, err)
				}
			}
		})
	}
}

// TestBadStatData: no configuration lets git overlook a change of a file.
func TestBadStatData(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"core.ignoreStat true", "core.trustCtime false"} {
		r := newRepo(t, "")
		r.run("git config " + setting + "; git config core.checkStat minimal; echo 10 >>a; touch -t 202001010000 a")
		if _, _, got := r.changed("sleep 1; sed s/1/7/ a >../x && cat ../x >a && touch -t 202001010000 a"); len(got) != 1 {
			t.Errorf("%s: %+v", setting, got)
		}
	}
}

// TestRefs: git keeps the trees of the last attempts, through its garbage collection.
func TestRefs(t *testing.T) {
	t.Parallel()
	r := newRepo(t, "")
	r.run("for i in $(seq 1000 1200); do echo create refs/stint/00000000-0000-7000-8000-00000000$i HEAD; done | git update-ref --stdin")
	b := strings.TrimSpace(r.run("git symbolic-ref HEAD"))
	r.run("git symbolic-ref refs/stint/run " + b + "; git symbolic-ref refs/stint/00000000-0000-7000-8000-000000000001 " + b)
	r.changed("git symbolic-ref refs/stint/run " + b)
	before, after, _ := r.changed("echo 10 >>a; echo 1 >b; git symbolic-ref refs/stint/run " + b)
	if n := strings.Fields(r.run("git for-each-ref refs/stint | wc -l; git for-each-ref refs/stint/00000000-0000-7000-8000-000000001000; git log --oneline | wc -l")); !cmp.Equal(n, []string{"201", "1"}) { // the attempt's own too
		t.Errorf("there are %s refs and commits", n)
	}
	r.run("git reflog expire --all --expire=now && git gc -q --prune=now")
	if _, _, err := r.place().Undo(r.try, before, after, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestWorkspaceBelow: of a workspace below the top of a checkout, or in a linked worktree, what lies in it
// counts.
func TestWorkspaceBelow(t *testing.T) {
	t.Parallel()
	r := newRepo(t, "")
	r.run("mkdir s && echo 1 >s/b && git add . && " + commit + " -m s && git worktree add -q ../other")
	r.root = filepath.Join(filepath.Dir(r.root), "other")
	at := func(command string) string {
		out, err := r.in(filepath.Join(r.root, "s"), command, "")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := strings.TrimSpace(at(r.place().Begin("run")))
	r.run("echo 2 >>s/b; echo 1 >s/c; echo 10 >>a; echo 1 >d")
	after, rest, _ := strings.Cut(at(r.place().End("run", before)), "\n")
	want := []state.FileChange{{Path: "b", Change: "modified", Added: 1}, {Path: "c", Change: "added", Added: 1}}
	if got := ParseChanges(rest); !cmp.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	sh := func(command, stdin string) (string, error) { return r.in(filepath.Join(r.root, "s"), command, stdin) }
	if undone, _, err := r.place().Undo(sh, before, after, func() error { return nil }); err != nil || r.run("git status --porcelain") != " M a\n?? d\n" {
		t.Errorf("%q, %v", undone, err)
	}
}

// BenchmarkSnapshot compares snapshots with git status, in a tree of 49,000 files and 1 GB in which 20 files have
// changed and 20 are not tracked: where nothing has changed since the last snapshot, after an attempt that
// changed 20 files more, and where the user's index has changed.
func BenchmarkSnapshot(b *testing.B) {
	r := newRepo(b, "")
	r.run("dd if=/dev/urandom of=x bs=1048576 count=1 2>/dev/null; for d in $(seq 500); do mkdir $d; (cd $d; seq 98 | split -l 1 - f; (echo $d; cat ../x ../x) >big); done; rm x; git -c core.bigFileThreshold=1m -c core.compression=0 add . && " + commit + " -m many; for d in $(seq 20); do echo 1 >>$d/big; echo 1 >$d/new; done; git status >/dev/null")
	before := strings.TrimSpace(r.run(r.place().Begin("warm")))
	for _, c := range []struct {
		name, does string
		snapshot   func(*Place) string
	}{
		{"unchanged", "", func(p *Place) string { return p.Begin("bench") }},
		{"attempt", "for d in $(seq 20); do date +%N >$d/faa; done", func(p *Place) string { return p.End("bench", before) }},
		{"staged", "date +%N >1/faa; git add 1/faa", func(p *Place) string { return p.Begin("bench") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				r.run(c.does)
				begun := time.Now()
				r.run("git status --porcelain >/dev/null")
				status := time.Since(begun)
				command := c.snapshot(r.place())
				begun = time.Now()
				r.run(command)
				ratios = append(ratios, float64(time.Since(begun))/float64(status))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "×status")
		})
	}
}

// FuzzParseChanges: any output is read.
func FuzzParseChanges(f *testing.F) {
	f.Add(":100644 100644 1 2 M\x00a\x00:100644 100644 1 2 R090\x00b\x00c\x001\t2\ta\x00-\t-\t\x00b\x00c\x00")
	f.Add(":1 2 3 4 A\x00")
	f.Fuzz(func(t *testing.T, output string) {
		for _, c := range ParseChanges(output) {
			if c.Change == "" || c.Added < 0 && !strings.Contains(output, "-") {
				t.Errorf("%+v", c)
			}
		}
		readChanges(output)
	})
}

// TestScriptsAreShell: sh reads each script alone.
func TestScriptsAreShell(t *testing.T) {
	for name, text := range map[string]string{"prelude": setUp, "snapshot": snapshot, "stage": stage} {
		cmd := exec.Command("sh", "-n")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil || len(text) < 100 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
