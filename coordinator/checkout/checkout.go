// Package checkout finds and reverses changes in a git checkout. It returns the shell commands that
// record the files as a git tree, parses git's list of the differences of two trees, and undoes them.
//
// A snapshot is a tree of the files that git does not ignore, tracked or not. It is made with a private index, so the user's
// index, stash, HEAD and reflog stay as they are. It runs no program of the checkout: no hook, fsmonitor, textconv, external diff
// or filter. A file with a filter is recorded as it is in the working tree. The PATH of all commands is to be a [task.SafePath].
package checkout

import (
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
	// MostRefs is the number of attempts whose trees are kept in a repository.
	MostRefs = 200
	// notKept begins what stands in a tree in place of an untracked file that is too large.
	notKept = "stint: too large, the content was not kept: "
	// diffOptions let git look at two trees and run nothing else.
	diffOptions = "--no-ext-diff --no-textconv --no-color --ignore-submodules=all -O/dev/null -M "
)

// prelude sets up git so that it runs no program of the checkout's, and takes its objects as they are.
func prelude(root string) string {
	return "root=" + state.ShellQuote(root) + `
unset GIT_DIR GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_PREFIX
export GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null GIT_TERMINAL_PROMPT=0 GIT_LITERAL_PATHSPECS=1 GIT_PAGER=cat LC_ALL=C GIT_WORK_TREE="$root"
GIT_DIR=$(cd "$root" && git rev-parse --absolute-git-dir) && export GIT_DIR || exit # whatever lies below and looks like a repository
filters=$(git config --name-only --get-regexp '^filter\.') || [ $? = 1 ] || exit
n=0
set_config() { eval "export GIT_CONFIG_KEY_$n=\"\$1\" GIT_CONFIG_VALUE_$n=\"\$2\""; n=$((n + 1)); export GIT_CONFIG_COUNT=$n; }
set_config core.fsmonitor false; set_config core.splitIndex false; set_config index.skipHash true; set_config core.hooksPath /dev/null
set_config core.ignoreStat false; set_config core.trustCtime true; set_config core.checkStat default
set_config core.logAllRefUpdates false; set_config core.quotePath false; set_config core.safecrlf false; set_config core.symlinks true; set_config advice.graftFileDeprecated false; set_config diff.relative false
IFS='
'
set -f
for x in $filters; do
	for y in clean smudge process; do set_config "${x%.*}.$y" ""; done
	set_config "${x%.*}.required" false
done
unset IFS
set +f
`
}

// snapshot is the script that makes a snapshot. It leaves the id of the tree in the variable t. A private
// index has the stat data of all files, so that git hashes only those that have changed. The variables d
// and keep are [Place].Dir and Kept. What is in the tree b, if any, is in t too, even if git ignores it by now.
const snapshot = `# Paths: i is the user's index, x info/exclude, p the workspace relative to the top.
i=$(git rev-parse --path-format=absolute --git-path index --git-path info/exclude --show-prefix && echo .) && cd "$GIT_WORK_TREE" || exit
p=${i#*
}; i=${i%%
*}; x=${p%%
*}; p=${p#*
}; p=${p%
.}
# Copy the user's index to base, and all ignore rules outside the tree to excludes.
for y in "$i" "$x" .gitignore .gitattributes; do [ ! -e "$y" ] || { [ -f "$y" ] && [ -z "$(find -L "$y" -prune -size +1048576)" ]; } || { echo "$y is no file, or is over 512 MiB" >&2; exit 3; }; done
[ ! -e "$i" ] || cp -p "$i" "$d/base" || exit
: >"$d/excludes"
for y in "$x" "$(git config --type=path core.excludesFile || echo "${XDG_CONFIG_HOME:-$HOME/.config}/git/ignore")"; do
	[ ! -f "$y" ] || { head -c 1048576 "$y" && echo; } >>"$d/excludes" || exit
done
set_config core.excludesFile "$d/excludes"
export d GIT_INDEX_FILE="$d/index"
lines() { tr '\n\0' '\0\n'; } # between names that end with a NUL, and lines
# with_filter '!~' prints the files that have a filter, '~' the others.
with_filter() { git check-attr -z --stdin filter | lines | awk 'NR%3 == 1 { n = $0 } NR%3 == 0 && $0 '$1' /^(unspecified|unset)$/ { print n }' | lines; }
# list_changes lists the files that differ from the private index: those that are files or links in there, the others in gone.
# It creates the file ignores if a .gitignore is one of them. With o=1, git may update its cache of untracked files.
list_changes() {
	rm -f "$d/gone" "$d/there" "$d/ignores"
	GIT_OPTIONAL_LOCKS=$o git -c core.untrackedCache=true -c status.showUntrackedFiles=all status -z --porcelain --no-renames --ignore-submodules=all -- ${p:+"./$p"} >"$d/status" || return
	[ ! -s "$d/status" ] || xargs -0 sh -c 'for x do
		n=${x#???}
		case $n in .gitignore|*/.gitignore) : >"$d/ignores" ;; esac
		case $x in
		?" "*|*/) ;;
		[!UD]D*) printf "%s\0" "$n" >&3 ;;
		*) if [ -f "$n" ] || [ -L "$n" ]; then printf "./%s\0" "$n"; else printf "%s\0" "$n" >&3; fi ;;
		esac
	done' sh <"$d/status" >"$d/there" 3>"$d/gone"
}
# list_ignored lets the private index have no ignored files but those that the user's index has, and with b those of b.
list_ignored() {
	[ -n "$b" ] || { t= o=1 && git ls-files -ciz --exclude-standard | git update-index -z --force-remove --stdin; } || return
	GIT_INDEX_FILE="$d/base" git ls-files -sciz --exclude-standard >"$d/ignored" || return
	[ ! -s "$d/ignored" ] || { t= && git update-index -z --index-info <"$d/ignored"; }
}
# Link what the last snapshot before an attempt has kept, unless another one is replacing it right now.
k=$d/kept
mkdir "$k" && ln "$keep/base" "$keep/excludes" "$keep/index" "$keep/tree" "$k" 2>/dev/null && [ "$keep/base" -ef "$k/base" ] || rm -f "$k"/*
# Continue with its private index. If there is none, begin with a copy of the user's. Remove the flags that hide changes, and the files with a filter, which are then added as they are.
o=0
if t=$(cat "$k/tree" 2>/dev/null) && git cat-file -e "$t" 2>/dev/null; then
	ln "$k/index" "$d/index" || exit
else
	t= o=1
	[ ! -e "$d/base" ] || cp -p "$d/base" "$d/index" || exit
	git ls-files -z -v | lines | sed -n 's/^[hsS] //p' | lines >"$d/hidden"
	for y in assume-unchanged skip-worktree; do [ ! -s "$d/hidden" ] || git update-index -z --no-$y --stdin <"$d/hidden" || exit; done
	[ -z "$filters" ] || git ls-files -z | with_filter '!~' >"$d/filtered"
	[ ! -s "$d/filtered" ] || git update-index -z --force-remove --stdin <"$d/filtered" || exit
fi
[ "$t" = "${b:-$t}" ] || { t= && git read-tree --reset --no-sparse-checkout "$b"; } || exit
{ cmp -s "$d/excludes" "$k/excludes" && cmp -s "$d/base" "$k/base"; } || list_ignored || exit
list_changes || exit
[ -n "$b" ] || [ ! -e "$d/ignores" ] || { list_ignored && list_changes; } || exit
# Files over 10 MiB are large. If the others come to more than 256 MiB, so are the largest of them.
m=20480
while [ -s "$d/there" ]; do
	xargs -0 sh -c 'find "$@" -prune -type f -size +'$m' -print0' sh <"$d/there" >>"$d/large"
	[ ! -s "$d/large" ] || { xargs -0 sh -c 'find "$@" -prune ! \( -type f -size +'$m' \) -print0' sh <"$d/there" >"$d/small" && mv "$d/small" "$d/there"; }
	xargs -0 ls -lnd <"$d/there" | awk '/^-/ { s += $5 } END { exit (s > 268435456) }' && break
	m=$((m / 4))
done
[ $m = 20480 ] || sleep 1 # git looks at the content of files that are as new as its index
# Record a line with the size and time of each large file that is untracked or has a filter. A filter of git's makes
# it, in a git directory that has no other, so that git sees by their stat data whether they change.
[ ! -s "$d/large" ] || {
	y=$(git rev-parse --path-format=absolute --git-path objects) && f=$(git rev-parse --show-object-format) &&
	(unset GIT_DIR GIT_WORK_TREE && git init -q --bare --template= --object-format="$f" "$d/git") && mkdir "$d/git/info" && echo '* filter=stint -text -ident -working-tree-encoding' >"$d/git/info/attributes" &&
	GIT_DIR="$d/git" GIT_OBJECT_DIRECTORY="$y" git -c filter.stint.clean="f='` + notKept + `'"'; stat -c "$f%s bytes, changed at %Y" ./%f 2>/dev/null || stat -f "$f%z bytes, changed at %m" ./%f' update-index -z --add --remove --replace --stdin <"$d/large" &&
	GIT_INDEX_FILE="$d/base" xargs -0 git ls-files -z -- <"$d/large" | with_filter '~' | tee -a "$d/gone" >>"$d/there"
} || exit
# Bring the private index up to date, and write its tree.
[ ! -s "$d/gone" ] || git update-index -z --force-remove --stdin <"$d/gone" || exit
[ ! -s "$d/there" ] || git update-index -z --add --remove --stdin <"$d/there" 2>/dev/null || { # some cannot be read
	xargs -0 sh -c 'for x do [ -e "$x" ] && [ ! -r "$x" ] || printf "%s\0" "$x"; done' sh <"$d/there" >"$d/readable"
	git update-index -z --add --remove --stdin <"$d/readable" || exit
}
[ -n "$t" ] && [ ! -s "$d/gone" ] && [ ! -s "$d/there" ] && [ ! -s "$d/large" ] || t=$(git write-tree --missing-ok) || exit
# Keep the index of a snapshot before an attempt for the next ones.
[ -n "$b" ] || [ ! -d "$keep" ] || { rm -rf "$keep" "$d/new" && mkdir -m 700 "$d/new" && ln "$d/index" "$d/base" "$d/excludes" "$d/new" && echo "$t" >"$d/new/tree" && chmod 600 "$d/new"/* && mv "$d/new" "$keep"; }
cd - >/dev/null
`

// command returns a snapshot that looks at all files of the tree base, if any, with what follows it.
func (p *Place) command(base, then string) string {
	return prelude(p.Root) + "d=" + state.ShellQuote(p.Dir) + " keep=" + state.ShellQuote(p.Kept) + " b=" + state.ShellQuote(base) + "\n" + snapshot + then
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
git for-each-ref --sort=-refname --format='delete %(refname)' `+refs+` | grep -E '/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' | tail -n +`+strconv.Itoa(MostRefs+1)+` | git update-ref --no-deref --stdin || exit
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
