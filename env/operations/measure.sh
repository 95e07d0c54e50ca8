#!/usr/bin/env bash
# Measures this machine: one run of the suite into a new folder of XPULAB_VERDICTS, which the gate reads afterwards. The arguments
# are further ones for xpulab run. Exit code: that of xpulab run, which is red with fewer cards than XPULAB_EXPECT; 2 when this machine
# is being measured already. settings.sh has the variables.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/settings.sh"

mkdir -p "$XPULAB_VERDICTS"
exec 9<"$XPULAB_VERDICTS"
if ! flock --nonblock 9; then
    echo "xpulab: another run measures this machine ($XPULAB_VERDICTS is locked)" >&2
    exit 2
fi
[ -z "$XPULAB_EXPECT" ] || set -- --expect "$XPULAB_EXPECT" "$@"

out=$XPULAB_VERDICTS/$(date --utc +%Y-%m-%dT%H%M%SZ)
code=0
xpulab run --device "$XPULAB_DEVICE" --cards "$XPULAB_CARDS" --level "$XPULAB_LEVEL" --out "$out" "$@" || code=$?
if [ -n "$XPULAB_TEXTFILES" ] && [ -f "$out/metrics.prom" ]; then
    sh "$here/publish_metrics.sh" "$out/metrics.prom" "$XPULAB_TEXTFILES"
fi
find "$XPULAB_VERDICTS" -mindepth 1 -maxdepth 1 -type d -name '20*Z' | sort | head -n "-$XPULAB_KEEP" | xargs --no-run-if-empty rm -r
exit $code
