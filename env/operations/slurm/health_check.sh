#!/bin/sh
# Slurm's HealthCheckProgram: drains this node when it is red, with check, measured, expected and the command to repeat as reason.
# Resumes it when it is green again, if that drain was ours. No verdict is a comment on the node, and no drain. It only reads.
#
# slurmd runs it as root on every node, with SLURMD_NODENAME as the only variable, and kills it after 60 s.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
. "$here/settings.sh"

verdict=$(xpulab_verdict)
code=$?

update() { timeout 10 scontrol update "NodeName=$XPULAB_NODE" "$@"; }
comment() { timeout 10 scontrol show node "$XPULAB_NODE" | sed -n 's/^ *Comment=//p'; }

now=$(timeout 10 sinfo --noheader --nodes "$XPULAB_NODE" --format '%T|%E' | head -n 1)
state=${now%%|*}
reason=${now#*|}
is_ours=no
case $state in drain*) case $reason in '[node_problem] xpulab '*) is_ours=yes ;; esac ;; esac

case $code in
    0)
        [ $is_ours = no ] || update State=RESUME
        case $(comment) in 'xpulab: '*) update Comment= ;; esac
        ;;
    1)
        case $state in
            drain* | down* | fail* | '') # the reason of an operator, or of Slurm itself, stays
                [ $is_ours = no ] || [ "$reason" = "$verdict" ] || update "Reason=$verdict"
                ;;
            *) update State=DRAIN "Reason=$verdict" ;;
        esac
        ;;
    *)
        known=$(comment)
        case $known in
            '' | 'xpulab: '*) [ "$known" = "$verdict" ] || update "Comment=$verdict" ;;
        esac
        ;;
esac
