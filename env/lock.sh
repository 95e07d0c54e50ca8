#!/usr/bin/env bash
# Updates common.txt, formers.txt and book.txt in env/requirements from their .in files: bash env/lock.sh keeps pins that are still
# valid, bash env/lock.sh --upgrade takes the newest version of every package. Needs uv and a package index.
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

# lock NAME TITLE [ARGS]: NAME.txt from NAME.in and from what is on standard input
lock() {
    name=$1 title=$2
    shift 2
    if [ -e "$requirements/$name.txt" ]; then cp "$requirements/$name.txt" "$name.lock.txt"; fi
    uv pip compile "$requirements/$name.in" - --output-file "$name.lock.txt" --quiet "$@" \
        --universal --python-version 3.10 --fork-strategy fewest \
        --no-annotate --no-header --no-emit-index-url
    {
        echo "# $title, for Python 3.10 to 3.12 on Linux. Made by env/lock.sh from $name.in: do not edit."
        # Remove the condition set above from every line, for readability: env/make_venv.py ensures it anyway.
        sed -e "s/ ; python_full_version < '3.13' and sys_platform == 'linux'$//" \
            -e "s/python_full_version < '3.13' and //g" -e "s/ and sys_platform == 'linux'//g" "$name.lock.txt"
    } >"$requirements/$name.txt"
}

framework=$(grep '^paddlepaddle==' "$requirements/cpu.txt")
lock common "Everything but the framework" --no-emit-package paddlepaddle "$@" <<<"$framework"
lock formers "Everything but the framework for chapter 19" --no-emit-package paddlepaddle "$@" <<<"$framework"
lock book "What env/book.sh builds the pages with" "$@" </dev/null
