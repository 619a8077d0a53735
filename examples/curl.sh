#!/bin/sh
# One request to a stint master with curl: over its unix socket, which you alone can open,
# or, where STINT_URL is set, over TCP with the token, which curl reads from stdin and
# never from its command line. What follows goes to curl.
#
#   curl.sh GET '/v1/tasks?status=queued,running'
#   curl.sh POST /v1/tasks -d '{"prompt": "Fix the login test", "workspace": "/home/ana/shop"}'
#   curl.sh POST /v1/tasks/batch -d '[{"prompt": "Fix it", "workspace": "/home/ana/shop"}, {"prompt": "Test it", "workspace": "/home/ana/shop"}]'
#   STINT_URL=http://127.0.0.1:7433 curl.sh GET /v1/health
set -eu
test $# -ge 2 || { echo "usage: curl.sh METHOD PATH [CURL-OPTION...]" >&2; exit 2; }
method=$1 path=$2
shift 2
set -- -sS --fail-with-body -X "$method" -H 'Content-Type: application/json' "$@"
if [ -n "${STINT_URL-}" ]; then
	header=$(stint token header)
	printf '%s\n' "$header" | curl -H @- "$@" "$STINT_URL$path" & # a here-document may be a file
	curl=$!
	trap 'kill "$curl" 2>/dev/null || :' INT TERM
	wait "$curl"
	exit
fi
state=${STINT_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/stint}
socket=$(jq -r .socket "$state/heartbeat.json" 2>/dev/null) && test -S "$socket" && test -O "$socket" || # -O: another user may have taken the name
	{ echo "no master is running; try: stint serve" >&2; exit 3; }
exec curl --unix-socket "$socket" "$@" "http://stint$path"
