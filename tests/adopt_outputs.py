"""Takes the outputs of a green run on the CPU over into notebooks/, to be committed.

    .venv/bin/python -m xpulab run --device cpu --out /tmp/run
    .venv/bin/python tests/adopt_outputs.py /tmp/run

A run is refused that is not green for any other reason than that the committed outputs are missing or differ.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat

from xpulab import files
from xpulab.record import METADATA_KEY, RED

ADDED_BY_PAPERMILL = {"injected-parameters"}


def adopt(executed: Path, committed: Path) -> None:
    """Put the executed notebook's outputs into the committed one, whose sources must be the same."""
    run, source = nbformat.read(executed, as_version=4), nbformat.read(committed, as_version=4)
    cells = [cell for cell in run.cells if not ADDED_BY_PAPERMILL & set(cell.metadata.get("tags", []))]
    if [cell.source for cell in cells] != [cell.source for cell in source.cells]:
        raise SystemExit(f"{executed}: was made from other cells than {committed} holds")
    code = [pair for pair in zip(source.cells, cells, strict=True) if pair[0].cell_type == "code"]
    for count, (cell, ran) in enumerate(code, start=1):
        cell.outputs, cell.execution_count = ran.outputs, count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
    nbformat.write(source, committed)


def main(folder: Path) -> None:
    """Adopt every notebook of a run; refuses one that holds a red check or another device's outputs."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if result["device"] != "cpu":
        raise SystemExit(f"{folder}: ran on {result['device']}; outputs are committed from the CPU")
    for notebook in result["notebooks"]:
        red = [check["name"] for check in notebook["checks"] if check["outcome"] in RED]
        if red or notebook["executed"] is None:
            raise SystemExit(f"{notebook['name']}: not green: {', '.join(red) or notebook['reason']}")
        executed = folder / notebook["executed"]
        if nbformat.read(executed, as_version=4).metadata[METADATA_KEY]["run"]["stopped"]:
            raise SystemExit(f"{notebook['name']}: was stopped before its end")
        adopt(executed, files.NOTEBOOKS / f"{notebook['name']}.ipynb")
        print(f"{notebook['name']}: outputs adopted")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
