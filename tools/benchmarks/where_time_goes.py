"""Says what a run spends its time on: imports, training, checks, the rest of the cells, and the harness around them.

    .venv/bin/python tools/benchmarks/where_time_goes.py [RUN]

RUN is the folder of an earlier run; without it the whole suite is run first, on the CPU at level quick. Nothing here is a
test: times depend on the machine and on what else it does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import nbformat

from xpulab.records.record import METADATA_KEY, record_in


def main() -> None:
    """Print a table: a line a notebook, seconds by kind."""
    folder, wall = (Path(sys.argv[1]), None) if len(sys.argv) > 1 else run()
    kinds = ("imports", "training", "checks", "other cells", "harness")
    print(f"{'notebook':<18}" + "".join(f"{kind:>13}" for kind in (*kinds, "all")))
    for path in sorted((folder / "notebooks").glob("*.ipynb")):
        spent = seconds_by_kind(nbformat.read(path, as_version=4))
        print(f"{path.stem:<18}" + "".join(f"{spent[kind]:>13.1f}" for kind in kinds) + f"{sum(spent.values()):>13.1f}")
    if wall is not None:
        print(f"the whole command took {wall:.1f} s")


def run() -> tuple[Path, float]:
    """Run the suite into a temporary folder; returns it with the seconds that the command took."""
    folder = Path(tempfile.mkdtemp(prefix="xpulab-")) / "run"
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "xpulab", "run", "--device", "cpu", "--out", str(folder)], check=False, timeout=900)
    return folder, time.monotonic() - started


def seconds_by_kind(notebook: nbformat.NotebookNode) -> Counter[str]:
    """Where one executed notebook spent its time; the harness is what no cell accounts for: kernel start, files, end."""
    spent: Counter[str] = Counter()
    for cell in notebook.cells:
        took = cell.metadata.get("papermill", {}).get("duration") or 0.0
        records = [record_in(output.get("metadata", {})) for output in cell.get("outputs", [])]
        checking = min(took, sum(record.seconds for record in records if record))
        spent["checks"] += checking
        spent[kind_of(cell.source)] += took - checking
    spent["harness"] = notebook.metadata[METADATA_KEY]["run"]["seconds"] - sum(spent.values())
    return spent


def kind_of(source: str) -> str:
    """What a cell is for, told by what stands in it."""
    if "import paddle\n" in source:
        return "imports"
    return "training" if ".train()\n" in source or "fine_tune(" in source else "other cells"


if __name__ == "__main__":
    main()
