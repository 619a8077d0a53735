#!/bin/sh
# A line for each change of a task: the number of the change, id, status. When the
# connection breaks, as at a restart of the master, it goes on where it was
# (Last-Event-ID). With an id it ends when that task has ended, else with Ctrl-C.
#
#   watch.sh
#   watch.sh 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11
set -eu
test $# -le 1 || { echo "usage: watch.sh [ID]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
curl=
trap 'kill $curl 2>/dev/null || :; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
mkfifo "$dir/events"
seen=
while :; do
	"$here/curl.sh" GET /v1/events -N ${seen:+-H "Last-Event-ID: $seen"} >"$dir/events" 2>/dev/null &
	curl=$!
	while IFS= read -r line; do
		case $line in
		id:*) seen=${line#id: } ;;
		data:*)
			change=$(printf '%s\n' "${line#data: }" | jq -r 'select(.task) | "\(.seq) \(.task.id) \(.task.status)"')
			printf '%s\n' ${change:+"$change"}
			case $change in
			*" ${1-none} "done | *" ${1-none} "failed | *" ${1-none} "canceled | *" ${1-none} "dead) exit ;;
			esac
			;;
		esac
	done <"$dir/events"
	sleep 1
done
