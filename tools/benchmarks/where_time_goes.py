"""Says what a run spends its time on: for each chapter and section the time of its cells, and the share of checks.

    .venv/bin/python tools/benchmarks/where_time_goes.py [RUN] [--sections 40]

RUN is the folder of an earlier run; without it the whole suite is run first, on the CPU at level quick.
The longest comes first. docs/performance.md says what the columns mean. Nothing here is a test: times depend on
the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode

from xpulab.records.record import METADATA_KEY, record_in

START = "(before the first section)"
_RUN_SECONDS = 1800.0
_GRACE_SECONDS = 10.0
"""What a command has started may take this long to end after it."""
_OUTPUT_CHARACTERS = 2_000
_PR_SET_CHILD_SUBREAPER = 36
_COLUMNS = ("cells", "checks")


@dataclass(frozen=True)
class Spent:
    """Seconds of some cells, by the clock. cells: all of their time. checks: of it, in checks."""

    cells: float = 0.0
    checks: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.cells + other.cells, self.checks + other.checks)

    @property
    def share_of_checks(self) -> float:
        """The part of the cells' time that is in checks, 0 to 1."""
        return self.checks / self.cells if self.cells else 0.0


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


def chapters_of(folder: Path) -> list[ChapterTime]:
    """The executed notebooks of a run, the longest first."""
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
    took = _seconds(cell)
    records = [record_in(output.get("metadata", {})) for output in cell.get("outputs", ())]
    return Spent(took, min(took, sum(record.seconds for record in records if record)))


def _seconds(cell: NotebookNode) -> float:
    """How long a cell ran, as nbclient noted it; 0.0 when it did not run."""
    times = cell.metadata.get("execution", {})
    if not {"iopub.execute_input", "shell.execute_reply"} <= times.keys():
        return 0.0
    began, ended = (datetime.fromisoformat(times[name].rstrip("Z")) for name in ("iopub.execute_input", "shell.execute_reply"))
    return (ended - began).total_seconds()


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
        lines.append((name, f"{spent.cells:.1f}", f"{spent.share_of_checks:.0%}", *rest))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_times(chapters: Sequence[ChapterTime], most_sections: int) -> str:
    """Two tables: of the chapters, and of the sections that take longest."""
    every = sum((each.all for each in chapters), Spent())
    rows = [*((each.name, each.all) for each in chapters), ("all", every)]
    harness = [*(each.harness for each in chapters), sum(each.harness for each in chapters)]
    text = format_table(rows, [(f"{seconds:.1f}",) for seconds in harness], ("harness",))
    named = [(f"{each.name}, {section}", spent) for each in chapters for section, spent in each.sections.items()]
    longest = sorted(named, key=lambda row: -row[1].cells)[:most_sections]
    return f"{text}\n\n{format_table(longest)}" if longest else text


@dataclass(frozen=True)
class Measured:
    """What a command used.

    exit_code: as of subprocess.Popen; None at the time limit. seconds: by the clock, until the command itself ended.
    processor_seconds: user and system time of the command and of all processes that it started, killed ones included.
    output: the end of what it printed.
    """

    exit_code: int | None
    seconds: float
    processor_seconds: float
    output: str


def measure(command: Sequence[str], folder: Path, limit: float = _RUN_SECONDS) -> Measured:
    """Run a command in a folder as a user would start it, and leave nothing of it running. limit: in seconds. Linux only.

    This process becomes the parent of the command's orphans (a subreaper), so that their time counts too; it must have no other
    children. OMP_NUM_THREADS is left out of the variables: each tool has its own default.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    unwanted = {"OMP_NUM_THREADS", "XPULAB_WARM", "XPULAB_RUN_FOLDER", "JUPYTER_PATH"}
    variables = {name: value for name, value in os.environ.items() if name not in unwanted}
    with tempfile.TemporaryDirectory(dir=folder) as temporary, tempfile.TemporaryFile() as output:
        variables |= {"TMPDIR": temporary, "JUPYTER_RUNTIME_DIR": temporary}
        begun, before = time.monotonic(), _processor_seconds()
        process = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit)
            exit_code, seconds = process.returncode, time.monotonic() - begun
            psutil.wait_procs(psutil.Process().children() if exit_code is not None else [], _GRACE_SECONDS)
        finally:
            _kill_all()
        output.seek(0)
        text = output.read().decode(errors="replace")[-_OUTPUT_CHARACTERS:]
    return Measured(exit_code, seconds, _processor_seconds() - before, text)


def _kill_all() -> None:
    """Kill all processes below this one, and wait for them."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, _GRACE_SECONDS)


def _processor_seconds() -> float:
    """User and system time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="the folder of a run; default: run the suite now")
    parser.add_argument("--sections", type=int, default=40, help="how many sections to list; default: 40")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="xpulab-") as temporary:
        run, whole = chosen.run or Path(temporary) / "run", None
        if not chosen.run:
            whole = measure([sys.executable, "-m", "xpulab", "run", "--device", "cpu", "--out", str(run)], Path(temporary))
        chapters = chapters_of(run)
    if not chapters:
        raise SystemExit(f"{run}: holds no executed notebook; name the folder that `xpulab run` has written")
    print(format_times(chapters, chosen.sections))
    if whole is not None:
        print(f"\nthe whole command: {whole.seconds:.1f} s, {whole.processor_seconds:.1f} s of processor time")


if __name__ == "__main__":
    main()
