#!/bin/sh
# A task by HTTP, from submit to answer: sent again with the same key, it is still one
# task. The exit code is 0 if it is done.
#
#   submit.sh "deps-$(date +%F)" 'Update the dependencies'
set -eu

test $# = 2 || { echo "usage: submit.sh KEY PROMPT" >&2; exit 2; }
key=$1
here=$(cd "$(dirname "$0")" && pwd)
body=$(mktemp)
trap 'rm -f "$body"' EXIT
printf %s "$2" | jq -Rs --arg workspace "$PWD" '{prompt: ., $workspace}' >"$body"
task=$("$here/curl.sh" POST /v1/tasks -H "Idempotency-Key: \"$key\"" --data-binary "@$body") ||
	{ printf '%s\n' "$task" | jq -r .message >&2; exit 1; }
"$here/curl.sh" GET "/v1/tasks/$(printf '%s\n' "$task" | jq -r .task_id)/wait" >"$body"
jq -r 'select(.result != .error).result // empty' "$body" # of a failed task it is the error
[ "$(jq -r .status "$body")" = done ] || { jq -r '"\(.status): \(.error // .reason)"' "$body" >&2; exit 1; }
