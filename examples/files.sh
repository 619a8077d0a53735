#!/bin/sh
# The files that were collected after a task, into a directory, and the end of its log.
#
#   files.sh 019ab3f0 out/
set -eu

test $# = 2 || { echo "usage: files.sh ID DIRECTORY" >&2; exit 2; }
id=$1 dir=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
"$here/curl.sh" GET "/v1/tasks/$id/files" | jq -r '.outputs[].path' | while IFS= read -r name; do
	mkdir -p "$(dirname "$dir/$name")"
	"$here/curl.sh" GET "/v1/tasks/$id/files/$(jq -rn --arg name "$name" '$name | split("/") | map(@uri) | join("/")')" -o "$dir/$name"
done
"$here/curl.sh" GET "/v1/tasks/$id/logs" -r -65536
