# What keeps the recipes from draining without cause: never too many nodes at once, and a node that was drained again and again is
# held. For sh, also that of busybox; slurm/node.sh and kubernetes/taint.sh read this file. Times are in UTC, as 2026-11-28T02:30:00.
# shellcheck shell=sh
TZ=UTC0 # Slurm's commands show their times in it too
export TZ

ago() { # SECONDS: that time
    date -d "@$(($(date +%s) - $1))" +%Y-%m-%dT%H:%M:%S
}

# is_too_many NODE: whether so many other nodes were drained within the last hour that this one must not be. Standard input: a line
# for each node of the cluster, with its name and, when it is drained, since when. Of nodes that were drained at once the first ones stay. Without a line it is too many: nothing is known then.
is_too_many() {
    awk -v node="$1" -v most="$XPULAB_MOST_DRAINED" -v since="$(ago 3600)" '
        { drained[$1] = (NF > 1 && $NF > since) ? $NF : "" }
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
        }'
}

of_last_week() { # TIME ...: those of them
    for time in "$@"; do echo "$time"; done | awk -v since="$(ago 604800)" '$1 > since { printf "%s%s", separator, $1; separator = " " }'
}

# is_flapping TIME ...: whether a node that was drained at these times was drained too often within a week to be trusted again
is_flapping() {
    [ "$(of_last_week "$@" | wc -w)" -ge "$XPULAB_HOLD_AFTER" ]
}
