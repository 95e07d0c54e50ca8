"""The process in which the search computes its cases; it may crash or hang, and its parent goes on. See loop.py.

    python -m xpulab.search.worker JOB

JOB is JSON: device, operators (a pattern), seed, again (cases that are tried first) and folder. What it does is said in lines
of JSON behind MARK: {"trying": case} before each case, {"found": case, ...} for one that is wrong, {"right": case} for one of
`again` that is not, {"left": how many of `again` follow}, {"outcome": ...} after each.

With `alone` in JOB this case is computed and nothing else: {"trying": case, "program": path} says where it is written while it
runs, {"right": case} that the process lives on.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xpulab.chapters.shared import half_types, workarounds
from xpulab.chapters.shared.device import Device, use_device
from xpulab.checks.grid import Case
from xpulab.child import end_with_parent
from xpulab.records.record import RED
from xpulab.search.cases import Searched, searched
from xpulab.search.loop import MARK
from xpulab.search.program import Program, traced


def main(job: str) -> None:
    """Compute cases until the parent ends this process."""
    asked = json.loads(job)
    end_with_parent()
    workarounds.silence_import_warnings()
    half_types.in_this_process()
    device = use_device(asked["device"])
    every = searched(device.name, "*")
    if alone := asked.get("alone"):
        grid, case = _made(every, alone)
        if grid:
            path = _written(device, grid, case, asked["folder"])
            path.unlink()
            path.with_suffix(".npz").unlink()
        _say(right=alone)
        return
    for place, case_of in enumerate(asked["again"], start=1):
        _say(left=len(asked["again"]) - place)
        grid, case = _made(every, case_of)
        if grid is None or not _tried(device, grid, case, asked["folder"], set()):
            _say(right=case_of)
    known: set[tuple[str, ...]] = set()
    for grid, case in _drawn(searched(device.name, asked["operators"]), asked["seed"]):
        _tried(device, grid, case, asked["folder"], known)


def _drawn(grids: list[Searched], seed: int) -> Iterator[tuple[Searched, Case]]:
    """Random cases of these grids, without end: each operator as often as every other one."""
    rng, counts = np.random.default_rng(seed), np.array([len(grid.operators) for grid in grids])
    while True:
        grid = grids[rng.choice(len(grids), p=counts / counts.sum())]
        if case := grid.draw(rng, int(rng.integers(1 << 16))):
            yield grid, case


def _tried(device: Device, grid: Searched, case: Case, folder: str, known: set[tuple[str, ...]]) -> bool:
    """Compute a case; of a wrong one the smallest that is still wrong is kept. Returns whether it is wrong.

    known: by check, operator and axes what was found before: the same again is not reduced.
    """
    row = _row(grid, case)
    is_red = row.outcome in RED
    if is_red:
        smallest = grid.grid.reduce(case, lambda smaller: _row(grid, smaller).outcome in RED)
        kind = (grid.check, smallest.labels[grid.grid.each], *smallest.changed)
        if kind not in known:
            known.add(kind)
            what, program = grid.row(smallest).reason, _written(device, grid, smallest, folder)
            _say(found=_named(grid, smallest), what=what, program=str(program))
    _say(outcome="found" if is_red else row.outcome)
    return is_red


def _row(grid: Searched, case: Case) -> Any:
    _say(trying=_named(grid, case))
    return grid.row(case)


def _written(device: Device, grid: Searched, case: Case, folder: str) -> Path:
    """Write the case as a program, before each of its calls, as the process may end there, and its arrays; returns its path."""
    path = Path(folder, f"found-{zlib.crc32(json.dumps(_named(grid, case)).encode()):08x}.py")

    def write(program: Program) -> None:
        np.savez(path.with_suffix(".npz"), **program.arrays)
        text = program.source(f"{path.stem}.npz", f"{grid.check}: {case.name}", device.place)
        path.write_text(text, encoding="utf-8")

    _say(trying=_named(grid, case), program=str(path))
    write(traced(lambda: grid.run([case])[0], before=write))
    return path


def _named(grid: Searched, case: Case) -> dict[str, Any]:
    """A case as loop.py keeps it: of the labels the operator's, and those that are not the default."""
    axes = [axis for axis in case.labels if axis == grid.grid.each or axis in case.changed]
    return {"check": grid.check, "labels": {axis: case.labels[axis] for axis in axes}, "seed": case.seed}


def _made(grids: list[Searched], named: dict[str, Any]) -> tuple[Searched | None, Any]:
    """The grid and the case that `_named` described; None when there is no such case any more."""
    for grid in grids:
        if grid.check == named["check"]:
            try:
                return grid, grid.grid.case(named["seed"], **named["labels"])
            except ValueError:
                break
    return None, None


def _say(**facts: Any) -> None:
    print(MARK + json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
