#!/bin/sh
# Three tasks in a row: one agent makes a change, another one reviews it, and the
# first one mends what the review has found.
#
#   review.sh 'Add a --quiet flag'
#   REVIEWER=codex review.sh 'Add a --quiet flag'
#
# The first and the last task share a session, so the author knows what it did. The
# reviewer ($REVIEWER, else $STINT_AGENT, else claude) has a session of its own and
# sees only the change. If one of them fails, those after it do not run: the exit
# code is that of the last.
set -eu
change=${1:?usage: review.sh CHANGE}
name=change-$(date +%Y%m%d-%H%M%S)-$$

made=$(stint task -d --session "$name" -- "$change")

reviewed=$(stint task -d --session "$name-review" --agent "${REVIEWER:-${STINT_AGENT:-claude}}" --after "$made" -- \
	"Review the uncommitted changes of this checkout (git status, git diff). They are to do this: $change

Write REVIEW.md: what is wrong or missing, with file and line, the worst first. Change nothing else.") ||
	{ stint cancel "$made" >&2; exit 1; } # a change that nobody reviews is not wanted

mended=$(stint task -d --session "$name" --after "$reviewed" -- \
	"REVIEW.md has a review of your changes. Mend what it is right about, say what you leave as it is and why, and delete REVIEW.md.") ||
	{ stint cancel "$reviewed" "$made" >&2; exit 1; }
code=0
stint wait "$mended" >&2 || code=$?
stint show --answer "$mended" || test "$code" != 0 # it may have one also where it failed
exit "$code"
