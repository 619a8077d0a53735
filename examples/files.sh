#!/bin/sh
# The files that were collected after a task, into a directory, and the end of its log.
#
#   files.sh 019ab3f0 out/
set -eu

test $# = 2 || { echo "usage: files.sh ID DIRECTORY" >&2; exit 2; }
id=$1 dir=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
list=$("$here/curl.sh" GET "/v1/tasks/$id/files") || { status=$?; printf '%s\n' "$list" >&2; exit $status; }
printf '%s\n' "$list" | jq -r '.outputs[] | select(.problem) | "\(.name): \(.problem)"' >&2
printf '%s\n' "$list" | jq -r '.outputs[] | select(.problem | not).name' | while IFS= read -r name; do
	mkdir -p "$(dirname "$dir/$name")"
	"$here/curl.sh" GET "/v1/tasks/$id/files/$(jq -rn --arg name "$name" '$name | split("/") | map(@uri) | join("/")')" -o "$dir/$name" ||
		{ status=$?; rm -f "$dir/$name"; echo "files.sh: $name could not be had" >&2; exit $status; }
done
"$here/curl.sh" GET "/v1/tasks/$id/logs" -r -65536
