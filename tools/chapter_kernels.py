"""Which kernels each chapter asks of its device, and where a P800 would compute them: the table of docs/devices.md.

    .venv/bin/python tools/chapter_kernels.py OUT       # all chapters at quick on simulated cards, one after another
    .venv/bin/python tools/chapter_kernels.py OUT 02 17

OUT/NN_name.txt lists "kernel type" of a chapter; one that is there is not run again. The table is written from the files in OUT. Views
are copies (FLAGS_use_stride_kernel=0), as on an XPU by default. Exit code 1 where data/p800_kernels.yaml lacks a kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import paddle

from xpulab.files import NOTEBOOKS, ROOT
from xpulab.operators.kernel_log import cpu_types
from xpulab.operators.prediction import CPU, ERROR, MAYBE, UNKNOWN, where

PAGE, BEGIN, END = ROOT / "docs" / "devices.md", "<!-- kernels -->\n", "<!-- /kernels -->"
HEAD = "| chapter | kernels | in the later list only | computed by the CPU | in no list, and the CPU has none |\n|---|---:|---|---|---|\n"


def record(notebook: Path) -> str:
    """Run a chapter on simulated cards; the kernels that its processes chose for them, a line each."""
    with tempfile.TemporaryDirectory() as folder:
        library, headers = f"{folder}/chosen.so", Path(paddle.__file__).parent / "include"
        source, include = (
            Path(__file__).with_name("chosen_kernels.cc"),
            ["-isystem", headers, "-isystem", headers / "third_party"],
        )
        options = ["-std=c++17", "-O2", "-fPIC", "-shared"]
        subprocess.run([os.environ.get("CXX", "g++"), *options, *include, source, "-o", library], check=True)
        own = {"LD_PRELOAD": library, "XPULAB_KERNELS": folder, "FLAGS_use_stride_kernel": "0"}
        command = [sys.executable, "-m", "xpulab", "run", str(notebook), "--device", "sim", "--time-limit", "60"]
        subprocess.run([*command, "--out", f"{folder}/run"], env=os.environ | own, check=False)  # red checks do not matter here
        lines = {line for path in Path(folder).glob("[0-9]*") for line in path.read_text().splitlines()}
    return "".join(f"{line}\n" for line in sorted(lines))


def row(path: Path, on_cpu: dict[str, list[str]]) -> str:
    """The row of a chapter, from its file."""
    places = {line: where(*line.split(), on_cpu.get(line.split()[0], [])) for line in path.read_text().splitlines()}
    if missing := sorted({line.split()[0] for line, place in places.items() if place == UNKNOWN}):
        sys.exit(f"{path}: data/p800_kernels.yaml lacks {', '.join(missing)}")
    cells = [_listed(line for line, place in places.items() if place == wanted) for wanted in (MAYBE, CPU, ERROR)]
    return " | ".join([f"| {path.stem.replace('_', ' ')}", str(len(places)), *cells]) + " |\n"


def _listed(lines: Iterable[str]) -> str:
    """The kernels, each once with its types."""
    types: dict[str, list[str]] = {}
    for name, dtype in map(str.split, lines):
        types.setdefault(name, []).append(dtype)
    return "; ".join(f"{name} {' '.join(of_it)}" for name, of_it in types.items())


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for chapter in sorted(NOTEBOOKS.glob("[01]*.ipynb")):
        recorded = out / f"{chapter.stem}.txt"
        if not recorded.exists() and (not sys.argv[2:] or chapter.stem[:2] in sys.argv[2:]):
            recorded.write_text(record(chapter))
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    table = HEAD + "".join(row(path, cpu_types()) for path in sorted(out.glob("[01]*.txt")))
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.split(END)[1]}", encoding="utf-8")
