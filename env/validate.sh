#!/usr/bin/env bash
# env/validate.sh [ARGS]: creates .venv for the device of this machine (or for --device X in ARGS) unless it is ready, then
# runs: xpulab run ARGS. Works from any folder; relative paths in ARGS start there.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

device=auto
previous=
for argument in "$@"; do
    case $argument in --device=*) device=${argument#--device=} ;; esac
    if [ "$previous" = --device ]; then device=$argument; fi
    previous=$argument
done
exec bash "$here/venv.sh" --device "$device" -- -m xpulab run "$@"
