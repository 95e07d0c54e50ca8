#!/usr/bin/env bash
# env/lab.sh [--device DEVICE] [--no-model] [ARGS]: creates .venv for the device of this machine (or for DEVICE) unless it is ready,
# fetches the pretrained model of the chapters unless it is there, then opens the book in JupyterLab: xpulab lab ARGS. Where the
# model cannot be had it says so and goes on; --no-model does not try. It runs no chapter: the reader does. Works from any folder.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

model=smollm2-135m
device=auto
while [ $# -gt 0 ]; do
    case $1 in
        --no-model) model= ;;
        --device=*) device=${1#--device=} ;;
        --device) device=${2-}; [ $# = 1 ] || shift ;;
        --) shift; break ;;
        *) break ;;
    esac
    shift
done
xpulab=(bash "$here/venv.sh" --device "$device" -- xpulab)

if [ -n "$model" ]; then
    bash "$here/venv.sh" --device "$device" --make-only
    "${xpulab[@]}" model "$model" --optional || { code=$?; [ $code -lt 128 ] || exit $code; } # stopped by a signal
fi
exec "${xpulab[@]}" lab "$@"
