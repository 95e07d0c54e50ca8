#!/bin/sh
# Slurm's Prolog: no job starts on a red node. Slurm drains the node and requeues the job. Without a verdict the job starts, unless
# the site sets XPULAB_WITHOUT_VERDICT=1. It only reads. With XPULAB_CHECK_HOST=1 it looks at the host first: for nodes that one job has alone.
#
# A prolog has no PATH. Slurm calls such a drain "Prolog error", so a red node is first drained with its reason.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
. "$here/settings.sh"

reason=$(xpulab_host) || {
    timeout 10 scontrol update "NodeName=$XPULAB_NODE" State=DRAIN "Reason=$reason"
    exit 1
}

verdict=$(xpulab_verdict)
case $? in
    0) exit 0 ;;
    1)
        "$here/slurm/health_check.sh"
        exit 1
        ;;
    *) exit "$XPULAB_WITHOUT_VERDICT" ;;
esac
