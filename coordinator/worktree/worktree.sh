# What git does for the worktree at $path, which stands for the checkout at $root: $admin is the directory in the repository that
# has its HEAD and index, $name the session's. What is called comes behind this, and begins with at_root or inside.
unset GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_PREFIX
export GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 GIT_MERGE_AUTOEDIT=no GIT_EDITOR=: GIT_PAGER=cat LC_ALL=C
hooks= branch=refs/heads/stint/$name tip=refs/stint/tip/$name landed=refs/stint/landed/$name work=refs/stint/work/$name/
# theirs is git with the user's hooks and signature. ours runs nothing but filters and merge drivers.
theirs() { git ${hooks:+-c "core.hooksPath=$hooks"} -c core.fsmonitor=false -c core.quotePath=false -c core.safecrlf=false -c gc.auto=0 -c maintenance.auto=false -c submodule.recurse=false -c log.showSignature=false -c merge.ff=true -c merge.verifySignatures=false -c rebase.updateRefs=false -c rerere.enabled=false -c worktree.useRelativePaths=false -c advice.detachedHead=false -c advice.graftFileDeprecated=false "$@"; }
ours() { theirs -c core.hooksPath=/dev/null -c commit.gpgSign=false -c core.logAllRefUpdates=true "$@"; }
at_root() { cd -P "$root" || exit; }
inside() { export GIT_DIR="$admin" GIT_WORK_TREE="$path"; cd -P "$path" || exit; } # whatever lies there in the place of .git
lines() { tr '\n\0' '\0\n'; } # between names that end with a NUL, and lines
# commit_as NAME EMAIL sets who commits: without a name the user, or stint where git knows nobody.
commit_as() {
	[ -n "$1" ] || { ours var GIT_COMMITTER_IDENT && ours var GIT_AUTHOR_IDENT; } >/dev/null 2>&1 && [ -z "$1" ] && return
	export GIT_AUTHOR_NAME="${1:-stint}" GIT_AUTHOR_EMAIL="${2:-stint@localhost}" GIT_COMMITTER_NAME="${1:-stint}" GIT_COMMITTER_EMAIL="${2:-stint@localhost}"
}
# add_all puts all that is not ignored into the index, without what repositories in it have, and prints the tree. It runs no git
# status, which would run what their configuration names. What has become a directory goes first.
add_all() {
	ours ls-files -z -v | lines | sed -n 's/^[a-z] //p' | lines | ours update-index -z --no-assume-unchanged --stdin || return
	ours diff-files -z --name-only --diff-filter=D --ignore-submodules=all | ours update-index -z --force-remove --stdin &&
		{ ours ls-files -z --others --exclude-standard && ours ls-files -z --modified && ours diff-files -z --name-only --diff-filter=U --ignore-submodules=all || printf '../failed\0'; } | lines | grep -av '/$' | lines |
		ours update-index -z --add --remove --replace --stdin && ours write-tree
}
# conflicts 0 prints the files in conflict that have marks, conflicts 1 those that have none: both sides have them, or one has removed them.
conflicts() {
	ours diff --name-only --diff-filter=U --ignore-submodules=all -z | xargs -0 sh -c 'm=$1 && shift && for x do
		y=1
		[ ! -f "$x" ] || [ -L "$x" ] || ! grep -q "^<<<<<<<" "./$x" || y=0
		[ $y != "$m" ] || printf "%s, " "$x"
	done' sh "$1"
}
# include copies the ignored files that .worktreeinclude names, but none that the branch tracks or does not ignore, nor through a link of its.
include() {
	ours ls-files -z --others --ignored --exclude-from=.worktreeinclude | { ours check-ignore -z --stdin || [ $? = 1 ]; } | (
		inside && xargs -0 sh -c 'for x do
			y=$x
			while [ "$y" != "${y%/*}" ]; do
				y=${y%/*}
				[ ! -L "$y" ] || continue 2
			done
			printf "%s\0" "$x"
		done' sh | { ours check-ignore -z --stdin || [ $? = 1 ]; }
	) | tar --null -T - -cf - | tar -xf - -C "$path"
}
# save NAME EMAIL commits on HEAD what is not committed, with the message on stdin. Where a merge has left marks it commits nothing, and prints the files.
save() {
	x=$(conflicts 0) || exit
	[ -z "$x" ] || { echo "${x%, }" && return; }
	m=$(ours rev-parse -q --verify MERGE_HEAD)
	h=$(ours rev-parse HEAD) && t=$(add_all) || exit
	[ "$t" != "$(ours rev-parse 'HEAD^{tree}')" ] || [ -n "$m" ] || return 0
	commit_as "$1" "$2"
	c=$(ours commit-tree -p "$h" ${m:+-p "$m"} -F - "$t") && ours update-ref -m 'stint: commit what a run has left' HEAD "$c" "$h" || exit
	[ -z "$m" ] || ours merge --quit
}
# unlanded is git with a list of commits, without what other branches have than stint's, also those that were pushed.
unlanded() { ours "$@" --not '--exclude=refs/heads/stint/*' '--glob=refs/heads/*' '--exclude=*/stint/*' --remotes; }
# since prints the commit at which the branch has left that of the checkout, or its base, whichever came last; else the empty tree.
since() { ours merge-base "$branch" HEAD $(ours rev-parse -q --verify "$base^{commit}") || ours hash-object -t tree /dev/null; }
# look prints of the branch, if there is one, what the worktree is in a word, the last commit, since when that is its own, how many are, and
# how many files and lines they change.
look() {
	t=$(ours rev-parse -q --verify "$branch^{commit}") || return 0
	n=$(unlanded rev-list --count "$t") && s=$(since) && l=$(ours for-each-ref "$landed") &&
		d=$(ours diff --numstat --no-ext-diff --no-textconv --ignore-submodules=all "$s" "$t") || exit
	if [ -z "$admin" ] || [ ! -d "$path" ] || [ -h "$path" ]; then
		is=missing
	else
		m=$(inside; ours rev-parse -q --verify MERGE_HEAD)
		c=$(inside; ours status --porcelain --ignore-submodules=all) || exit
		is=clean
		[ -z "$l" ] || is=landed
		[ "$n" = 0 ] || is=ahead
		[ -z "$c" ] || is=changed
		[ -z "$m" ] || is=conflicted
	fi
	echo "$is $t $s $n $(printf '%s\n' "$d" | awk '{ added += $1; removed += $2; files += NF > 0 } END { print files, added + 0, removed + 0 }')"
}
# stash PARENT prints a commit on top of that which has what lies in the worktree; PARENT if that has all of it.
stash() {
	t=$(add_all) || exit
	[ "$t" != "$(ours rev-parse "$1^{tree}")" ] || { echo "$1" && return; }
	commit_as '' && ours commit-tree -p "$1" -m 'stint: what was not committed' "$t"
}
# back COMMIT ends what is going on, and puts files, index, branch and HEAD there. What a rebase has put aside is kept.
back() {
	cat "$admin/rebase-merge/autostash" "$admin/rebase-apply/autostash" 2>/dev/null | sed "s|^............|update $work& &|" | ours update-ref --stdin &&
		rm -rf "$admin/rebase-merge" "$admin/rebase-apply" && ours merge --quit && ours read-tree --reset -u "$1" &&
		ours update-ref -m 'stint: back to the branch' "$branch" "$1" && ours symbolic-ref HEAD "$branch"
}
# last prints the last commit of the branch: where it is, or was after the last run.
last() {
	ours rev-parse -q --verify "$branch^{commit}" || ours rev-parse -q --verify "$tip^{commit}" ||
		{ echo "the branch stint/$name was deleted, and nothing is known of it" >&2; exit 1; }
}
# keep_commit keeps one beside the branch.
keep_commit() { ours update-ref "$work$(printf %.12s "$1")" "$1"; }
# attach LANDED brings HEAD back to the branch, which goes to LANDED where a landing was cut off, or to HEAD if that has all of its commits.
# If not, HEAD's are kept beside it, and the last is printed. What is not committed goes with HEAD: on it, whatever that is.
attach() {
	h=$(ours rev-parse -q --verify 'HEAD^{commit}')
	[ "$(ours symbolic-ref -q HEAD)" != "$branch" ] || [ -z "$h" ] || [ -n "$1" ] || return 0
	to=$(last) && left=$(stash "${h:-$to}") && x=$(ours rev-list --max-count=1 "$to" "^$left") || exit
	[ -n "$x" ] || to=$left
	[ -z "$1" ] || to=$1
	x=$(ours rev-list --max-count=1 "$left" "^$to") || exit
	[ -z "$x" ] || { keep_commit "$left" && echo "$left"; } || exit
	back "$to" >/dev/null
}
# keep notes where the branch is now, and keeps what it no longer has: of the last tip, and of all that HEAD has been since.
keep() {
	h=worktrees/${admin##*/}/HEAD
	{
		for r in "$h" "$branch"; do ours reflog --format='%H %gs' "$r" 2>/dev/null; done | sed '/^[0-9a-f]* checkout: /d; s/ .*//' |
			{ ours rev-list --ignore-missing --parents --stdin "$h" "$tip" "^$branch" --not --glob="$work" || echo failed; } |
			awk -v work="$work" '{ has[$1]; for (i = 2; i <= NF; i++) old[$i] } END { for (c in has) if (!(c in old)) print "update " work substr(c, 1, 12) " " c }'
		ours for-each-ref --format="update $tip %(objectname)" "$branch"
	} | ours update-ref --stdin
}
# add IS_NEW makes the worktree, on its branch if there is one, or where that was at last, which it tells. A new one begins at its base as
# that is now, also where another one was begun before, and had no commits.
add() {
	[ -z "$admin" ] || rm -rf "$admin" || exit # of one that is gone, or that was being made
	h=$(ours rev-parse -q --verify "$branch^{commit}")
	k=$(ours rev-parse -q --verify "$tip^{commit}")
	if [ -n "$h" ] && [ "$1" = true ]; then
		x=$(unlanded rev-list --max-count=1 "$h") || exit
		[ -n "$x" ] || h= k=
	fi
	if [ -z "$h" ]; then
		ours branch -q --force --no-track "stint/$name" "${k:-$base}" || exit
		[ -z "$k" ] || echo 'its branch was deleted, and is back where it was after the last run'
	fi
	ours worktree add -q "$path" "stint/$name" >/dev/null
}
# commit MODE TARGET TIP commits what lands, with the message of a single commit, else with the subject of the first, and all of them.
commit() {
	c="$3 ^$2"
	all() { ours log --reverse --no-merges --format="$1" $c; }
	s=$(all %s) && b=$(all %B) && t=$(all '%(trailers:key=Stint-Task)') || exit
	first=$(printf '%s\n' "$s" | sed q)
	if [ "$1" = merge ] || [ "$first" != "$s" ]; then
		[ "$1" = squash ] || first="Merge stint/$name"
		b=$(printf '%s\n\n' "$first"; printf '%s\n' "$s" | sed 's/^/- /'; printf '\n%s\n' "$t" | awk '!has[$0]++')
	fi
	printf '%s\n' "${b:-Land stint/$name}" | theirs commit -q --cleanup=whitespace -F -
}
# build MODE TARGET TIP makes, without a branch, the commit that lands; 3: there are conflicts.
build() {
	hooks=$(theirs config --type=path core.hooksPath) # those of the checkout, not what the branch has in their place
	case $hooks in '' | /*) ;; *) hooks=$root/$hooks ;; esac
	ours checkout -q --detach "$2" || exit
	case $1 in
	squash) ours merge -q --squash "$3" >/dev/null || exit 3; ours diff --cached --quiet --ignore-submodules=none || commit "$@" ;;
	merge) ours merge -q --no-ff --no-commit "$3" >/dev/null || exit 3; commit "$@" ;;
	rebase)
		[ -z "$(ours rev-list -1 --merges "$3" "^$2")" ] || { echo "stint/$name has a merge, which a rebase would leave out with what it has changed: land it without --rebase" && exit 4; }
		ours checkout -q --detach "$3" && theirs rebase -q --force-rebase "$2" >/dev/null || exit 3
		;;
	esac
}
# note BRANCH RESULT BEFORE TIP notes a landing, before it is made: in words, as git leaves out a parent that it has already.
note() {
	commit_as stint stint@localhost
	c=$(ours commit-tree -p "$2" -p "$3" -p "$4" -m "$*" "$2^{tree}") && ours update-ref "$landed" "$c"
}
# move BRANCH FROM TO CHECKED_OUT moves a branch, and first the checkout at $root where that has it, if nothing is in the way there: git
# takes what is ignored for worthless.
move() {
	x=
	[ -z "$4" ] || x=$(ours diff-tree -r -z --name-only --no-renames --diff-filter=A "$2" "$3" | xargs -0 sh -c 'for x do
		y=$x/
		while [ "$y" != "${y%/*}" ]; do
			y=${y%/*}
			[ ! -L "$y" ] && { [ ! -e "$y" ] || { [ -d "$y" ] && [ "$x" != "$y" ]; }; } || printf "%s\0" "$y"
		done
	done' sh | GIT_LITERAL_PATHSPECS=1 xargs -0 sh -c '[ $# = 0 ] || git -c core.fsmonitor=false ls-files --others -- "$@" || echo "what git could not list"' sh | head -n 3) || exit
	[ -z "$x" ] || { printf 'what git does not track there would be overwritten: %s\n' "$x" >&2; exit 1; }
	[ -z "$4" ] || { ours update-index -q --refresh --ignore-submodules >/dev/null; ours read-tree -m -u "$2" "$3" || exit; }
	ours update-ref -m "stint: land stint/$name" "$1" "$3" "$2" || { [ -z "$4" ] || ours read-tree -m -u "$3" "$2"; exit 1; }
}
# resume BEFORE RESULT brings the checkout at $root, which was clean when a landing began that was cut off, to where its branch is, if all
# that is changed in it is as before the landing, or as after it.
resume() {
	! ours diff-index --quiet --ignore-submodules=all HEAD || return 0
	export GIT_INDEX_FILE="$(ours rev-parse --absolute-git-dir)/index.stint"
	rm -f "$GIT_INDEX_FILE.lock" # of one that was killed
	w=$(ours read-tree HEAD && { ours diff-tree -r -z --name-only --no-renames "$1" "$2"; ours ls-files -z --modified; } | xargs -0 sh -c 'for x do [ -d "$x" ] && [ ! -L "$x" ] || printf "%s\0" "$x"; done' sh | ours update-index -z --add --remove --replace --stdin && ours write-tree) || exit
	rm "$GIT_INDEX_FILE"; unset GIT_INDEX_FILE
	[ -z "$(for c in "$1" "$2"; do ours diff-tree -r --name-only "$c" "$w"; done | sort | uniq -d)" ] || return 0
	i=
	for c in "$1" "$2"; do ! ours diff-index --cached --quiet --ignore-submodules=none "$c" || i=$c; done
	[ -z "$i" ] || { ours read-tree "$w" && ours update-index -q --refresh --ignore-submodules >/dev/null; ours read-tree -m -u "$w" HEAD; }
}
# own prints the repositories in the worktree that git does not track, or that have commits which no remote of theirs has.
own() {
	grep -aF "$path/" "$(ours rev-parse --git-path objects/info/alternates)" 2>/dev/null # of which the repository itself takes objects
	[ -z "$admin" ] || [ ! -d "$path" ] || { (inside && ours ls-files -z --others --exclude-standard) || printf 'what git could not list/\0'; } | lines | grep -a '/$'
	find "$path" ${admin:+"$admin/modules"} -type d -name objects -prune 2>/dev/null | while read -r x; do
		x=${x%/objects}
		[ ! -f "$x/HEAD" ] || [ -z "$(GIT_ALLOW_PROTOCOL=none ours --git-dir="$x" rev-list -1 --all --not --remotes 2>/dev/null || echo unknown)" ] || echo "$x"
	done
}
# drop STAMP EXPIRED keeps all that the branch and its refs have under STAMP; forget removes them, and what was dropped before EXPIRED.
refs() { ours for-each-ref --format="$1" "$branch" "$tip" "$landed" "$work"; }
drop() {
	set -- "$1" $(refs '%(objectname)' && ours for-each-ref --format='%(objectname)' "$1" || echo failed)
	stamp=$1 a=
	shift
	[ $# != 0 ] || return 0
	for c do a="$a -p $c"; done
	commit_as stint stint@localhost
	c=$(ours commit-tree $a -m "dropped stint/$name" "$1^{tree}") && ours update-ref "$stamp" "$c"
}
forget() {
	{ refs 'delete %(refname)'; ours for-each-ref --format='delete %(refname)' refs/stint/dropped/ | awk -F/ -v t="$1" '$NF < t'; } | ours update-ref --stdin
}
