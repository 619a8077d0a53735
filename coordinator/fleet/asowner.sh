set -eu; IFS= read -r file; dir=$(dirname -- "$file"); as=
cd -P -- "$dir"
if [ "$(pwd -P)" != "$dir" ]; then echo "$dir is a link, or lies behind one: write its real path, $(pwd -P)" >&2; exit 1; fi
if [ "$(id -u)" = 0 ]; then
uid=$(stat -c %u .); groups=--clear-groups
if id -un "$uid" >/dev/null 2>&1; then groups=--init-groups; fi
if [ "$uid" = 0 ] && [ -n "$(find . -prune -perm /022)" ]; then echo "$dir belongs to root, and others may write in it" >&2; exit 1; fi
as="setpriv --reuid $uid --regid $(stat -c %g .) $groups"
fi
exec $as sh -c "$1" sh "./$(basename -- "$file")"
