#!/bin/sh
# One task for each of many things, side by side, and one that joins what they found.
#
#   fanout.sh 'Look for errors that are dropped' cmd/*/ internal/*/
#
# --parallel lets tasks of one directory run at the same time (max_workers of them);
# each writes a file of its own, so they are not in each other's way. The last one
# waits for all of them, also if some fail. The answer and the exit code are its. If
# one cannot be queued, those before it are canceled.
# shellcheck disable=SC2046,SC2086 # ids are words
set -eu
test $# -ge 2 || { echo "usage: fanout.sh QUESTION PART..." >&2; exit 2; }
question=$1
shift
reports=reports-$(date +%Y%m%d-%H%M%S)-$$
mkdir "$reports"

ids=
n=0
for part in "$@"; do
	n=$((n + 1))
	id=$(stint task -d --parallel --label fanout -- \
		"$question, in $part only. Write what you find to $reports/$n.md, and change nothing else.") ||
		{ test -z "$ids" || stint cancel $ids >&2; exit 1; }
	ids="$ids $id"
done

joined=$(stint task -d --parallel --after "$(echo $ids | tr ' ' ,)" --after-policy any -- \
	"Read $reports/*.md, of which there should be $n. Join them into one list, the worst first, without what is there twice. Name the parts that lack a report.") ||
	{ stint cancel $ids >&2; exit 1; }
code=0
stint wait "$joined" >&2 || code=$?
stint show --answer "$joined" || test "$code" != 0 # it may have one also where it failed
exit "$code"
