# What stint demo does in the directory $1: it prints each command, and runs it with the program $2.
set -u
base=$1 began=$(date +%s)
mkdir -m 700 "$base/state" "$base/workspace" "$base/bin" && ln -s "$2" "$base/bin/stint" && cd "$base/workspace" || exit
printf 'agent = "demo"\ngrace = "1s"\nidle_exit = "1m"\n' >"$base/config.toml"
export PATH="$base/bin:$PATH" STINT_STATE_DIR="$base/state" STINT_CONFIG="$base/config.toml"
trap 'stint serve --stop 2>/dev/null' EXIT
trap 'exit 130' INT TERM

# run runs a command, and leaves what that prints in $out.
run() {
	printf '   $ stint %s\n' "$1"
	out=$(eval "stint $1" 2>"$base/stderr") || { cat "$base/stderr" >&2; exit 1; }
	printf '%s\n' "$out" | sed 's/^/   /'
}

echo "Everything happens in $base; the agent is the built-in one."
echo
echo "1. Three sessions run side by side; each task works for a second."
ids='' start=$(date +%s)
for session in web api docs; do
	run "task -d --session $session 'Look at the $session folder. demo:sleep=1s'"
	ids="$ids $out"
done
run "wait$ids"
echo "   All three were done after $(($(date +%s) - start)) s."
echo
echo "2. The next task of the session web resumes the agent's own session."
run "task --session web 'And what did I ask you before?'"
echo "   The agent knows what it was asked before."
echo
echo "3. The master is killed with SIGKILL while a task runs. The next command starts another one."
run "task -d --session api 'Work for a moment. demo:sleep=1s'"
id=$out
while :; do # until the agent has begun, and its session is known
	case $(stint show --json "$id") in
	*'"status":"done"'*)
		echo "the task ended before its master could be killed; the machine is too busy for the demo" >&2
		exit 1
		;;
	*'"agentSession":'*) break ;;
	esac
done
pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$STINT_STATE_DIR/heartbeat.json")
printf '   $ kill -9 %s\n' "$pid"
kill -9 "$pid" || exit
run "wait $id"
run "logs $id"
echo "   It was run again, in the session that the agent had begun."
echo
echo "Done in $(($(date +%s) - began)) s. What is left to look at:"
echo "   $STINT_STATE_DIR/tasks.md    every step, in Markdown"
echo "   $STINT_STATE_DIR/runs        what the agent was sent and wrote"
echo "   stint --state-dir $STINT_STATE_DIR ls"
echo "Remove it with: rm -r $base"
