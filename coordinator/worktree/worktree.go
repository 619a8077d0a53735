// Package worktree gives a session a git worktree and a branch of its own, commits what its runs leave there, and lands it
// on another branch. It never loses a commit: what stint has seen on a branch stays reachable from that branch or from a ref
// below refs/stint, whatever an agent or a user does to the branch meanwhile.
//
// A worktree stands for a directory: that of session web for /home/ana/shop is DIR/web/home/ana/shop on the branch stint/web, so
// that the path alone says whose it is ([Origin]). The refs of a branch stint/NAME are
//
//	refs/stint/tip/NAME          the branch after the last run: it comes back if somebody deletes the branch
//	refs/stint/work/NAME/COMMIT  commits that were on the branch, or made in the worktree, and no longer are on it
//	refs/stint/landed/NAME       its last landing: a commit that names and has the result, the target before, and the branch before
//	refs/stint/dropped/NAME/TIME what was dropped, for [KeepDropped]
//
// Everything runs git itself, through a [checkout.Shell], which bounds it. An agent can put any .git into its worktree: git is
// told where the repository is, and never finds out there. Hooks and signing are the user's, and only landing uses them.
package worktree

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/checkout"
	"stint/ledger/durable"
	"stint/ledger/lock"
	"stint/state"
)

const (
	branchPrefix = "stint/"
	heads        = "refs/heads/"
	refs         = "refs/stint/"
	// KeepDropped is how long the commits of a dropped branch stay.
	KeepDropped = 30 * 24 * time.Hour
)

// Trees are the worktrees of a state directory.
type Trees struct {
	State string // directory of what is known of them, inside the state directory: agents cannot write there
	Dir   string // below which they lie: an absolute path without links
}

// A Tree is one worktree. What of it is in capitals stands in its file below [Trees.State].
type Tree struct {
	Name      string    `json:"name"`                // of the session; its branch is stint/NAME
	Lane      string    `json:"lane"`                // key of the lane whose it is
	Root      string    `json:"root"`                // top of the checkout for which it stands
	Path      string    `json:"path"`                // its own top
	Base      string    `json:"base"`                // from which it was made, as it was named
	CreatedAt time.Time `json:"createdAt"`           // first
	Ready     bool      `json:"ready"`               // made and set up: it may have work of an agent's
	Landing   bool      `json:"landing,omitempty"`   // a landing has its files, and nothing was left to commit when that began
	Conflicts int       `json:"conflicts,omitempty"` // tasks in a row that were to resolve the conflicts of a landing

	trees  *Trees
	common string // the repository
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]|\.[a-z0-9_-])*$`) })

// NameOf returns the name of a lane's worktree: that of its session, or the short id of a task that has a lane of its own. What
// cannot be a part of a ref and a file name everywhere is replaced, with a digest, so that two lanes never share one.
func NameOf(lane string) string {
	name, isTask := strings.CutPrefix(lane, state.LanePrefixTask)
	if _, isUUID := state.ParseUUID(name); isTask && isUUID {
		return state.ShortID(name)
	} else if isTask { // a person's, which may be the name of a session
		name = lane
	}
	if plainName().MatchString(name) && len(name) <= 60 && !strings.HasSuffix(name, ".lock") {
		return name
	}
	safe := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-")
	return cmp.Or(safe[:min(len(safe), 40)], "session") + fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:9]
}

// PathOf returns where the worktree of that name has what a directory of a checkout has.
func (s *Trees) PathOf(name, dir string) string { return filepath.Join(s.Dir, name, dir) }

// Origin returns the directory for which one of a worktree stands, and the name of that. ok is false for any other one.
func (s *Trees) Origin(dir string) (name, origin string, ok bool) {
	rest, ok := strings.CutPrefix(dir, s.Dir+"/")
	name, origin, found := strings.Cut(rest, "/")
	return name, "/" + origin, s.Dir != "" && ok && found
}

// At returns the worktree in which a workspace lies, whose checkout has that top, as far as it is known.
func (s *Trees) At(name, root string) (*Tree, error) {
	t := &Tree{trees: s, Name: name, Root: root, Path: s.PathOf(name, root)}
	data, err := durable.ReadFile(durable.OS, t.file(".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		if err = json.Unmarshal(data, t); err == nil && (t.Name != name || t.Root != root) {
			err = errors.New("it is of another worktree")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, and the next run writes it anew", t.file(".json"), err)
	}
	return t, nil
}

// List returns the worktrees that were made and not dropped. A file that cannot be read is an error beside the others.
func (s *Trees) List() (list []*Tree, err error) {
	names, _ := filepath.Glob(filepath.Join(s.State, "*.json")) // the pattern is right
	for _, name := range names {
		var t Tree
		data, wrong := durable.ReadFile(durable.OS, name)
		if wrong == nil {
			wrong = json.Unmarshal(data, &t)
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w; remove it, and the next run writes it anew", name, wrong))
			continue
		}
		t.trees = s
		list = append(list, &t)
	}
	return list, err
}

// Count returns how many worktrees were made and not dropped.
func (s *Trees) Count() int {
	names, _ := filepath.Glob(filepath.Join(s.State, "*.json"))
	return len(names)
}

// Lacks reports whether a task is to work in a worktree that is none of a list.
func (s *Trees) Lacks(list []*Tree, t *state.Task) bool {
	dir := t.Workspace
	_, _, ok := s.Origin(dir)
	if _, isTree := state.WorktreeBase(t.Isolation); isTree && !ok { // a person's
		dir, ok = s.PathOf(NameOf(t.Lane()), dir), true
	}
	return ok && !slices.ContainsFunc(list, func(t *Tree) bool { return dir == t.Path || strings.HasPrefix(dir, t.Path+"/") })
}

// Branch returns the name of its branch.
func (t *Tree) Branch() string { return branchPrefix + t.Name }

// IsMade reports whether it was made, and not dropped.
func (t *Tree) IsMade() bool { return !t.CreatedAt.IsZero() }

func (t *Tree) file(suffix string) string {
	return filepath.Join(t.trees.State, t.Name+"-"+fmt.Sprintf("%x", sha256.Sum256([]byte(t.Root)))[:8]+suffix)
}

func (t *Tree) write() error {
	text, _ := json.MarshalIndent(t, "", "  ") // texts, a time and numbers
	return durable.PutFile(t.file(".json"), append(text, '\n'))
}

// Lock keeps everybody else out of the worktree: a run has it, or a landing. The error is [lock.ErrLocked] when somebody has it.
func (t *Tree) Lock(ctx context.Context, wait time.Duration) (unlock func() error, err error) {
	if unlock, err = t.trees.lock(ctx, t.file(".lock"), wait); err != nil {
		return nil, err
	}
	now, err := t.trees.At(t.Name, t.Root) // as the last one who had it has left it
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	*t = *now
	return unlock, nil
}

func (s *Trees) lock(ctx context.Context, name string, wait time.Duration) (unlock func() error, err error) {
	if err := durable.MkdirAll(durable.OS, s.State); err != nil {
		return nil, err
	}
	return lock.Take(ctx, name, wait)
}

// script has what git does, as functions for the shell.
//
//go:embed worktree.sh
var script string

// sh calls what follows the script, in the shell, and returns what it prints without the last line break.
func (t *Tree) sh(run checkout.Shell, stdin, call string, args ...string) (string, error) {
	out, err := run("root="+state.ShellQuote(t.Root)+" path="+state.ShellQuote(t.Path)+" admin="+state.ShellQuote(t.admin())+" name="+state.ShellQuote(t.Name)+" base="+state.ShellQuote(t.Base)+"\n"+script+call+" "+state.ShellLine(args), stdin)
	return strings.TrimSuffix(out, "\n"), err
}

// git runs git at the top of the checkout for which the worktree stands, here in the worktree.
func (t *Tree) git(run checkout.Shell, args ...string) (string, error) {
	return t.sh(run, "", "at_root; ours", args...)
}

// inTurn is sh for what reads the files of all worktrees. Git fails at one that another git is making, so one runs at a time.
func (t *Tree) inTurn(run checkout.Shell, call string, args ...string) (string, error) {
	free, err := t.queue(context.Background(), "") // what is waited for has a limit
	if err != nil {
		return "", err
	}
	out, err := t.sh(run, "", call, args...)
	return out, errors.Join(err, free())
}

func (t *Tree) here(run checkout.Shell, args ...string) (string, error) {
	return t.sh(run, "", "inside; ours", args...)
}

// ref returns the commit of a ref; "" if there is none.
func (t *Tree) ref(run checkout.Shell, name string) (string, error) {
	return t.sh(run, "", "at_root; ours rev-parse -q --verify "+state.ShellQuote(name+"^{commit}")+" || :")
}

// isAncestor reports whether all commits of one are commits of the other.
func (t *Tree) isAncestor(run checkout.Shell, one, other string) (bool, error) {
	out, err := t.git(run, "rev-list", "--max-count=1", one, "^"+other)
	return out == "", err
}

// find looks up the repository.
func (t *Tree) find(run checkout.Shell) error {
	dir := filepath.Dir(t.Path)
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		return fmt.Errorf("%s leads to %s, and no worktree of stint's: remove that link", dir, real)
	}
	if t.common != "" {
		return nil
	}
	out, err := t.git(run, "rev-parse", "--path-format=absolute", "--git-common-dir")
	t.common = out
	return err
}

// admin returns the directory in the repository that has the worktree's HEAD and index; "" if git does not know the worktree.
func (t *Tree) admin() string {
	for _, name := range t.glob("worktrees/*/gitdir") {
		if data, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(data)) == filepath.Join(t.Path, ".git") {
			return filepath.Dir(name)
		}
	}
	return ""
}

// isThere reports whether it is there, as a directory, to which no link leads, that git knows.
func (t *Tree) isThere() bool {
	fi, err := os.Lstat(t.Path)
	return err == nil && fi.IsDir() && t.admin() != ""
}

// lockAge is how old a lock of a ref is at least which nobody has any more: git has one for a moment.
const lockAge = 10 * time.Second

// unlock removes the locks of a git that was killed. Nobody has those of the worktree itself. A commondir that was not written yet
// goes too: with an empty one git fails at all that reads the worktrees, with none it does not.
func (t *Tree) unlock() (err error) {
	own := t.admin()
	for _, pattern := range []string{"worktrees/" + filepath.Base(own) + "/*.lock", heads + t.Branch() + ".lock", refs + "*/" + t.Name + ".lock", refs + "*/" + t.Name + "/*.lock", "worktrees/*/commondir"} {
		for _, name := range t.glob(pattern) {
			if fi, wrong := os.Lstat(name); wrong == nil && (fi.Size() == 0 || strings.HasSuffix(name, ".lock")) && (filepath.Dir(name) == own || time.Since(fi.ModTime()) >= lockAge) {
				err = errors.Join(err, os.RemoveAll(name))
			}
		}
	}
	return err
}

// glob returns the files of the repository that fit a pattern.
func (t *Tree) glob(pattern string) []string {
	common := regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(t.common, `\$0`)
	names, _ := filepath.Glob(filepath.Join(common, pattern)) // the pattern is right
	return names
}

// Check returns why no worktree can be made for a directory from a base; nil if one can. root is the top of its checkout.
func Check(run checkout.Shell, root, base string) error {
	t := &Tree{Root: root}
	version, err := t.git(run, "version")
	if err != nil {
		return err
	}
	var major, minor int // 2.31 is the oldest git that has rev-parse --path-format
	if _, err := fmt.Sscanf(version, "git version %d.%d", &major, &minor); err != nil || major < 2 || major == 2 && minor < 31 {
		return fmt.Errorf("worktrees need git 2.31 or newer, and this is %s", version)
	}
	commit, err := t.ref(run, "HEAD")
	if err == nil && commit == "" {
		err = fmt.Errorf("the repository in %s has no commit yet, from which a branch could begin: commit something first", root)
	}
	if err == nil && base != "" {
		if commit, err = t.ref(run, base); err == nil && commit == "" {
			err = fmt.Errorf("%q names no commit in %s; stint fetches nothing by itself: git fetch, or name a branch, a tag or a commit", base, root)
		}
	}
	return err
}

// Make makes the worktree, or puts one in order that is there. Nobody but the caller, who has its lock, is at work in it. A new
// one is from base ("" is HEAD), gets the ignored files that .worktreeinclude names, and is set up by setUp. note says what a user should know.
func (t *Tree) Make(run checkout.Shell, lane, base string, now time.Time, setUp func() error) (note string, err error) {
	if base = cmp.Or(base, t.Base, "HEAD"); t.IsMade() && base != t.Base {
		return "", fmt.Errorf("the worktree of %s was made from %s, not from %s: use another session, or stint drop %s first", t.Name, t.Base, base, t.Name)
	}
	if err := errors.Join(Check(run, t.Root, ""), t.find(run), t.unlock()); err != nil {
		return "", err
	}
	if _, err := t.isOut(run, t.Branch(), t.Path); err != nil {
		return "", err
	}
	t.Lane = cmp.Or(t.Lane, lane)
	_, statErr := os.Lstat(t.Path)
	isThere := statErr == nil
	if !t.IsMade() && t.isThere() { // the state directory is a new one
		t.CreatedAt, t.Ready, t.Base = now, true, base
	}
	if t.Ready && t.isThere() {
		if note, err = t.settle(run); err != nil {
			return note, err
		}
		return note, t.write()
	}
	switch {
	case isThere && (t.Ready || !t.IsMade()): // what lies there stays
		aside := durable.FreeName(durable.OS, t.Path+".left")
		note, err = "git no longer knows its worktree: what was there is in "+aside, os.Rename(t.Path, aside)
	case isThere: // no agent has seen what was begun here
		err = removeTree(t.Path)
	case t.Ready:
		note = "its worktree was removed, and is made anew from its branch"
	}
	if err != nil {
		return note, err
	}
	isNew := !t.Ready
	t.Base, t.Ready, t.Landing = base, false, false
	if t.CreatedAt.IsZero() {
		t.CreatedAt = now
	}
	if err := errors.Join(t.write(), os.MkdirAll(filepath.Dir(t.Path), durable.DirMode), t.keep(run)); err != nil {
		return note, err
	}
	back, err := t.inTurn(run, "at_root; add", strconv.FormatBool(isNew))
	if err := errors.Join(err, t.keep(run)); err != nil {
		return note, err
	}
	if err := t.include(run); err != nil {
		return note, fmt.Errorf(".worktreeinclude: %w", err)
	}
	if err := setUp(); err != nil {
		return note, err
	}
	t.Ready = true
	return strings.Trim(note+"; "+back, "; "), t.write()
}

// settle puts a worktree in order in which nobody is at work, with a .git that leads elsewhere.
func (t *Tree) settle(run checkout.Shell) (note string, err error) {
	dot, want := filepath.Join(t.Path, ".git"), "gitdir: "+t.admin()+"\n"
	if fi, err := os.Lstat(dot); err == nil && fi.IsDir() {
		aside := durable.FreeName(durable.OS, t.Path+".git.left")
		if err := os.Rename(dot, aside); err != nil {
			return "", err
		}
		note = "a repository of its own was in the place of its .git, and is now " + aside
	}
	if data, err := durable.ReadFile(durable.OS, dot); err != nil || string(data) != want {
		if err := durable.PutFile(dot, []byte(want)); err != nil {
			return "", err
		}
	}
	back, err := t.attach(run)
	return strings.Trim(note+"; "+back, "; "), err
}

// removeTree removes a directory, also one in which some directories cannot be written.
func removeTree(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	err := filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, durable.DirMode)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(path))
}
