#!/usr/bin/env bash
# env/validate.sh [--no-model] [ARGS]: creates .venv for the device of this machine (or for --device X in ARGS) unless it is
# ready, fetches the pretrained model of the chapters unless it is there, then runs: xpulab run ARGS. Where the model cannot
# be had it says so and goes on; --no-model does not try. Works from any folder; relative paths in ARGS start there. On a machine
# that is meant to have an accelerator which Paddle cannot use it installs nothing and is red, exit code 1, with reports.
# Chapter 19 runs in .venv-formers, beside .venv, which is made in the same way; it needs no model, and runs apart from the others.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

model=smollm2-135m
device=auto
packages=common
previous=
arguments=()
for argument in "$@"; do
    case $argument in
        --no-model) model= ; continue ;;
        --list | --help) model= ;;
        --device=*) device=${argument#--device=} ;;
    esac
    case $previous in
        --device) device=$argument ;;
        --list | --cold | --resume | *=* | [!-]* | '') # after any other option its value follows
            case $argument in 19 | 19_* | */19_*) packages=formers model= ;; esac ;; # as its metadata says
    esac
    previous=$argument
    arguments+=("$argument")
done
xpulab=(bash "$here/venv.sh" --device "$device" --packages "$packages" -- xpulab)

if [ -n "$model" ]; then
    bash "$here/venv.sh" --device "$device" --make-only -- xpulab run ${arguments[@]+"${arguments[@]}"}
    "${xpulab[@]}" model "$model" --optional || { code=$?; [ $code -lt 128 ] || exit $code; } # stopped by a signal
fi
exec "${xpulab[@]}" run ${arguments[@]+"${arguments[@]}"}
