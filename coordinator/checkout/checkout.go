// Package checkout finds and reverses changes in a git checkout. It returns the shell commands that
// record the files as a git tree, parses git's list of the differences of two trees, and undoes them.
//
// A snapshot is a tree of the files that git does not ignore, tracked or not. It is made with a private index, so the user's
// index, stash, HEAD and reflog stay as they are. It runs no program of the checkout: no hook, fsmonitor, textconv, external diff
// or filter. A file with a filter is recorded as it is in the working tree. The PATH of all commands is to be a [task.SafePath].
package checkout

import (
	_ "embed"
	"strconv"
	"strings"

	"stint/state"
)

// A Place is where a snapshot is made. The commands run in the workspace, and what they see is below it.
type Place struct {
	Root string // top of the checkout
	Dir  string // private directory of the command's files, which exists
	Kept string // directory that keeps the private index between snapshots, if it exists
}

const (
	refs = "refs/stint/"
	// mostRefs is the number of attempts whose trees are kept in a repository.
	mostRefs = 200
	// notKept begins what stands in a tree in place of an untracked file that is too large.
	notKept = "stint: too large, the content was not kept: "
	// diffOptions let git look at two trees and run nothing else.
	diffOptions = "--no-ext-diff --no-textconv --no-color --ignore-submodules=all -O/dev/null -M "
)

// prelude sets up git so that it runs no program of the checkout's, and takes its objects as they are.
func prelude(root string) string { return "root=" + state.ShellQuote(root) + "\n" + setUp }

// setUp is the rest of the prelude.
//
//go:embed prelude.sh
var setUp string

// snapshot is the script that makes a snapshot. It leaves the id of the tree in the variable t. A private
// index has the stat data of all files, so that git hashes only those that have changed. The variables d
// and keep are [Place].Dir and Kept. What is in the tree b, if any, is in t too, even if git ignores it by now.
//
//go:embed snapshot.sh
var snapshot string

// command returns a snapshot that looks at all files of the tree base, if any, with what follows it.
func (p *Place) command(base, then string) string {
	return prelude(p.Root) + "d=" + state.ShellQuote(p.Dir) + " keep=" + state.ShellQuote(p.Kept) + " b=" + state.ShellQuote(base) + "\n" + strings.Replace(snapshot, "@NOT_KEPT@", notKept, 1) + then
}

// Begin returns the command that makes the snapshot before an attempt under that name, and prints the tree.
func (p *Place) Begin(name string) string {
	return p.command("", "git update-ref --no-deref "+state.ShellQuote(refs+name)+` "$t" && echo "$t"`)
}

// End returns the command for sh that makes the snapshot after an attempt, whose tree before
// [Place.Begin] has printed. It prints the tree, a line break, and what [ParseChanges] reads.
func (p *Place) End(name, before string) string {
	base, ref, before := before, state.ShellQuote(refs+name), state.ShellQuote(before)
	return p.command(base, `if [ "$t" = `+before+` ]; then git update-ref --no-deref -d `+ref+`; else
	both=$(printf '040000 tree %s\tafter\n040000 tree %s\tbefore\n' "$t" `+before+` | git mktree) && git update-ref --no-deref `+ref+` "$both" || exit
fi
git for-each-ref --sort=-refname --format='delete %(refname)' `+refs+` | grep -E ' refs/stint/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' | tail -n +`+strconv.Itoa(mostRefs+1)+` | git update-ref --no-deref --stdin || exit
echo "$t" && git diff `+diffOptions+`-z --raw --numstat --relative --end-of-options `+before+` "$t" -- .`)
}

// Diff returns the command for sh, to be run in the workspace, that prints the difference of two trees
// as git does; with stat only the sizes of what has changed.
func Diff(root, before, after string, stat bool) string {
	form := "--patch"
	if stat {
		form = "--stat"
	}
	return prelude(root) + "git diff " + diffOptions + form + " --relative --end-of-options " + state.ShellQuote(before) + " " + state.ShellQuote(after) + " -- ."
}

// kinds are git's letters for what has become of a file.
var kinds = map[byte]string{'A': state.FileAdded, 'D': state.FileDeleted, 'R': state.FileRenamed}

// ParseChanges reads the output of git diff -z --raw --numstat, as far as it goes.
func ParseChanges(output string) (list []state.FileChange) {
	fields := strings.Split(output, "\x00")
	next := func() (s string) {
		if len(fields) > 0 {
			s, fields = fields[0], fields[1:]
		}
		return s
	}
	at := map[string]int{}
	for len(fields) > 1 {
		head := next()
		if meta, isRaw := strings.CutPrefix(head, ":"); isRaw {
			words := strings.Fields(meta)
			if len(words) != 5 {
				return list
			}
			c := state.FileChange{Path: next(), Change: state.FileModified}
			if kind, ok := kinds[words[4][0]]; ok {
				c.Change = kind
			}
			if c.Change == state.FileRenamed {
				c.From, c.Path = c.Path, next()
			}
			at[c.Path] = len(list)
			list = append(list, c)
			continue
		}
		stat := strings.SplitN(head, "\t", 3)
		if len(stat) != 3 {
			return list
		}
		if stat[2] == "" { // of a renamed file the two names follow
			next()
			stat[2] = next()
		}
		if i, ok := at[stat[2]]; ok {
			list[i].Added, _ = strconv.Atoi(stat[0])
			list[i].Removed, _ = strconv.Atoi(stat[1])
			list[i].Binary = stat[0] == "-"
		}
	}
	return list
}
