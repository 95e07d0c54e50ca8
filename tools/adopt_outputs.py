"""Takes the outputs of a green run on the CPU over into notebooks/, to be committed.

    .venv/bin/python -m xpulab run --device cpu --out /tmp/run
    .venv/bin/python tools/adopt_outputs.py /tmp/run
    .venv/bin/python tools/adopt_outputs.py /tmp/run notebooks/zh     # of a run of `notebooks/zh/*.ipynb`

A run is refused that is not green for any other reason than that the committed outputs are missing or differ. Digests of
measured values are left out: they compare the rounds of a soak, and differ between processors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat

from xpulab import files
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan

ADDED_BY_PAPERMILL = {"injected-parameters"}
OTHER_TEXT = "shows text that differs from the committed notebook"


def adopt(executed: Path, committed: Path) -> None:
    """Put the executed notebook's outputs into the committed one, whose sources must be the same."""
    run, source = nbformat.read(executed, as_version=4), nbformat.read(committed, as_version=4)
    cells = [cell for cell in run.cells if not ADDED_BY_PAPERMILL & set(cell.metadata.get("tags", []))]
    if len(cells) < len(source.cells):
        raise SystemExit(f"{executed}: only some sections of {committed} ran; run it at a level at which all of them do")
    if [cell.source for cell in cells] != [cell.source for cell in source.cells]:
        raise SystemExit(f"{executed}: was made from other cells than {committed} holds")
    code = [pair for pair in zip(source.cells, cells, strict=True) if pair[0].cell_type == "code"]
    for count, (cell, ran) in enumerate(code, start=1):
        cell.outputs, cell.execution_count = joined(ran.outputs), count
        for output in cell.outputs:
            drop_digests(output)
            if output.output_type == "execute_result":
                output.execution_count = count
    nbformat.write(source, committed)


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs with neighbouring pieces of one stream as one: where the kernel cut them is chance, and the page shows it."""
    whole: list[nbformat.NotebookNode] = []
    for output in outputs:
        if whole and output.output_type == "stream" == whole[-1].output_type and output.name == whole[-1].name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def drop_digests(output: nbformat.NotebookNode) -> None:
    """Remove the digests from the record of a check in an output's metadata."""
    record = output.get("metadata", {}).get("xpulab", {}).get("check", {})
    for each in (record, *record.get("rows", ())):
        each.pop("digest", None)


def main(folder: Path, notebooks: Path | None = None) -> None:
    """Adopt the notebooks of a run; refuses a run with a red one or on another device, then each notebook that ran in part.

    notebooks: the folder of those that were run; without it that of the English ones.
    """
    if not (folder / "result.json").is_file():
        raise SystemExit(f"{folder}: holds no run; usage: adopt_outputs.py RUN, the folder of `xpulab run --out RUN`")
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if result["device"] != "cpu":
        raise SystemExit(f"{folder}: ran on {result['device']}; outputs are committed from the CPU")
    pairs = []
    for notebook in result["notebooks"]:
        if notebook["executed"] is None:
            raise SystemExit(f"{notebook['name']}: was not run: {notebook['reason']}")
        executed, committed = folder / notebook["executed"], (notebooks or files.NOTEBOOKS) / f"{notebook['name']}.ipynb"
        if not committed.is_file():
            raise SystemExit(f"{committed}: is not there; usage: adopt_outputs.py RUN [FOLDER], the folder of the notebooks")
        reasons = judge(read_plan(committed, result["level"]), executed).reasons
        if red := [reason for reason in reasons if OTHER_TEXT not in reason]:
            raise SystemExit(f"{notebook['name']}: not green: {'; '.join(red)}")
        pairs.append((executed, committed))
    refused = []
    for executed, committed in pairs:
        try:
            adopt(executed, committed)
        except SystemExit as error:
            refused.append(str(error))
        else:
            print(f"{committed.stem}: outputs adopted")
    if refused:
        raise SystemExit("\n".join(refused))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3] or ["."]))
