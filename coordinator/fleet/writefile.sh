set -eu; IFS= read -r was; IFS= read -r want; umask 077
sum() { sha256sum <"$1" | cut -d" " -f1; }
if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then echo "it is a link or no file, and stays as it is" >&2; exit 1; fi
new=$(mktemp -- "$1.XXXXXX"); trap "rm -f -- \"\$new\"" EXIT
if [ -e "$1" ]; then cp -p -- "$1" "$new"
if [ "$(stat -c "%u %g %a" -- "$1")" != "$(stat -c "%u %g %a" -- "$new")" ]; then echo "its owner, group and mode cannot be kept, and it is as it was" >&2; exit 1; fi
fi
cat >"$new"
if [ "$(sum "$new")" != "$want" ]; then echo "it was cut off on its way, and is as it was" >&2; exit 1; fi
if [ "$was" != any ]; then
now=missing; if [ -e "$1" ]; then now=$(sum "$1"); fi
if [ "$now" != "$was" ]; then echo "it has changed meanwhile, and is as it is" >&2; exit 1; fi
fi
sync -- "$new"; mv -f -- "$new" "$1"
