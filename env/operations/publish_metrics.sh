#!/bin/sh
# publish_metrics.sh METRICS DIRECTORY: puts metrics.prom of a run into the textfile directory of Prometheus' node exporter. Renamed
# there, so that it is never read half written; the exporter reads only names that end in .prom.
set -eu
[ $# = 2 ] || { echo "usage: publish_metrics.sh METRICS DIRECTORY" >&2; exit 2; }
new=$(mktemp "$2/.xpulab.XXXXXXXXXX") # a new file, also where others may write
trap 'rm -f -- "$new"' EXIT
cat -- "$1" >"$new"
chmod 644 "$new"
mv -T -- "$new" "$2/xpulab.prom"
