#!/bin/sh
# Let an agent work until a command of yours passes.
#
#   verify.sh 'go test ./...' 'Fix the failing test, not the test itself'
#
# What the command prints goes back into the same conversation, in five iterations at
# most. The answer is on stdout, and the exit code is 0 if the command has passed
# and 8 if it never did. The command is run once before, here and without a limit
# of time: no agent is asked for what passes already.
set -eu
command=${1:?usage: verify.sh COMMAND PROMPT} prompt=${2:?usage: verify.sh COMMAND PROMPT}

if sh -c "$command" >/dev/null 2>&1; then
	echo "it passes already: $command" >&2
	exit 0
fi

code=0
stint task --verify "$command" --verify-timeout 10m --max-iterations 5 -- "$prompt" || code=$?

case $code in
0) git diff --stat >&2 || true ;; # what it took
8) echo "what the agent has changed is still there: git diff, or git restore ." >&2 ;;
esac
exit "$code"
