"""Says what a run spends its time on: for each chapter and section the clock, the processors, waiting, and checks.

    .venv/bin/python tools/benchmarks/where_time_goes.py [RUN] [--sections 40] [--json]

RUN is the folder of an earlier run; without it the whole suite is run first, on the CPU at level quick.
The longest comes first. docs/performance.md says what the columns mean. Nothing here is a test: times depend on
the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from processes import Measured, end_cleanly_when_terminated, measure, plain_environment

from xpulab.records.processor import ProcessorSeconds, from_metadata
from xpulab.records.record import METADATA_KEY, record_in

NOT_MEASURED = "not measured"
START = "(before the first section)"
_RUN_SECONDS = 1800.0
_COLUMNS = ("cells", "kernel", "ranks", "children", "waiting", "checks")

_NOTHING = ProcessorSeconds(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Spent:
    """Seconds of some cells.

    cells: by the clock. checks: of these, in checks, by the clock. waiting: by the clock, what the processor time of no process
    of the cell accounts for; each cell at least 0, since several ranks use several cores.
    processor: None when a kernel did not report it. waiting is None then, too.
    """

    cells: float = 0.0
    checks: float = 0.0
    waiting: float | None = 0.0
    processor: ProcessorSeconds | None = _NOTHING

    def __add__(self, other: Spent) -> Spent:
        cells, checks = self.cells + other.cells, self.checks + other.checks
        if self.processor is None or other.processor is None or self.waiting is None or other.waiting is None:
            return Spent(cells, checks, None, None)
        return Spent(cells, checks, self.waiting + other.waiting, self.processor + other.processor)

    @property
    def share_of_checks(self) -> float:
        """The part of the cells' time that is in checks, 0 to 1."""
        return self.checks / self.cells if self.cells else 0.0

    def to_json(self) -> dict[str, Any]:
        """Seconds with milliseconds; null: not measured."""
        used = None if self.processor is None else {name: round(value, 3) for name, value in asdict(self.processor).items()}
        waiting = None if self.waiting is None else round(self.waiting, 3)
        return {"cells": round(self.cells, 3), "checks": round(self.checks, 3), "waiting": waiting, "processor": used}


@dataclass(frozen=True)
class ChapterTime:
    """An executed notebook. harness: seconds that no cell accounts for: start of the kernel, files, its end.

    sections: by name, in the order of the notebook.
    """

    name: str
    sections: dict[str, Spent]
    harness: float

    @property
    def all(self) -> Spent:
        """All of its cells."""
        return sum(self.sections.values(), Spent())

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        sections = {name: spent.to_json() for name, spent in self.sections.items()}
        return {"name": self.name, **self.all.to_json(), "harness": round(self.harness, 3), "sections": sections}


def chapters_of(folder: Path) -> list[ChapterTime]:
    """The executed notebooks of a run, the longest first; excerpts that lie beside them were only read by papermill."""
    notebooks = ((path.stem, nbformat.read(path, as_version=4)) for path in sorted((folder / "notebooks").glob("*.ipynb")))
    executed = [(name, notebook) for name, notebook in notebooks if "run" in notebook.metadata.get(METADATA_KEY, {})]
    return sorted((time_of(name, notebook) for name, notebook in executed), key=lambda each: -each.all.cells)


def time_of(name: str, notebook: NotebookNode) -> ChapterTime:
    """Where one executed notebook spent its time."""
    sections: dict[str, Spent] = {}
    for section, cell in _cells_with_section(notebook):
        sections[section] = sections.get(section, Spent()) + spent_in(cell)
    cells = sum(spent.cells for spent in sections.values())
    return ChapterTime(name, sections, notebook.metadata[METADATA_KEY]["run"]["seconds"] - cells)


def spent_in(cell: NotebookNode) -> Spent:
    """What one executed code cell spent; nothing when it did not run."""
    took = cell.metadata.get("papermill", {}).get("duration") or 0.0
    if cell.execution_count is None:
        return Spent(took)
    records = [record_in(output.get("metadata", {})) for output in cell.outputs]
    checks = min(took, sum(record.seconds for record in records if record))
    used = from_metadata(cell.metadata)
    return Spent(took, checks, None if used is None else max(0.0, took - used.all), used)


def _cells_with_section(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Each code cell with the name of the section that it belongs to."""
    section = START
    for cell in notebook.cells:
        section = cell.metadata.get(METADATA_KEY, {}).get("section", section)
        if cell.cell_type == "code":
            yield section, cell


def format_table(rows: Sequence[tuple[str, Spent]], more: Sequence[Sequence[str]] = (), headings: Sequence[str] = ()) -> str:
    """A Markdown table, a row for each name. more: further cells of each row, with their headings."""
    lines = [("", *_COLUMNS, *headings), ("---", *["---:"] * (len(_COLUMNS) + len(headings)))]
    for (name, spent), rest in zip(rows, more or [()] * len(rows), strict=True):
        lines.append((name, *_format_spent(spent), *rest))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_spent(spent: Spent) -> tuple[str, ...]:
    if spent.processor is None or spent.waiting is None:
        used: tuple[str, ...] = (NOT_MEASURED,) * 4
    else:
        numbers = (spent.processor.kernel, spent.processor.ranks, spent.processor.children, spent.waiting)
        used = tuple(f"{number:.1f}" for number in numbers)
    return f"{spent.cells:.1f}", *used, f"{spent.share_of_checks:.0%}"


def format_times(chapters: Sequence[ChapterTime], most_sections: int) -> str:
    """Two tables: of the chapters, and of the sections that take longest."""
    every = sum((each.all for each in chapters), Spent())
    rows = [*((each.name, each.all) for each in chapters), ("all", every)]
    harness = [*(each.harness for each in chapters), sum(each.harness for each in chapters)]
    text = format_table(rows, [(f"{seconds:.1f}",) for seconds in harness], ("harness",))
    named = [(f"{each.name}, {section}", spent) for each in chapters for section, spent in each.sections.items()]
    longest = sorted(named, key=lambda row: -row[1].cells)[:most_sections]
    return f"{text}\n\n{format_table(longest)}" if longest else text


def run_suite(folder: Path) -> Measured:
    """Run the whole suite on the CPU at level quick into folder/run."""
    command = [sys.executable, "-m", "xpulab", "run", "--device", "cpu", "--out", str(folder / "run")]
    return measure(command, folder, plain_environment(folder), _RUN_SECONDS)


def main() -> None:
    """Print the tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="the folder of a run; default: run the suite now")
    parser.add_argument("--sections", type=int, default=40, help="how many sections to list; default: 40")
    parser.add_argument("--json", action="store_true", help="print JSON, with all sections")
    chosen = parser.parse_args()
    end_cleanly_when_terminated()
    with tempfile.TemporaryDirectory(prefix="xpulab-") as temporary:
        whole = None if chosen.run else run_suite(Path(temporary))
        chapters = chapters_of(chosen.run or Path(temporary) / "run")
    if not chapters:
        raise SystemExit(f"{chosen.run}: holds no executed notebook; name the folder that `xpulab run` has written")
    if chosen.json:
        command = None if whole is None else whole.to_json()
        print(json.dumps({"command": command, "chapters": [each.to_json() for each in chapters]}, indent=1))
        return
    print(format_times(chapters, chosen.sections))
    if whole is not None:
        print(f"\nthe whole command: {whole.seconds:.1f} s, {whole.processor_seconds:.1f} s of processor time")


if __name__ == "__main__":
    main()
