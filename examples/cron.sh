#!/bin/sh
# A task for each day, for crontab:
#
#   15 6 * * 1-5  /home/ana/bin/cron.sh /home/ana/shop 'Update the dependencies, keep the tests green'
#
# It queues the task and ends at once; a master in the background runs it. However
# often it is called on a day, there is one task for each directory and prompt: that
# is what the key is for. Nothing is printed unless something is wrong; cron mails
# you that.
#
# cron's environment is small: what agents need (API keys, proxies) has to be set
# here or in the crontab, unless a `stint serve` runs that has it. So have
# STINT_STATE_DIR and the XDG_ variables where you use them: without them it is
# another ledger, another configuration.
set -eu
PATH=$HOME/.local/bin:$HOME/go/bin:/usr/local/bin:$PATH
export PATH
directory=${1:?usage: cron.sh DIRECTORY PROMPT} prompt=${2:?usage: cron.sh DIRECTORY PROMPT}

cd -- "$directory"
key=$(date +%F)-$(printf '%s\n' "$(pwd -P)" "$prompt" | cksum | tr ' ' -)
stint task -d -C . --label daily --idempotency-key "$key" --max-attempts 2 --timeout 2h -- "$prompt" >/dev/null
