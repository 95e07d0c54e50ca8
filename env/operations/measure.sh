#!/usr/bin/env bash
# Measures this machine: one run of the suite into a new folder of XPULAB_VERDICTS, which the gate reads afterwards. The arguments
# are further ones for xpulab run. Exit code: that of xpulab run, which is red with fewer cards than XPULAB_EXPECT; 2 when nothing
# was run, as when this machine is being measured already. settings.sh has the variables.
set -euo pipefail
measured=2 # 1 is a verdict; whatever ends this script before there is one is none
trap 'exit "$measured"' EXIT
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=env/operations/settings.sh
. "$here/settings.sh"

mkdir -p -- "$XPULAB_VERDICTS"
exec 9<"$XPULAB_VERDICTS"
if ! flock --nonblock 9; then
    echo "xpulab: another run measures this machine ($XPULAB_VERDICTS is locked)" >&2
    exit
fi
[ -z "$XPULAB_EXPECT" ] || set -- --expect "$XPULAB_EXPECT" "$@"

out=$XPULAB_VERDICTS/$(date --utc +%Y-%m-%dT%H%M%SZ)
run=0 # 9<&-: what a run leaves running does not hold the lock
xpulab run --device "$XPULAB_DEVICE" --cards "$XPULAB_CARDS" --level "$XPULAB_LEVEL" --out "$out" "$@" 9<&- || run=$?
measured=$run
if [ -n "$XPULAB_TEXTFILES" ] && [ -f "$out/metrics.prom" ]; then
    sh "$here/publish_metrics.sh" "$out/metrics.prom" "$XPULAB_TEXTFILES" || echo "xpulab: the metrics were not published" >&2
fi

# While the gate is not green, an old run may be the reason. Of other folders none is removed: a run of ours has such a name, and
# the result.json that xpulab run writes first.
xpulab_verdict >/dev/null 9<&- || exit
date='[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9][0-9][0-9][0-9][0-9]Z'
cd -- "$XPULAB_VERDICTS"
find . -mindepth 2 -maxdepth 2 -type f -path "./$date/result.json" -printf '%h\0' |
    sort --zero-terminated | head --zero-terminated --lines="-$XPULAB_KEEP" | xargs --null --no-run-if-empty rm -r --
