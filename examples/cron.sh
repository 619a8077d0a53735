#!/bin/sh
# A task for each day, for crontab:
#
#   15 6 * * 1-5  /home/ana/bin/cron.sh /home/ana/shop 'Update the dependencies, keep the tests green'
#
# It queues the task and ends at once; a master in the background runs it. However
# often it is called on a day, the task is made once: that is what the key is for.
# Nothing is printed unless something is wrong; cron mails you that.
#
# cron's environment is small: what agents need (API keys, proxies) has to be set
# here or in the crontab, unless a `stint serve` runs that has it.
set -eu
PATH=$HOME/.local/bin:$HOME/go/bin:/usr/local/bin:$PATH
export PATH
directory=${1:?usage: cron.sh DIRECTORY PROMPT} prompt=${2:?usage: cron.sh DIRECTORY PROMPT}

stint task -d -C "$directory" --label daily --idempotency-key "$(basename "$directory")-$(date +%F)" \
	--max-attempts 2 --timeout 2h -- "$prompt" >/dev/null
