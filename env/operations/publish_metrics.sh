#!/bin/sh
# publish_metrics.sh METRICS DIRECTORY: puts metrics.prom of a run into the textfile directory of Prometheus' node exporter. Renamed
# there, so that it is never read half written; the exporter reads only names that end in .prom. Where the directory is another
# user's, root writes with that user's rights only: it could lead root anywhere.
set -eu
[ $# = 2 ] || { echo "usage: publish_metrics.sh METRICS DIRECTORY" >&2; exit 2; }
exec <"$1"
cd -- "$2"
# shellcheck disable=SC2016 # of that shell
set -- sh -euC -c '
    umask 022
    new=$(mktemp -u .xpulab.XXXXXXXXXX)
    trap "rm -f -- $new" EXIT
    cat >"$new" # -C: a new file, and never where a link leads
    mv -T -- "$new" xpulab.prom'
if [ "$(id -u)" = 0 ] && [ "$(stat -c %u .)" != 0 ]; then
    set -- setpriv "--reuid=$(stat -c %u .)" "--regid=$(stat -c %g .)" --clear-groups "$@"
fi
exec "$@"
