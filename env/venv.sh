#!/usr/bin/env bash
# Runs env/make_venv.py with its arguments, on the first Python that works: the one of the environment if it exists (it
# starts fastest), else one on PATH. Commands on PATH may be scripts of pyenv that fail, or too old.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")

venv=${XPULAB_VENV:-.venv}
case $venv in /*) ;; *) venv=$root/$venv ;; esac

mapfile -t pythons < <(type -aP python3 python python3.12 python3.11 python3.10)
for python in "$venv/bin/python" "${pythons[@]}"; do
    if "$python" -IS -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
        exec "$python" -IS "$root/env/make_venv.py" "$@"
    fi
done
echo "xpulab: needs Python 3.10, 3.11 or 3.12; found ${pythons[*]:-none on PATH}, but none of them runs and is 3.8 or newer" >&2
exit 2
