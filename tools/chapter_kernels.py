"""Which kernels each chapter asks of its device, and where a P800 would compute them: the table of docs/devices.md.

    .venv/bin/python tools/chapter_kernels.py OUT       # all chapters at quick on simulated cards, one after another
    .venv/bin/python tools/chapter_kernels.py OUT 02 17

OUT/NN_name.txt lists "kernel type" of a chapter; one that is there is not run again. The table is written from the files in
OUT. It stops where data/p800_kernels.yaml lacks a kernel. Needs g++, and Paddle's wheel for the CPU.
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
from xpulab.operators.prediction import CARD, CPU, ERROR, MAYBE, UNKNOWN, where

PAGE, BEGIN, END = ROOT / "docs" / "devices.md", "<!-- kernels -->\n", "<!-- /kernels -->"
HEAD = "| chapter | on the card | on the card in the later list only | computed by the CPU | raises |\n|---|---:|---|---|---|\n"


def record(notebook: Path) -> str:
    """Run a chapter on simulated cards; the kernels that its processes chose for them, a line each."""
    with tempfile.TemporaryDirectory() as folder:
        library, headers = f"{folder}/chosen.so", Path(paddle.__file__).parent / "include"
        options = ["-std=c++17", "-O2", "-fPIC", "-shared", f"-isystem{headers}", f"-isystem{headers}/third_party"]
        source = Path(__file__).with_name("chosen_kernels.cc")
        subprocess.run([os.environ.get("CXX", "g++"), *options, source, "-o", library], check=True)
        own = {"LD_PRELOAD": library, "XPULAB_KERNELS": folder}
        command = [sys.executable, "-m", "xpulab", "run", str(notebook), "--device", "sim", "--time-limit", "60"]
        subprocess.run([*command, "--out", f"{folder}/run"], env=os.environ | own, check=False)  # red checks do not matter here
        lines = {line for path in Path(folder).glob("[0-9]*") for line in path.read_text().splitlines()}
    return "".join(f"{line}\n" for line in sorted(lines))


def row(path: Path, on_cpu: dict[str, list[str]]) -> str:
    """The row of a chapter, from its file."""
    lines: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, dtype = line.split()
        lines.setdefault(where(name, dtype, on_cpu.get(name, [])), []).append(line)
    if UNKNOWN in lines:
        sys.exit(f"{path}: data/p800_kernels.yaml lacks {', '.join(lines[UNKNOWN])}")
    cells = [_listed(lines.get(place, [])) for place in (MAYBE, CPU, ERROR)]
    return " | ".join([f"| {path.stem.replace('_', ' ')}", str(len(lines.get(CARD, []))), *cells]) + " |\n"


def _listed(lines: Iterable[str]) -> str:
    """The kernels, each once with its types; of those in float64, which an XPU mostly lacks, only how many."""
    types: dict[str, list[str]] = {}
    for name, dtype in map(str.split, lines):
        types.setdefault("float64" if dtype == "float64" else name, []).append(dtype)
    double = len(types.pop("float64", []))
    return "; ".join([f"{name} {' '.join(own)}" for name, own in types.items()] + [f"{double} in float64"] * (double > 0))


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for chapter in sorted((*NOTEBOOKS.glob("0*.ipynb"), *NOTEBOOKS.glob("1[0-8]*.ipynb"))):  # 19 has an environment of its own
        recorded = out / f"{chapter.stem}.txt"
        if not recorded.exists() and (not sys.argv[2:] or chapter.stem[:2] in sys.argv[2:]):
            recorded.write_text(record(chapter))
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    table = HEAD + "".join(row(path, cpu_types()) for path in sorted(out.glob("[01]*.txt")))
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")
