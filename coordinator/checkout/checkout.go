// Package checkout knows what changes in a git checkout: it makes the commands that record
// its files as a tree of git, reads what git prints of two such trees, and reverses the
// difference between them.
//
// A snapshot is a tree of the files that git does not ignore, tracked or not. It is made with
// a private index, so the user's index, stash, HEAD and reflog stay as they are. Of git's own
// programs none runs that the checkout names, no hook, fsmonitor, textconv or external diff,
// but for the clean filters of its attributes, without which git does not know the content of
// a file. A filter that was configured while an attempt ran is not run either: the changes of
// that attempt are not known.
package checkout

import (
	"fmt"
	"strconv"
	"strings"

	"stint/state"
)

// A Place is where a snapshot is made. The commands run in the workspace, and what they see is
// below it.
type Place struct {
	Root string // top of the checkout
	Dir  string // private directory of the command's files, which exists
	Kept string // directory that keeps the private index between snapshots, if it exists
}

const (
	refs = "refs/stint/"
	// MostRefs is of how many attempts in a repository git keeps the trees.
	MostRefs = 200
	// notKept begins what stands in a tree in place of an untracked file that is too large.
	notKept = "stint: over 10 MiB, the content was not kept: "
	// diffOptions let git look at two trees and run nothing else.
	diffOptions = "--no-ext-diff --no-textconv --no-color --ignore-submodules=all -O/dev/null -M "
)

// prelude defines g, which is git with no program of the checkout's.
func prelude(root string) string {
	return `unset GIT_DIR GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_PREFIX
export GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 GIT_LITERAL_PATHSPECS=1 LC_ALL=C GIT_WORK_TREE=` + Quote(root) + `
c='--no-pager -c core.fsmonitor=false -c core.splitIndex=false -c index.skipHash=true -c core.hooksPath=/dev/null -c core.logAllRefUpdates=false -c core.quotePath=false -c diff.relative=false'
g() { git $c "$@"; }
`
}

// snapshot leaves the id of the tree in t, and of the filters' configuration in f. It begins with the
// index that the last snapshot has left, in which all files are, or, if the user's index or what
// is ignored has changed since, with a copy of the user's. Its stat data tells which files have
// changed, so that each is hashed once. A file of over 10 MiB that is not tracked becomes a line
// with its size and time.
const snapshot = `f=$(g config -z --get-regexp '^filter\.' | g hash-object --stdin) && [ "${want:=$f}" = "$f" ] || { echo "a filter was configured meanwhile" >&2; exit 3; }
i=$(g rev-parse --path-format=absolute --git-path index --git-path info/exclude --show-prefix && echo .) && cd "$GIT_WORK_TREE" || exit
p=${i#*
}; i=${i%%
*}; x=${p%%
*}; p=${p#*
}; p=${p%
.}
[ ! -e "$i" ] || cp -p "$i" "$d/base" || exit
cat "$x" "$(g config --type=path core.excludesFile || echo "${XDG_CONFIG_HOME:-$HOME/.config}/git/ignore")" >"$d/excludes" 2>/dev/null
export d GIT_INDEX_FILE="$d/index"
look() { # sorts what has changed since the index into files that are gone and files that are there; 1 also notes what is not tracked
	rm -f "$d/gone" "$d/there" "$d/ignores"
	GIT_OPTIONAL_LOCKS=$1 git $c -c core.untrackedCache=true -c status.showUntrackedFiles=all status -z --porcelain --no-renames --ignore-submodules=all -- "./$p" >"$d/status" || return
	[ ! -s "$d/status" ] || xargs -0 sh -c 'for x do
		n=${x#???}
		case $n in .gitignore|*/.gitignore) : >"$d/ignores" ;; esac
		case $x in
		?" "*|*/) ;;
		[!UD]D*) printf "%s\0" "$n" >&3 ;;
		*) if [ -e "$n" ] || [ -L "$n" ]; then printf "./%s\0" "$n"; else printf "%s\0" "$n" >&3; fi ;;
		esac
	done' sh <"$d/status" >"$d/there" 3>"$d/gone"
}
t=
if cmp -s "$d/base" "$k/base" && cmp -s "$d/excludes" "$k/excludes"; then
	t=$(cat "$k/tree") && ln "$k/index" "$d/index" && look 0 || exit
fi
if [ -z "$t" ] || [ -e "$d/ignores" ]; then
	rm -f "$d/index" && t= && { [ ! -e "$d/base" ] || cp -p "$d/base" "$d/index"; } && look 1 || exit
fi
if [ -s "$d/there" ]; then
	xargs -0 sh -c 'find "$@" -prune -type f -size +20480 -print0' sh <"$d/there" >"$d/large"
	[ ! -s "$d/large" ] || { xargs -0 sh -c 'find "$@" -prune ! \( -type f -size +20480 \) -print0' sh <"$d/there" >"$d/small" && mv "$d/small" "$d/there"; }
fi
[ ! -s "$d/large" ] || xargs -0 sh -c 'for x do
	if [ -n "$(GIT_INDEX_FILE=$d/base git ls-files -- "$x")" ]; then printf "%s\0" "$x" >&3; continue; fi
	printf "%s\0" "${x#./}" >&4
	s=$(stat -c "%s bytes, changed at %Y" "$x" 2>/dev/null || stat -f "%z bytes, changed at %m" "$x") || continue
	o=$(echo "` + notKept + `$s" | git hash-object -w --stdin) && printf "100644 %s 0\t%s\0" "$o" "${x#./}"
done' sh <"$d/large" >"$d/lines" 3>>"$d/there" 4>>"$d/gone" || exit
[ ! -s "$d/gone" ] || g update-index -z --force-remove --stdin <"$d/gone" || exit
[ ! -s "$d/there" ] || g update-index -z --add --remove --stdin <"$d/there" 2>/dev/null || { # some cannot be read
	xargs -0 sh -c 'for x do [ -e "$x" ] && [ ! -r "$x" ] || printf "%s\0" "$x"; done' sh <"$d/there" >"$d/readable"
	g update-index -z --add --remove --stdin <"$d/readable" || exit
}
[ -n "$t" ] && [ ! -s "$d/gone" ] && [ ! -s "$d/there" ] || t=$(g write-tree --missing-ok) || exit
[ ! -d "$k" ] || { rm -rf "$k" "$d/new" && mkdir "$d/new" && ln "$d/index" "$d/base" "$d/excludes" "$d/new" && echo "$t" >"$d/new/tree" && mv "$d/new" "$k"; }
[ ! -s "$d/lines" ] || { g update-index -z --index-info <"$d/lines" && t=$(g write-tree --missing-ok); } || exit
cd - >/dev/null
`

// command returns a snapshot with what follows it. want is what the configuration of filters
// must be, "" if that is not known.
func (p *Place) command(want, then string) string {
	return fmt.Sprintf("d=%s k=%s want=%s\n", Quote(p.Dir), Quote(p.Kept), Quote(want)) + prelude(p.Root) + snapshot + then
}

// Begin returns the command for sh that makes the snapshot before an attempt. It prints the tree and the
// id of the filters' configuration, with a blank between. Git keeps the tree under that name.
func (p *Place) Begin(name string) string {
	return p.command("", "g update-ref "+Quote(refs+name)+` "$t" && echo "$t $f"`)
}

// End returns the command for sh that makes the snapshot after an attempt, whose tree before and filters
// [Place.Begin] has printed. It prints the tree, a line break, and what [ParseChanges] reads.
func (p *Place) End(name, before, filters string) string {
	ref, before := Quote(refs+name), Quote(before)
	return p.command(filters, `if [ "$t" = `+before+` ]; then g update-ref -d `+ref+`; else
	both=$(printf '040000 tree %s\tafter\n040000 tree %s\tbefore\n' "$t" `+before+` | g mktree) && g update-ref `+ref+` "$both" || exit
fi
g for-each-ref --sort=-refname --format='delete %(refname)' `+refs+` | tail -n +`+strconv.Itoa(MostRefs+1)+` | g update-ref --stdin || exit
echo "$t" && g diff `+diffOptions+`-z --raw --numstat --relative `+before+` "$t" -- .`)
}

// Diff returns the command for sh, to be run in the workspace, that prints the difference of two trees
// as git does; with stat only the sizes of what has changed.
func Diff(root, before, after string, stat bool) string {
	form := "--patch"
	if stat {
		form = "--stat"
	}
	return prelude(root) + "g diff " + diffOptions + form + " --relative " + Quote(before) + " " + Quote(after) + " -- ."
}

// kinds are git's letters for what has become of a file.
var kinds = map[byte]string{'A': state.FileAdded, 'D': state.FileDeleted, 'R': state.FileRenamed}

// ParseChanges reads the output of git diff -z --raw --numstat. One that breaks off is read
// as far as it goes.
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

// Quote makes one word of a text for sh.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
