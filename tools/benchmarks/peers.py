"""Runs the same chapters with xpulab and with the tools that others run notebooks with, and prints one table.

    .venv/bin/python tools/benchmarks/peers.py [--chapters GLOB] [--times N] [--jobs N] [--also PYTHON] [--json]

On the CPU, at level quick, each tool with ordinary kernels and on copies of the committed notebooks; the tools take turns.
A tool that is not installed is named with the command that installs it. --also names the Python of another environment that
has more of them. docs/performance.md says what the columns mean. Nothing here is a test: times depend on the machine and on
what else it does.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from processes import Measured, end_cleanly_when_terminated, measure, plain_environment
from where_time_goes import Spent, chapters_of

from xpulab import files
from xpulab.harness.plan import read_plan, with_own_environment
from xpulab.records.usable import whole_cores

IGNORED = "nbval-ignore-output"
"""The tag of a cell that nbval runs, but does not compare."""

LEVEL = "quick"
ONLY_EXCEPTIONS = "only that no cell raises"
_PLAIN = ("-p", "no:cacheprovider", "-c", os.devnull, "-q")
_OPT_OUT = {"PLOOMBER_STATS_ENABLED": "false"}
"""ploomber-engine sends statistics to its makers otherwise."""


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
    """A way to run notebooks.

    name: as in the table. module: what must be importable. package: what pip installs.
    commands: what is run, one after another, with this Python. compared: what it compared, for the table.
    """

    name: str
    module: str
    package: str
    commands: Callable[[str, Job], list[list[str]]]
    compared: Callable[[Job, str], str]


@dataclass(frozen=True)
class Row:
    """What one tool used. runs: one entry for each time, the commands of a loop added up. compared: of the last one."""

    tool: str
    runs: tuple[Measured, ...]
    compared: str

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"tool": self.tool, "compared": self.compared, "runs": [each.to_json() for each in self.runs]}


def compared_by_xpulab(job: Job, output: str) -> str:
    """The checks whose control was rejected, from the run's result; the text of cells is compared by nbval's rules too."""
    try:
        result = json.loads((job.folder / "out" / "result.json").read_text(encoding="utf-8"))
    except OSError:
        return "nothing: it wrote no result"
    rejected = sum(notebook["controls_rejected"] for notebook in result["notebooks"])
    every, compared = _cells(job)
    return f"{rejected} checks, each with a control that it rejected; outputs of {compared} of {every} cells"


def compared_by_nbval(job: Job, output: str) -> str:
    """How many cells passed and failed, and how many of all have outputs that it compares."""
    every, compared = _cells(job)
    failed = _counted(output, "failed")
    return f"outputs of {compared} of {every} cells" + (f"; {failed} cells differ or raised" if failed else "")


def compared_nothing(job: Job, output: str) -> str:
    """These tools run the cells."""
    return ONLY_EXCEPTIONS


def _xpulab(python: str, job: Job) -> list[list[str]]:
    run = [python, "-m", "xpulab", "run", *map(str, job.notebooks), "--device", "cpu", "--level", LEVEL]
    return [[*run, "--out", str(job.folder / "out")]]


def _nbmake(python: str, job: Job) -> list[list[str]]:
    return [[*_pytest(python, job), "--nbmake", "-n", str(job.jobs), *map(str, job.notebooks)]]


def _nbval(python: str, job: Job) -> list[list[str]]:
    # loadscope: the cells of a notebook belong to one worker; a cell may take longer than nbval's limit of 2000 s
    return [[*_pytest(python, job), "--nbval", "-n", str(job.jobs), "--dist", "loadscope", *map(str, job.notebooks)]]


def _papermill(python: str, job: Job) -> list[list[str]]:
    command = [python, "-m", "papermill", "--no-progress-bar"]
    return [[*command, "--cwd", str(job.folder), str(each), str(_beside(each))] for each in job.notebooks]


def _jupyter_execute(python: str, job: Job) -> list[list[str]]:
    return [[python, "-m", "jupyter", "execute", *map(str, job.notebooks)]]


def _ploomber(python: str, job: Job) -> list[list[str]]:
    command = [str(Path(python).parent / "ploomber-engine"), "--no-progress-bar"]
    return [[*command, str(each), str(_beside(each))] for each in job.notebooks]


TOOLS = (
    Tool("xpulab run", "xpulab", "xpulab", _xpulab, compared_by_xpulab),
    Tool("nbmake -n", "nbmake", "nbmake", _nbmake, compared_nothing),
    Tool("nbval -n", "nbval", "nbval", _nbval, compared_by_nbval),
    Tool("papermill in a loop", "papermill", "papermill", _papermill, compared_nothing),
    Tool("jupyter execute", "nbclient", "nbclient", _jupyter_execute, compared_nothing),
    Tool("ploomber-engine in a loop", "ploomber_engine", "ploomber-engine", _ploomber, compared_nothing),
)

NAMES = tuple(tool.name for tool in TOOLS)


def python_with(tool: Tool, pythons: Sequence[str]) -> str | None:
    """The first of these interpreters that can import the tool."""
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({tool.module!r}) is None)"
    found = (each for each in pythons if subprocess.run([each, "-c", probe], timeout=60).returncode == 0)
    return next(found, None)


def run_once(tool: Tool, python: str, sources: Sequence[Path], jobs: int, timeout: float) -> tuple[Measured, str, Spent | None]:
    """Run a tool once in a new folder: what it used, what it compared, and, of xpulab, where the time of the cells went."""
    with tempfile.TemporaryDirectory(prefix="xpulab-peers-") as temporary:
        folder = Path(temporary) / "notebooks"
        folder.mkdir()
        job = Job(write_quick(sources, folder), jobs)
        environment = {**plain_environment(Path(temporary)), **_OPT_OUT}
        used = [measure(command, folder, environment, timeout) for command in tool.commands(python, job)]
        whole = added(used)
        chapters = chapters_of(folder / "out") if (folder / "out").exists() else []
        spent = sum((each.all for each in chapters), Spent()) if chapters else None
        return whole, tool.compared(job, whole.output), spent


def write_quick(sources: Sequence[Path], folder: Path) -> tuple[Path, ...]:
    """Copies of the notebooks with the sections of level quick only: other tools know no levels, and would run all."""
    written = tuple(folder / each.name for each in sources)
    for source, path in zip(sources, written, strict=True):
        nbformat.write(read_plan(source, LEVEL).notebook, path)
    return written


def added(used: Sequence[Measured]) -> Measured:
    """Several commands, one after another, as one: the first exit code that is not 0, None if one reached its timeout."""
    codes = [each.exit_code for each in used]
    return Measured(
        exit_code=None if None in codes else next((code for code in codes if code), 0),
        seconds=round(sum(each.seconds for each in used), 2),
        processor_seconds=round(sum(each.processor_seconds for each in used), 2),
        memory_mib=max(each.memory_mib for each in used),
        left_behind=sum(each.left_behind for each in used),
        output="\n".join(each.output for each in used),
    )


def format_rows(rows: Sequence[Row], missing: Sequence[Tool]) -> str:
    """The table in Markdown."""
    lines = [
        "| tool | wall s | processor s | memory MiB | what it compares | result |",
        "|---|---:|---:|---:|---|---|",
    ]
    for row in rows:
        numbers = [[each.seconds for each in row.runs], [each.processor_seconds for each in row.runs]]
        memory = max(each.memory_mib for each in row.runs)
        shown = " | ".join(map(format_spread, numbers))
        lines.append(f"| {row.tool} | {shown} | {memory:.0f} | {row.compared} | {format_result(row.runs)} |")
    lines += [f"| {tool.name} | not installed | | | | `pip install {tool.package}` |" for tool in missing]
    return "\n".join(lines)


def format_spread(values: Sequence[float]) -> str:
    """The median, and the smallest and largest value when there are several."""
    middle = f"{statistics.median(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.1f} to {max(values):.1f})"


def format_result(runs: Sequence[Measured]) -> str:
    """How the runs ended."""
    codes = ["timeout" if each.exit_code is None else f"exit code {each.exit_code}" for each in runs if each.exit_code != 0]
    text = "green" if not codes else f"{', '.join(sorted(set(codes)))} in {len(codes)} of {len(runs)} runs"
    left = sum(each.left_behind for each in runs)
    return f"{text}; left {left} processes running" if left else text


def chosen_notebooks(pattern: str) -> list[Path]:
    """The committed notebooks whose names the glob matches and that this environment can run."""
    others = with_own_environment()
    paths = (path for path in sorted(files.NOTEBOOKS.glob("*.ipynb")) if path.stem not in others)
    found = [path for path in paths if fnmatch.fnmatchcase(path.stem, pattern)]
    if not found:
        raise SystemExit(f"--chapters {pattern}: no notebook in {files.NOTEBOOKS} has such a name")
    return found


def _cells(job: Job) -> tuple[int, int]:
    """How many code cells the notebooks have, and how many of them have outputs that nbval compares."""
    notebooks = [nbformat.read(path, as_version=4) for path in job.notebooks]
    code = [cell for notebook in notebooks for cell in notebook.cells if cell.cell_type == "code"]
    return len(code), sum(bool(cell.outputs) and IGNORED not in cell.metadata.get("tags", []) for cell in code)


def _counted(output: str, outcome: str) -> int:
    """The number before a word in the last line of pytest's summary that has it."""
    found = re.findall(rf"(\d+) {outcome}", output)
    return int(found[-1]) if found else 0


def _pytest(python: str, job: Job) -> list[str]:
    return [python, "-m", "pytest", *_PLAIN, f"--rootdir={job.folder}"]


def _beside(notebook: Path) -> Path:
    """Where an executed notebook is written."""
    return notebook.with_suffix(".out.ipynb")


def main() -> None:
    """Print the table, then the cost of checking."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chapters", default="*", help="a glob of names; default: all")
    parser.add_argument("--times", type=int, default=1, help="how often each tool runs; default: 1")
    parser.add_argument("--jobs", type=int, default=whole_cores(), help="of nbmake -n and nbval -n; default: one a core")
    parser.add_argument("--tool", action="append", choices=NAMES, help="only this one; may be repeated")
    parser.add_argument("--also", action="append", default=[], metavar="PYTHON", help="another Python that has more tools")
    parser.add_argument("--timeout", type=float, default=1800.0, help="of each command, in seconds; default: 1800")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    end_cleanly_when_terminated()
    sources = chosen_notebooks(chosen.chapters)
    asked = [tool for tool in TOOLS if tool.name in (chosen.tool or NAMES)]
    tools = {tool: python_with(tool, [sys.executable, *chosen.also]) for tool in asked}
    runs: dict[str, list[tuple[Measured, str, Spent | None]]] = {}
    for number in range(chosen.times):
        for tool, python in tools.items():
            if python is not None:
                done = run_once(tool, python, sources, chosen.jobs, chosen.timeout)
                runs.setdefault(tool.name, []).append(done)
                used = f"{done[0].seconds:.1f} s, {done[0].processor_seconds:.1f} s of processor time"
                print(f"{tool.name}, {number + 1} of {chosen.times}: {used}, {format_result([done[0]])}", file=sys.stderr)
                if done[0].exit_code != 0:
                    print(done[0].output[-2000:], file=sys.stderr)
    rows = [Row(name, tuple(each[0] for each in done), done[-1][1]) for name, done in runs.items()]
    missing = [tool for tool, python in tools.items() if python is None]
    spent = next((done[-1][2] for done in runs.values() if done[-1][2] is not None), None)
    if chosen.json:
        checking = None if spent is None else spent.to_json()
        values = {"chapters": [path.stem for path in sources], "jobs": chosen.jobs, "rows": [row.to_json() for row in rows]}
        print(
            json.dumps({**values, "not_installed": [tool.package for tool in missing], "cells_of_xpulab": checking}, indent=1)
        )
        return
    print(format_rows(rows, missing))
    if spent is not None:
        print(f"\nchecks: {spent.checks:.1f} of {spent.cells:.1f} s of cell time, {spent.share_of_checks:.0%}")


if __name__ == "__main__":
    main()
