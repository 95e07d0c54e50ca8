#!/usr/bin/env bash
# Updates env/requirements/common.txt from common.in: bash env/lock.sh keeps pins that are still valid, bash env/lock.sh
# --upgrade takes the newest version of every package. Needs uv and a package index.
#
# The CPU framework is resolved too, so that its dependencies are pinned, and then removed: the set of each device names its
# own framework. "fewest" selects one version of a package for all Pythons, so that a notebook uses the same libraries on
# an XPU node (Python 3.10) as on the machine that made its outputs.
set -euo pipefail
requirements="$(cd "$(dirname "${BASH_SOURCE[0]}")/requirements" && pwd)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >pyproject.toml <<'END'
[tool.uv]
environments = ["sys_platform == 'linux' and python_full_version < '3.13'"]
END
if [ -e "$requirements/common.txt" ]; then cp "$requirements/common.txt" lock.txt; fi

grep '^paddlepaddle==' "$requirements/cpu.txt" |
    uv pip compile "$requirements/common.in" - --output-file lock.txt --quiet "$@" \
        --universal --python-version 3.10 --fork-strategy fewest --no-emit-package paddlepaddle \
        --no-annotate --no-header --no-emit-index-url
{
    echo "# Everything but the framework, for Python 3.10 to 3.12 on Linux. Made by env/lock.sh from common.in: do not edit."
    # Remove the condition set above from every line, for readability: env/make_venv.py ensures it anyway.
    sed -e "s/ ; python_full_version < '3.13' and sys_platform == 'linux'$//" \
        -e "s/python_full_version < '3.13' and //g" -e "s/ and sys_platform == 'linux'//g" lock.txt
} >"$requirements/common.txt"
