#!/bin/sh
# A plug-in of Kubernetes' node-problem-detector. Exit code 0: no problem, 1: a problem, 2: not known. Prints at most 80 bytes.
# It only reads.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=env/operations/settings.sh
. "$here/settings.sh"
export XPULAB_GATE_SECONDS=4 XPULAB_EXPECT= # a plug-in has 5 s, and the vendor's tool may take longer

verdict=$(xpulab_verdict)
code=$?
LC_ALL=C
export LC_ALL
printf '%.80s\n' "${verdict#'[node_problem] '}" | head -c 80
exit $code
