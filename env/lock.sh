#!/usr/bin/env bash
# Updates common.txt, formers.txt and book.txt in env/requirements from their .in files: bash env/lock.sh keeps pins that are still
# valid, bash env/lock.sh --upgrade takes the newest version of every package. Needs uv and a package index. It writes the hashes of
# their files too, and those of the frameworks into cpu.txt, gpu.txt and xpu.txt where the index of the framework answers.
#
# The CPU framework is resolved too, so that its dependencies are pinned, and then removed: the set of each device names its
# own framework. "fewest" selects one version of a package for all Pythons, so that a notebook uses the same libraries on
# an XPU node (Python 3.10) as on the machine that made its outputs.
set -euo pipefail
case ${1:---upgrade} in --upgrade | --upgrade-package) ;; *) echo "usage: env/lock.sh [--upgrade | --upgrade-package NAME]" >&2; exit 2 ;; esac
env="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
requirements=$env/requirements

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >pyproject.toml <<'END'
[tool.uv]
environments = ["sys_platform == 'linux' and python_full_version < '3.13'"]
END
compile=(uv pip compile --quiet --universal --python-version 3.10 --no-annotate --no-header --no-emit-index-url)

# with_hashes PINS [ARGS]: the lines of that file with the hashes of what they pin
with_hashes() {
    pins=$1
    shift
    "${compile[@]}" "$pins" --no-deps --format pylock.toml --output-file pylock.toml "$@" >/dev/null &&
        uv run --quiet --no-project --python '>=3.11' "$env/hashes.py" pylock.toml <"$pins"
}

# lock NAME TITLE [ARGS]: NAME.txt from NAME.in and from what is on standard input
lock() {
    name=$1 title=$2
    shift 2
    if [ -e "$requirements/$name.txt" ]; then sed 's/ --hash=.*//' "$requirements/$name.txt" >"$name.lock.txt"; fi
    "${compile[@]}" "$requirements/$name.in" - --output-file "$name.lock.txt" "$@" --fork-strategy fewest >/dev/null
    with_hashes "$name.lock.txt" >"$name.hashed.txt"
    {
        echo "# $title, for Python 3.10 to 3.12 on Linux. Made by env/lock.sh from $name.in: do not edit."
        # Remove the condition set above from every line, for readability: env/make_venv.py ensures it anyway.
        sed -e "s/ ; python_full_version < '3.13' and sys_platform == 'linux'\( \|$\)/\1/" \
            -e "s/python_full_version < '3.13' and //g" -e "s/ and sys_platform == 'linux'//g" "$name.hashed.txt"
    } >"$requirements/$name.txt"
}

framework=$(sed -n 's/^\(paddlepaddle==[^ ]*\).*/\1/p' "$requirements/cpu.txt")
lock common "Everything but the framework" --no-emit-package paddlepaddle "$@" <<<"$framework"
lock formers "Everything but the framework for chapter 19" --no-emit-package paddlepaddle "$@" <<<"$framework"
lock book "What env/book.sh builds the pages with" "$@" </dev/null

for device in cpu gpu xpu; do
    file=$requirements/$device.txt
    mapfile -t index < <(sed -n 's/^--extra-index-url \(.*\)/--default-index=\1/p' "$file")
    grep '^paddlepaddle' "$file" | sed 's/ --hash=.*//' >framework.txt
    if "${compile[@]}" framework.txt --no-deps --output-file exact.txt ${index[@]+"${index[@]}"} >/dev/null 2>&1 &&
        sed 's/ ;.*//' exact.txt >framework.txt && hashed=$(with_hashes framework.txt ${index[@]+"${index[@]}"} 2>/dev/null); then
        sed -i "s|^paddlepaddle.*|$hashed|" "$file"
    else
        echo "lock: $device.txt: the index of its framework does not answer, so the wheel has no new hash" >&2
    fi
done
