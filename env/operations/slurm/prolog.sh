#!/bin/sh
# Slurm's Prolog: no job starts on a red node. Slurm drains the node and requeues the job. Without a verdict the job starts, unless
# the site sets XPULAB_WITHOUT_VERDICT=1; where nothing could be asked, since the settings are wrong, it starts too. With
# XPULAB_CHECK_HOST=1 it looks at the host first: for nodes that one job has alone.
#
# A prolog has no PATH. Slurm calls such a drain "Prolog error", which no health check resumes, so the node is first drained with its
# reason. A node that must not be drained, as in a dry run, starts its job.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=env/operations/settings.sh
. "$here/settings.sh"

why=$(xpulab_host) && {
    verdict=$(xpulab_verdict)
    case $?:$XPULAB_WITHOUT_VERDICT:$XPULAB_REFUSED in
        1:*) why=$verdict ;;
        2:1:) why="[node_problem] xpulab ${verdict#xpulab: }" ;;
        *) exit 0 ;;
    esac
}
# shellcheck source=env/operations/slurm/node.sh
. "$here/slurm/node.sh"
drain "$why" && exit 1
exit 0
