# Paths: i is the user's index, x info/exclude, p the workspace relative to the top.
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
	GIT_DIR="$d/git" GIT_OBJECT_DIRECTORY="$y" git -c filter.stint.clean="f='@NOT_KEPT@'"'; stat -c "$f%s bytes, changed at %Y" ./%f 2>/dev/null || stat -f "$f%z bytes, changed at %m" ./%f' update-index -z --add --remove --replace --stdin <"$d/large" &&
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
