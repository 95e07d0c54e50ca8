#!/bin/sh
# Slurm's Epilog: what a job left behind, and what broke under it, before the next one comes. Drains a node that is red, or with
# XPULAB_CHECK_HOST=1 one whose host is wrong: a process that still holds a card, a full /dev/shm, lost cards (XPULAB_EXPECT). Resumes
# nothing. Its exit code is always 0: Slurm would drain with "Epilog error", which no health check resumes.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=env/operations/settings.sh
. "$here/settings.sh"

why=$(xpulab_host) && {
    why=$(xpulab_verdict)
    [ $? = 1 ] || exit 0
}
# shellcheck source=env/operations/slurm/node.sh
. "$here/slurm/node.sh"
drain "$why"
exit 0
