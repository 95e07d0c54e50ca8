#!/bin/sh
# taint.sh FOLDER: each minute removes the taint xpulab/not-ready of this node ($NODE) when FOLDER/code, which gate.sh writes there, is
# 0, and puts it on the node when that is 1, unless too many nodes were tainted within the hour. The node's annotation xpulab/drained has
# the times of the last week; a node that was tainted too often in it stays so, until an operator removes the annotation. Needs
# kubectl, and is copied beside breaker.sh: that image has no xpulab.
[ $# = 1 ] || { echo "usage: taint.sh FOLDER" >&2; exit 2; }
# shellcheck source=env/operations/breaker.sh
. "$(dirname "$0")/breaker.sh"
taint=xpulab/not-ready

say() { # TEXT: when it is another one than before
    [ "$1" = "${said:-}" ] || echo "xpulab: $NODE $1"
    said=$1
}

is_one_too_many() {
    kubectl get nodes --selector "${XPULAB_AMONG:-}" \
        -o 'jsonpath={range .items[*]}{.metadata.name}{" "}{.metadata.annotations.xpulab/drained}{"\n"}{end}' |
        is_too_many "$NODE"
}

mark() { # TIMES: when this node was tainted
    kubectl annotate node "$NODE" --overwrite "xpulab/drained=$1"
}

red() {
    case $taints in *" $taint "*) return ;; esac
    if [ "${XPULAB_DRY_RUN:-0}" != 0 ]; then
        say "would be tainted (dry run)"
        return
    fi
    why="too many nodes were within an hour (XPULAB_MOST_DRAINED=$XPULAB_MOST_DRAINED)"
    if ! is_one_too_many; then
        kubectl taint node "$NODE" "$taint:NoSchedule" --overwrite || return
        # shellcheck disable=SC2086 # several times
        if ! mark "$(of_last_week $drained "$(ago 0)")"; then
            why="its annotation xpulab/drained cannot be written"
        elif is_one_too_many; then # others were tainted at the same time
            mark "$drained"
        else
            return
        fi
        kubectl taint node "$NODE" "$taint:NoSchedule-"
    fi
    say "not tainted, $why"
}

green() {
    case $taints in *" $taint "*) ;; *) return ;; esac
    # shellcheck disable=SC2086 # several times
    if is_flapping $drained; then
        say "held: green, but tainted $XPULAB_HOLD_AFTER times within a week; look, then kubectl annotate node $NODE xpulab/drained-"
    elif [ "${XPULAB_DRY_RUN:-0}" != 0 ]; then
        say "its taint would be removed (dry run)"
    else
        kubectl taint node "$NODE" "$taint:NoSchedule-"
    fi
}

while :; do
    if shown=$(kubectl get node "$NODE" -o 'jsonpath={.spec.taints[*].key};{.metadata.annotations.xpulab/drained}'); then
        taints=" ${shown%%;*} "
        drained=${shown#*;}
        case $(answer_in "$1") in
            0) green ;;
            1) red ;;
        esac
    fi
    sleep 60 || exit
done
