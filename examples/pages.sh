#!/bin/sh
# All tasks that a filter lets through, a page at a time, newest first: id, status, title.
#
#   pages.sh 'status=failed,dead&label=nightly'
set -eu

filter=${1-}
here=$(cd "$(dirname "$0")" && pwd)
cursor=
while :; do
	page=$("$here/curl.sh" GET "/v1/tasks?limit=${PAGE_SIZE:-100}${filter:+&$filter}${cursor:+&cursor=$cursor}")
	printf '%s\n' "$page" | jq -r '.tasks[] | "\(.id) \(.status) \(.title)"'
	cursor=$(printf '%s\n' "$page" | jq -r '.next // empty | @uri')
	[ -n "$cursor" ] || break
done
