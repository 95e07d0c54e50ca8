#!/usr/bin/env bash
# tools/lint.sh: makes .venv unless it is ready, then checks style and types of the code with the tools that env/requirements
# pins, and with tools/lint_project.py words, links and the layout of notebooks. Works from any folder and changes no source file.
# Every step runs; exit code 1 when one failed.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

tools=$(bash env/venv.sh -- python -I -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
shopt -s globstar failglob
plugin=(xpulab/sim/plugin/**/*.cc xpulab/sim/plugin/**/*.h)
shells=(.ci/run env/**/*.sh env/**/*.sbatch tools/**/*.sh)

failed=()
step() {
    echo "lint: $1"
    "${@:2}" || failed+=("$1")
}
step "ruff check" "$tools/ruff" check .
step "ruff format --check" "$tools/ruff" format --check xpulab tests tools env data
step "mypy" "$tools/mypy"
step "lint_project" "$tools/python" tools/lint_project.py
step "shellcheck" "$tools/shellcheck" --external-sources "${shells[@]}"
# "none": without a .clang-format file no style is assumed.
step "clang-format --dry-run" "$tools/clang-format" --style=file --fallback-style=none --dry-run -Werror "${plugin[@]}"

if [ ${#failed[@]} -gt 0 ]; then
    printf 'lint: failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "lint: passed"
