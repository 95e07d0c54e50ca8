#!/bin/sh
# gate.sh FOLDER: writes the gate's exit code and line to FOLDER/code and FOLDER/line each minute, and logs lines that are new.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=env/operations/settings.sh
. "$here/settings.sh"

[ $# = 1 ] || { echo "usage: gate.sh FOLDER" >&2; exit 2; }
rm -f -- "$1/code" # of a gate before this one
logged=
while :; do
    verdict=$(xpulab_verdict)
    echo $? >"$1/code.new"
    printf '%s\n' "$verdict" >"$1/line"
    mv "$1/code.new" "$1/code"
    [ "$verdict" = "$logged" ] || printf '%s\n' "$verdict"
    logged=$verdict
    sleep 60 || exit 0
done
