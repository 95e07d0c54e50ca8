#!/bin/sh
# Slurm's HealthCheckProgram: drains this node when it is red, with check, measured, expected and the command to repeat as reason.
# Resumes it when it is green again, if that drain was ours, unless it was drained too often within a week. No verdict is a comment on
# the node, and no drain; so is a red one while too many nodes were drained within the hour, and in a dry run. It only reads.
#
# slurmd runs it as root on every node, with SLURMD_NODENAME as the only variable, and kills it after 60 s.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=env/operations/settings.sh
. "$here/settings.sh"

verdict=$(xpulab_verdict)
found=$?
# shellcheck source=env/operations/slurm/node.sh
. "$here/slurm/node.sh" # after it: the node's state as it is now
case $found in
    0) resume ;;
    1) drain "$verdict" ;;
    *) note "${verdict#xpulab: }" ;;
esac
exit 0
