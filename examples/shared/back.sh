#!/bin/sh
# back.sh: queues the tasks that wait in the shared queue on this machine instead, and cancels them there.
#
# Stop the workers first. A task comes with its prompt, agent, limits and text files, not with its session or its time. If
# this is cut off, run it again: each task is queued here once, the oldest first.
set -eu

stint tasks ls --shared --status queued -n 0 -q | sed -n '1!G;h;$p' | while read -r id; do
	{ stint tasks get --shared --json --with-files "$id" |
		jq '{prompt, agent: .tool, model, "label": .label, queue, tenantId, priority, outputSpec, verifyCommand, maxAttempts}
			+ {inputFiles: [.files[]? | select(.isInput) | {name: .path, content: (.content // "" | @base64d)}]}
			+ (.extra // {}) | with_entries(select(.value != null and .value != []))
			| if .maxIterations then .maxIterations |= tonumber else . end' |
		stint task -d --workdir temp --idempotency-key "moved:$id" --spec - &&
		stint tasks cancel --shared "$id" >/dev/null; } || echo "back.sh: $id is left in the shared queue" >&2
done
stint tasks ls --shared --status leased,running # what a worker still has: cancel or requeue it when its lease is over
