#!/bin/sh
# taint.sh FOLDER: each minute removes the taint xpulab/not-ready of this node ($NODE) when FOLDER/code, which gate.sh writes, is 0,
# and puts it on the node when that is 1, unless too many nodes were tainted within the hour. The node's annotation xpulab/drained has
# the times of the last week; a node that was tainted too often in it stays so, until an operator removes the annotation. Needs
# kubectl, and is copied beside breaker.sh: that image has no xpulab.
# shellcheck source=env/operations/breaker.sh
. "$(dirname "$0")/breaker.sh"
taint=xpulab/not-ready

say() { # TEXT: when it is another one than before
    [ "$1" = "${said:-}" ] || echo "xpulab: $NODE $1"
    said=$1
}

is_one_too_many() {
    kubectl get nodes -o 'jsonpath={range .items[*]}{.metadata.name}{" "}{.metadata.annotations.xpulab/drained}{"\n"}{end}' |
        is_too_many "$NODE"
}

taint() { # TAINT TIMES
    kubectl annotate node "$NODE" --overwrite "xpulab/drained=$2" && kubectl taint node "$NODE" "$1" --overwrite
}

red() {
    case $taints in *" $taint "*) return ;; esac
    if [ "$XPULAB_DRY_RUN" = 1 ]; then
        say "would be tainted (dry run)"
        return
    fi
    # shellcheck disable=SC2086 # several times
    if ! is_one_too_many && taint "$taint:NoSchedule" "$(of_last_week $drained "$(ago 0)")"; then
        is_one_too_many || return 0
        taint "$taint:NoSchedule-" "$drained" # others were tainted at the same time
    fi
    say "not tainted, too many nodes were within an hour (XPULAB_MOST_DRAINED=$XPULAB_MOST_DRAINED)"
}

green() {
    case $taints in *" $taint "*) ;; *) return ;; esac
    # shellcheck disable=SC2086 # several times
    if is_flapping $drained; then
        say "held: green, but tainted $XPULAB_HOLD_AFTER times within a week; look, then kubectl annotate node $NODE xpulab/drained-"
    elif [ "$XPULAB_DRY_RUN" = 1 ]; then
        say "its taint would be removed (dry run)"
    else
        kubectl taint node "$NODE" "$taint:NoSchedule-"
    fi
}

while :; do
    if shown=$(kubectl get node "$NODE" -o 'jsonpath={.spec.taints[*].key};{.metadata.annotations.xpulab/drained}'); then
        taints=" ${shown%%;*} "
        drained=${shown#*;}
        case $(cat "$1/code" 2>/dev/null) in
            0) green ;;
            1) red ;;
        esac
    fi
    sleep 60 || exit
done
