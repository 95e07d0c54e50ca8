"""Runs the same chapters with xpulab and with the tools that others run notebooks with, and prints one table.

    .venv/bin/python tools/benchmarks/peers.py [--chapters GLOB] [--times N] [--jobs N] [--tool NAME]

On the CPU, at level quick, each tool with ordinary kernels and on copies of the committed notebooks; the tools take turns.
docs/performance.md says what the columns mean. Nothing here is a test: times depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from where_time_goes import Measured, Spent, chapters_of, measure

from xpulab import files
from xpulab.harness.plan import read_plan, with_own_environment
from xpulab.harness.sections import CELL_NUMBER
from xpulab.records.record import METADATA_KEY
from xpulab.records.usable import whole_cores

IGNORED = "nbval-ignore-output"
"""The tag of a cell that nbval runs, but does not compare."""

LEVEL = "quick"


@dataclass(frozen=True)
class Job:
    """What a tool is asked to do: the notebooks, in a folder of their own, and how many at a time for -n."""

    notebooks: tuple[Path, ...]
    jobs: int

    @property
    def folder(self) -> Path:
        """Where the notebooks are; whatever a tool writes belongs there, too."""
        return self.notebooks[0].parent


@dataclass(frozen=True)
class Tool:
    """A way to run notebooks. commands: what is run, one after another. compared: what it compared, for the table."""

    commands: Callable[[Job], list[list[str]]]
    compared: Callable[[Job, str], str]


def compared_by_xpulab(job: Job, output: str) -> str:
    """The checks whose control was rejected, from the run's result; the text of cells is compared by nbval's rules too."""
    try:
        result = json.loads((job.folder / "out" / "result.json").read_text(encoding="utf-8"))
    except OSError:
        return "nothing: it wrote no result"
    rejected = sum(notebook["controls_rejected"] for notebook in result["notebooks"])
    return f"{rejected} checks, each with a control that it rejected; {_compared_cells(job)}"


def compared_by_nbval(job: Job, output: str) -> str:
    """How many cells have outputs that it compares, and how many failed, from the last line of pytest's summary."""
    failed = re.findall(r"(\d+) failed", output)
    return _compared_cells(job) + (f"; {failed[-1]} cells differ or raised" if failed else "")


def compared_nothing(job: Job, output: str) -> str:
    """These tools run the cells."""
    return "only that no cell raises"


def _xpulab(job: Job) -> list[list[str]]:
    run = ["xpulab", "run", *map(str, job.notebooks), "--device", "cpu", "--level", LEVEL]
    return [[*run, "--out", str(job.folder / "out")]]


def _nbmake(job: Job) -> list[list[str]]:
    return [[*_pytest(job), "--nbmake"]]


def _nbval(job: Job) -> list[list[str]]:
    return [[*_pytest(job), "--nbval", "--dist", "loadscope"]]  # the cells of a notebook belong to one worker


def _papermill(job: Job) -> list[list[str]]:
    command = ["papermill", "--no-progress-bar", "--cwd", str(job.folder)]
    return [[*command, str(path), str(path.with_suffix(".out.ipynb"))] for path in job.notebooks]


def _jupyter_execute(job: Job) -> list[list[str]]:
    return [["jupyter", "execute", *map(str, job.notebooks)]]


TOOLS = {
    "xpulab run": Tool(_xpulab, compared_by_xpulab),
    "nbmake -n": Tool(_nbmake, compared_nothing),
    "nbval -n": Tool(_nbval, compared_by_nbval),
    "papermill in a loop": Tool(_papermill, compared_nothing),
    "jupyter execute": Tool(_jupyter_execute, compared_nothing),
}
"""By name, as in the table."""


def run_once(tool: Tool, sources: Sequence[Path], jobs: int) -> tuple[Measured, str, Spent]:
    """Run a tool once in a new folder: what it used, what it compared, and, of xpulab, where the time of the cells went."""
    with tempfile.TemporaryDirectory(prefix="xpulab-peers-") as temporary:
        folder = Path(temporary) / "notebooks"
        folder.mkdir()
        job = Job(write_quick(sources, folder), jobs)
        used = added([measure([sys.executable, "-m", *command], folder) for command in tool.commands(job)])
        return used, tool.compared(job, used.output), sum((each.all for each in chapters_of(folder / "out")), Spent())


def write_quick(sources: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """Copies of the notebooks with the sections of level quick only: other tools know no levels, and would run all.

    A copy is a whole notebook, so its cells lose the numbers that those of an excerpt have.
    """
    written = tuple(folder / source.name for source in sources)
    for source, path in zip(sources, written, strict=True):
        notebook = read_plan(source, LEVEL).notebook
        for cell in notebook.cells:
            cell.metadata.get(METADATA_KEY, {}).pop(CELL_NUMBER, None)
        nbformat.write(notebook, path)
    return written


def added(used: Sequence[Measured]) -> Measured:
    """Several commands, one after another, as one: the first exit code that is not 0, None if one reached its time limit."""
    codes = [each.exit_code for each in used]
    return Measured(
        exit_code=None if None in codes else next((code for code in codes if code), 0),
        seconds=sum(each.seconds for each in used),
        processor_seconds=sum(each.processor_seconds for each in used),
        output="\n".join(each.output for each in used),
    )


def format_row(name: str, runs: Sequence[Measured], compared: str) -> str:
    """A row of the table in Markdown."""
    numbers = (format_spread([run.seconds for run in runs]), format_spread([run.processor_seconds for run in runs]))
    return f"| {name} | {' | '.join(numbers)} | {compared} | {format_result(runs)} |"


def format_spread(values: Sequence[float]) -> str:
    """The median, and the smallest and largest value when there are several."""
    middle = f"{statistics.median(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def format_result(runs: Sequence[Measured]) -> str:
    """How the runs ended."""
    codes = ["time limit" if run.exit_code is None else f"exit code {run.exit_code}" for run in runs if run.exit_code != 0]
    return "green" if not codes else f"{', '.join(sorted(set(codes)))} in {len(codes)} of {len(runs)} runs"


def chosen_notebooks(pattern: str) -> list[Path]:
    """The committed notebooks whose names the glob matches and that this environment can run."""
    others = with_own_environment()
    paths = (path for path in sorted(files.NOTEBOOKS.glob("*.ipynb")) if path.stem not in others)
    found = [path for path in paths if fnmatch.fnmatchcase(path.stem, pattern)]
    if not found:
        raise SystemExit(f"--chapters {pattern}: no notebook in {files.NOTEBOOKS} has such a name")
    return found


def _compared_cells(job: Job) -> str:
    """How many code cells the notebooks have, and how many of them have outputs that nbval compares."""
    notebooks = [nbformat.read(path, as_version=4) for path in job.notebooks]
    code = [cell for notebook in notebooks for cell in notebook.cells if cell.cell_type == "code"]
    compared = sum(bool(cell.outputs) and IGNORED not in cell.metadata.get("tags", []) for cell in code)
    return f"outputs of {compared} of {len(code)} cells"


def _pytest(job: Job) -> list[str]:
    plain = ["-p", "no:cacheprovider", "-c", os.devnull, "-q", f"--rootdir={job.folder}"]
    return ["pytest", *plain, "-n", str(job.jobs), *map(str, job.notebooks)]


def main() -> None:
    """Print the table, then the cost of checking."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chapters", default="*", help="a glob of names; default: all")
    parser.add_argument("--times", type=int, default=1, help="how often each tool runs; default: 1")
    parser.add_argument("--jobs", type=int, default=whole_cores(), help="of nbmake -n and nbval -n; default: one a core")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only this one; may be repeated")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sources = chosen_notebooks(chosen.chapters)
    runs: dict[str, list[tuple[Measured, str, Spent]]] = {name: [] for name in chosen.tool or TOOLS}
    for number in range(chosen.times):
        for name, done in runs.items():
            done.append(run_once(TOOLS[name], sources, chosen.jobs))
            used = done[-1][0]
            took = f"{used.seconds:.1f} s, {used.processor_seconds:.1f} s of processor time"
            print(f"{name}, {number + 1} of {chosen.times}: {took}, {format_result([used])}", file=sys.stderr)
            if used.exit_code != 0:
                print(used.output, file=sys.stderr)
    print("| tool | wall s | processor s | what it compares | result |\n|---|---:|---:|---|---|")
    for name, done in runs.items():
        print(format_row(name, [used for used, _, _ in done], done[-1][1]))
    for _, _, spent in runs.get("xpulab run", [])[-1:]:
        print(f"\nchecks: {spent.checks:.1f} of {spent.cells:.1f} s of cell time, {spent.share_of_checks:.0%}")


if __name__ == "__main__":
    main()
