export GIT_INDEX_FILE="$d/result" s
cp -p "$d/index" "$d/result" && git update-index -z --index-info && mkdir "$s/1" "$s/2" "$s/3" || exit
umask=$(umask) && umask 077
for x in 1 2 3; do GIT_WORK_TREE="$s/$x" git checkout-index -a -q --stage=$x || exit; done
# What comes back is for the owner alone, as a secret may be, unless it is tracked.
umask "$umask" && (cd "$s/3" && find . -type f -print0) >"$d/back" && : >"$d/tracked" || exit
[ ! -s "$d/back" ] || (cd "$GIT_WORK_TREE" && GIT_INDEX_FILE="$d/base" xargs -0 git ls-files -z -- <"$d/back" >"$d/tracked") || exit
[ ! -s "$d/tracked" ] || (cd "$s/3" && xargs -0 sh -c 'for x do [ ! -f "./$x" ] || chmod =rwX "./$x" || exit; done' sh <"$d/tracked") || exit
set_config core.excludesFile "$d/excludes"
for x in "$GIT_WORK_TREE" "$s/3"; do
	(cd "$x" && GIT_WORK_TREE="$x" GIT_INDEX_FILE="$d/index" git ls-files -ciz --exclude-standard) >"$d/ignored" && xargs -0 printf 'ignored/%s\0' <"$d/ignored" || exit
done
cd "$s/2" && find . -type f -print0 | xargs -0 sh -c 'for x do
	cp "$x" "$s/ours" || exit
	git merge-file -q "$x" "$s/1/$x" "$s/3/$x" 2>/dev/null || printf "overlaps/%s\0" "${x#./}"
	! cmp -s "$x" "$s/ours" || printf "same/%s\0" "${x#./}"
done' sh
