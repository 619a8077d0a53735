#!/bin/sh
# A line for each change of a task: the number of the change, id, status. When the
# connection breaks, as at a restart of the master, it goes on where it was
# (Last-Event-ID). With an id, or a piece of one, the first line is how that task is, and
# it ends when the task has ended; else with Ctrl-C.
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
id=${1-} seen=

# tell prints a change: its number, the id, the status. It ends with the task's end.
tell() {
	printf '%s %s %s\n' "$1" "$2" "$3"
	case "$2 $3" in
	"$id done" | "$id failed" | "$id canceled" | "$id dead") exit 0 ;;
	esac
}

# look asks how the task is, and from which change on there is more to tell.
look() {
	"$here/curl.sh" GET "/v1/tasks/$id" -D "$dir/header" -o "$dir/task" || { stop_if_refused $? "$dir/task"; return 1; }
	seen=$(sed -n 's/^Stint-Seq: \([0-9]*\).*/\1/p' "$dir/header")
	id=$(jq -r .id "$dir/task")
	tell "$seen" "$id" "$(jq -r .status "$dir/task")"
}

# stop_if_refused ends if curl's status says that the master has refused the request,
# which it would do again.
stop_if_refused() {
	test "$1" = 22 || return 0
	cat "$2" >&2
	echo >&2
	exit 22
}

while :; do
	test -z "$id" || test -n "$seen" || look || { sleep 1; continue; }
	"$here/curl.sh" GET /v1/events -N ${seen:+-H "Last-Event-ID: $seen"} >"$dir/events" &
	curl=$!
	: >"$dir/refusal"
	while IFS= read -r line || test -n "$line"; do
		case $line in
		id:*) seen=${line#id: } ;;
		data:*)
			change=$(printf '%s\n' "${line#data: }" | jq -r 'select(.task) | "\(.seq) \(.task.id) \(.task.status)"')
			test -z "$change" || tell $change
			;;
		"event: resync") # the end may be among what cannot be told
			test -z "$id" || { seen=; kill "$curl"; break; }
			;;
		"{"*) printf '%s\n' "$line" >"$dir/refusal" ;;
		esac
	done <"$dir/events"
	wait "$curl" || stop_if_refused $? "$dir/refusal"
	curl=
	sleep 1
done
