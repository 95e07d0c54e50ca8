#!/bin/sh
# publish_metrics.sh METRICS DIRECTORY: puts metrics.prom of a run into the textfile directory of Prometheus' node exporter. Renamed
# there, so that it is never read half written; the exporter reads only names that end in .prom.
set -eu
cp "$1" "$2/xpulab.prom.$$"
chmod 644 "$2/xpulab.prom.$$"
mv "$2/xpulab.prom.$$" "$2/xpulab.prom"
