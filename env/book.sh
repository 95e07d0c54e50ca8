#!/usr/bin/env bash
# env/book.sh [RUN]: builds the book, the chapters and the pages of docs/ with search, into build/book. It shows the committed
# notebooks, or with RUN, the folder of an `xpulab run`, those that this run executed. It needs no device and no .venv: it
# makes an environment of its own, .venv-book, unless that is ready. Exit codes: 0 built, without a warning; 1 not so; 2 bad input.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then
    echo "usage: env/book.sh [RUN], where RUN is the folder of an xpulab run" >&2
    exit 2
fi
if [ $# = 1 ] && [ ! -f "$1/result.json" ]; then
    echo "xpulab: $1 is not the folder of a run: it holds no result.json. xpulab run --out DIR makes one" >&2
    exit 2
fi
exec bash "$here/venv.sh" --set book -- python "$here/make_book.py" "$@"
