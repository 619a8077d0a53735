# Sets up git so that it runs no program of the checkout at root, and takes its objects as they are.
unset GIT_DIR GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_NAMESPACE GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_PREFIX
export GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null GIT_TERMINAL_PROMPT=0 GIT_LITERAL_PATHSPECS=1 GIT_PAGER=cat LC_ALL=C GIT_WORK_TREE="$root"
GIT_DIR=$(cd "$root" && git rev-parse --absolute-git-dir) && export GIT_DIR || exit # whatever lies below and looks like a repository
filters=$(git config --name-only --get-regexp '^filter\.') || [ $? = 1 ] || exit
n=0
set_config() { eval "export GIT_CONFIG_KEY_$n=\"\$1\" GIT_CONFIG_VALUE_$n=\"\$2\""; n=$((n + 1)); export GIT_CONFIG_COUNT=$n; }
set_config core.fsmonitor false; set_config core.splitIndex false; set_config index.skipHash true; set_config core.hooksPath /dev/null
set_config core.ignoreStat false; set_config core.trustCtime true; set_config core.checkStat default
set_config core.logAllRefUpdates false; set_config core.quotePath false; set_config core.safecrlf false; set_config core.symlinks true; set_config advice.graftFileDeprecated false; set_config diff.relative false
IFS='
'
set -f
for x in $filters; do
	for y in clean smudge process; do set_config "${x%.*}.$y" ""; done
	set_config "${x%.*}.required" false
done
unset IFS
set +f
