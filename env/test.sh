#!/usr/bin/env bash
# env/test.sh [ARGS]: creates .venv for the device of this machine unless it is ready, then runs pytest ARGS in the
# repository; without -m in ARGS the tiers unit and integration (pyproject.toml lists them). Without -n in ARGS the tests are
# distributed over 2 to 6 processes, three for two cores: many tests wait.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

spread=yes
for argument in "$@"; do
    case $argument in -n* | --numprocesses*) spread=no ;; esac
done
if [ $spread = yes ]; then
    workers=$(($(nproc) * 3 / 2))
    workers=$((workers < 2 ? 2 : workers > 6 ? 6 : workers))
    # in the order of collection, longest tests first: by default xdist starts the modules with most tests
    set -- -n $workers --dist loadscope --no-loadscope-reorder "$@"
fi

# One thread per process: the processes share the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Python keeps what it compiles: each process, and the tests start thousands, would compile xpulab and the tests again.
unset PYTHONDONTWRITEBYTECODE
cd "$here/.."
exec bash "$here/venv.sh" -- python -m pytest "$@"
