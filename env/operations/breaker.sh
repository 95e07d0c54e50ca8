# What keeps the recipes from draining without cause: never too many nodes at once, a node that was drained again and again is held,
# an old answer of the gate is none. For sh, also that of busybox; slurm/node.sh and kubernetes/taint.sh read this file. Times are in
# UTC, as 2026-11-28T02:30:00.
# shellcheck shell=sh
TZ=UTC0 # Slurm's commands show their times in it too
export TZ

ago() { # SECONDS: that time
    date -d "@$(($(date +%s) - $1))" +%Y-%m-%dT%H:%M:%S
}

# since SECONDS PROGRAM: an awk with the function is_since(TIME): whether that is a time, not before so long ago, and not in the future,
# but for clocks that differ
since() {
    seconds=$1 program=$2
    shift 2
    awk -v since="$(ago "$seconds")" -v ahead="$(ago -3600)" "$@" '
        function is_since(time) { return time ~ /^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-9:]+$/ && time > since && time < ahead }'"$program"
}

# is_too_many NODE: whether so many other nodes were drained within the last hour that this one must not be. Standard input: a line
# for each node of the cluster, with its name and, when it is drained, since when. Of nodes that were drained at once the first ones
# stay. Without a line it is too many: nothing is known then.
is_too_many() {
    # shellcheck disable=SC2016 # awk's
    since 3600 '
        { drained[$1] = is_since($NF) ? $NF : "" }
        END {
            mine = (node in drained) ? drained[node] : ""
            for (each in drained) {
                nodes++
                at = drained[each]
                if (each != node && at != "" && (mine == "" || at < mine || (at == mine && each < node))) before++
            }
            limit = most + 0
            if (most ~ /%$/) { limit = int(nodes * limit / 100); if (limit < 1) limit = 1 }
            exit !(before >= limit || !nodes)
        }' -v node="$1" -v most="$XPULAB_MOST_DRAINED"
}

of_last_week() { # TEXT ...: the times among them that are of the last week
    # shellcheck disable=SC2016
    printf '%s\n' "$@" | since 604800 'is_since($1) { printf "%s%s", separator, $1; separator = " " }'
}

# is_flapping TIME ...: whether a node that was drained at these times was drained too often within a week to be trusted again
is_flapping() {
    ! [ "$(of_last_week "$@" | wc -w)" -lt "$XPULAB_HOLD_AFTER" ] # also where that is no number
}

answer_in() { # FOLDER: what kubernetes/gate.sh wrote there within the last five minutes, which it does each minute: 0, 1 or 2
    find "$1/code" -mmin -5 -exec cat {} + 2>/dev/null
}
