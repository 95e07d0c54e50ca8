# This node in Slurm, for the scripts of this folder, which read settings.sh first. Its comment holds what is known without a drain,
# and when xpulab drained it: "xpulab: unknown, ...; drained 2026-11-21T02:40:00 2026-11-24T02:41:10". Comments of others stay.
# shellcheck shell=sh
# shellcheck source=env/operations/breaker.sh
. "${here:?settings.sh is read first}/breaker.sh"
unset SLURM_TIME_FORMAT

now=$(timeout 10 sinfo --noheader --nodes "$XPULAB_NODE" --format '%T|%E' | head -n 1)
shown=$(timeout 10 scontrol show node "$XPULAB_NODE") || now=
state=${now%%|*} # nothing where Slurm does not answer
reason=${now#*|}
comment=$(printf '%s\n' "$shown" | sed -n 's/^ *Comment=//p')
drained= # when, within the last week
# shellcheck disable=SC2086 # several times
case $comment in 'xpulab: '*'; drained '*) drained=$(of_last_week ${comment##*; drained }) ;; esac

update() { timeout 10 scontrol update "NodeName=$XPULAB_NODE" "$@"; }

note() { # TEXT: the comment, with the times beside it; none where that of before is not known
    [ -n "$state" ] || return 0
    new=${1:+xpulab: $1}
    [ -z "$drained" ] || new="xpulab: ${1:-green}; drained $drained"
    case $comment in
        "$new") ;;
        '' | 'xpulab: '*) update "Comment=$new" && comment=$new ;;
    esac
}

is_ours() { # whether xpulab drained this node, and may resume it
    case $state:$reason in
        drain*:'[node_problem] xpulab held'*) return 1 ;;
        drain*:'[node_problem] xpulab '*) return 0 ;;
        *) return 1 ;;
    esac
}

is_one_too_many() { # whether this node must not be drained beside the others
    timeout 10 sinfo --noheader --Node --format '%N|%H|%E' ${XPULAB_AMONG:+--partition "$XPULAB_AMONG"} |
        sed -n -e 's/^\([^|]*\)|\([^|]*\)|\[node_problem\] .*/\1 \2/p' -e 's/^\([^|]*\)|.*/\1/p' | is_too_many "$XPULAB_NODE"
}

# drain REASON: drains this node. Returns 1 when it goes on taking jobs. Where it is drained or down already the reason stays: that of
# an operator, of Slurm, or of the first time that it was red.
drain() {
    case $state in
        drain* | down* | fail*) return 0 ;;
        '') return 1 ;;
    esac
    if [ "$XPULAB_DRY_RUN" != 0 ]; then
        echo "xpulab: dry run, $XPULAB_NODE would be drained: $1"
        note "dry run, would be drained: $1"
        return 1
    fi
    if ! is_one_too_many; then
        update State=DRAIN "Reason=$1" || return 1
        if ! is_one_too_many; then
            drained="${drained:+$drained }$(ago 0)"
            note red
            return 0
        fi
        update State=RESUME || return 0 # others were drained at the same time
    fi
    note "not drained, too many nodes were within an hour (XPULAB_MOST_DRAINED=$XPULAB_MOST_DRAINED): $1"
    return 1
}

resume() { # where xpulab drained this node, and not too often
    # shellcheck disable=SC2086 # several times
    if ! is_ours; then
        note ''
    elif [ "$XPULAB_DRY_RUN" != 0 ]; then
        echo "xpulab: dry run, $XPULAB_NODE would be resumed"
    elif is_flapping $drained; then
        update "Reason=[node_problem] xpulab held: green, but drained $XPULAB_HOLD_AFTER times within a week; look, then resume it"
    else
        update State=RESUME
        note ''
    fi
}
