#!/bin/sh
# Many tasks for the night, and how they ended in the morning.
#
#   overnight.sh evening tasks.json    # queues the tasks of a file: all of them, or none
#   overnight.sh morning               # how each ended, and what it answered
#
# examples/tasks.json shows such a file, for any checkout with a README.md; write a check
# of yours into it, such as go test ./... An id or idempotency key in it must be new each
# night. The tasks of one directory run one after the other, a rate limit is
# waited for, and a task that fails is tried a second time. In the morning the exit
# code is 0 if all are done, else that of the first one that is not. `evening` may be
# called for several files: `morning` tells of all since the last morning, or once
# more of those of that one.
set -eu
ids=${OVERNIGHT:-$HOME/.cache/stint-overnight} # the ids of the night's tasks
told=$ids.told                                 # of those that morning has told of

case ${1-} in
evening)
	mkdir -p "$(dirname "$ids")"
	stint task -d --label overnight --max-attempts 2 --spec "${2:?usage: overnight.sh evening FILE}" >"$ids.new"
	cat "$ids.new" >>"$ids"
	echo "$(grep -c . "$ids.new") tasks are queued"
	;;
morning)
	test ! -e "$ids" || mv "$ids" "$told"
	code=0
	# shellcheck disable=SC2046 # ids are words
	stint wait --timeout 1h $(cat "$told") || code=$? # for what is still at work
	while read -r id; do
		echo
		stint show "$id" | sed -n -e '/^task:/p' -e '/^status:/p' -e '/^error:/p' -e '/^tokens:/p' -e '/^prompt:$/{n;p;}'
		stint show --answer "$id" 2>/dev/null || true # one that failed may have none
	done <"$told"
	exit "$code"
	;;
*)
	echo "usage: overnight.sh evening FILE, or overnight.sh morning" >&2
	exit 2
	;;
esac
