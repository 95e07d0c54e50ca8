#!/usr/bin/env bash
# Measures this machine: one run of the suite into a new folder of XPULAB_VERDICTS, which the gate reads afterwards. The arguments
# are further ones for xpulab run. Exit code: that of xpulab run, which is red with fewer cards than XPULAB_EXPECT; 2 when nothing
# was run, as when this machine is being measured already. settings.sh has the variables.
measured=2 # 1 is a verdict; whatever ends this script before there is one is none
trap 'exit "$measured"' EXIT
here=$(dirname "$(readlink -f "$0")")
# shellcheck disable=SC2034 # settings.sh
not_imported=-false # all packages are imported
# shellcheck source=env/operations/settings.sh
. "$here/settings.sh" || exit
set -euo pipefail # after what a site wrote
umask o-w         # who can change a verdict makes one

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
[ "$run" != 1 ] || [ -f "$out/result.json" ] || run=2 # a Python that cannot start ends with 1 too
measured=$run
if [ -n "$XPULAB_TEXTFILES" ] && [ -f "$out/metrics.prom" ]; then
    sh "$here/publish_metrics.sh" "$out/metrics.prom" "$XPULAB_TEXTFILES" || echo "xpulab: the metrics were not published" >&2
fi

# Old runs are removed, but for those without which the gate is not green: one may have ended a red run. Of other folders none is:
# a run of ours has such a name, and the result.json that xpulab run writes first.
cd -- "$XPULAB_VERDICTS"
date='[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9][0-9][0-9][0-9][0-9]Z'
kept=$((XPULAB_KEEP > 0 ? XPULAB_KEEP : 1))
mapfile -t old < <(find . -mindepth 2 -maxdepth 2 -type f -path "./$date/result.json" -printf '%P\n' | sort | head --lines=-$kept)
XPULAB_EXPECT=
XPULAB_VERDICTS=$(mktemp -d)
trap 'rm -r -- "$XPULAB_VERDICTS"; exit "$measured"' EXIT
shopt -s dotglob
ln -s -- "$PWD"/* "$XPULAB_VERDICTS"
xpulab_verdict >/dev/null 9<&- || exit # an old run may be the reason
for run in ${old[@]+"${old[@]%/*}"}; do
    rm -- "$XPULAB_VERDICTS/$run"
    if [ "$run" != "${out##*/}" ] && xpulab_verdict >/dev/null 9<&-; then
        rm -r -- "$run"
    else
        ln -s -- "$PWD/$run" "$XPULAB_VERDICTS"
    fi
done
