"""Measures how the cost of a run grows with ranks, simulated cards, cores and chapters, and prints a table.

    .venv/bin/python tools/benchmarks/growth.py [ranks] [cards] [cores] [chapters] [--sizes N ...] [--level smoke] [--json]

ranks: 1 to 16 ranks with a simulated card each, started five times (ranks_of.py). cards: `xpulab run --device sim --cards N`.
cores: `xpulab run --device cpu` on N cores. chapters: the chapters and copies of them, 1, 2 and 4 times as many, on
the CPU. Without a name, all four. docs/performance.md says what grows in each. Nothing here is a test: times depend on the
machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import chosen_notebooks, format_result, format_spread
from processes import Measured, cores, end_cleanly_when_terminated, measure, plain_environment

from xpulab.harness.chapter import read_chapter

CARDS = (1, 2, 4, 8, 16)
CORES = (1, 2, 4)
COPIES = (1, 2, 4)
_TIMEOUT = 1800.0


@dataclass(frozen=True)
class Asked:
    """What a point is measured with. level, sources: of the run. folder: an empty one, for the run's files."""

    level: str
    sources: tuple[Path, ...]
    folder: Path


@dataclass(frozen=True)
class Point:
    """One size of a series. runs: one entry for each time; none when it was not measured, with the reason."""

    series: str
    size: int
    what: str
    runs: tuple[Measured, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        runs = [each.to_json() for each in self.runs]
        return {"series": self.series, "size": self.size, "what": self.what, "runs": runs, "not_measured": self.reason or None}


def measure_ranks(n: int, asked: Asked) -> Measured:
    """n ranks, each with a simulated card; no notebook."""
    return _measure([sys.executable, str(Path(__file__).with_name("ranks_of.py")), str(n)], asked)


def measure_cards(n: int, asked: Asked) -> Measured:
    """A run in which a notebook may use n simulated cards."""
    return _measure([*_run(asked, asked.sources), "--device", "sim", "--cards", str(n)], asked)


def measure_cores(n: int, asked: Asked) -> Measured:
    """A run on n cores; as many notebooks at a time as xpulab chooses."""
    with cores(n):
        return _measure([*_run(asked, asked.sources), "--device", "cpu"], asked)


def measure_chapters(copies: int, asked: Asked) -> Measured:
    """A run of so many times the chapters, on the CPU."""
    notebooks = write_copies(asked.sources, asked.folder / "copies", copies)
    return _measure([*_run(asked, notebooks), "--device", "cpu"], asked)


SERIES: Mapping[str, tuple[Sequence[int], Callable[[int, Asked], Measured]]] = {
    "ranks": (CARDS, measure_ranks),
    "cards": (CARDS, measure_cards),
    "cores": (CORES, measure_cores),
    "chapters": (COPIES, measure_chapters),
}


def write_copies(sources: Sequence[Path], folder: Path, copies: int) -> list[Path]:
    """So many copies of each notebook, under other names and with other names of checks, which no two notebooks may share.

    The names stay as long as they were, so that printed tables keep their columns: a character becomes a digit.
    """
    folder.mkdir()
    written: list[Path] = []
    planned = {source: [check.name for check in read_chapter(source).checks] for source in sources}
    taken = {name for names in planned.values() for name in names}
    for source in sources:
        for number in range(copies):
            renamed = {name: new_name(name, number, taken) for name in planned[source]} if number else {}
            path = folder / (f"{source.stem}_copy_{number}.ipynb" if number else source.name)
            path.write_text(rename(source.read_text(encoding="utf-8"), renamed), encoding="utf-8")
            written.append(path)
    return written


def new_name(name: str, number: int, taken: set[str]) -> str:
    """The name with a digit for a character behind its capability, the last one that gives a new name; adds it to `taken`.

    Raises ValueError when there is none.
    """
    for position in range(len(name) - 1, name.index("."), -1):
        found = f"{name[:position]}{number}{name[position + 1 :]}"
        if name[position] != "-" and found not in taken:
            taken.add(found)
            return found
    raise ValueError(f"{name}: no name of the same length is left for copy {number}")


def rename(text: str, names: Mapping[str, str]) -> str:
    """Replace names of checks wherever they stand alone in a text."""
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = rf"(?<![\w.-])({'|'.join(map(re.escape, longest_first))})(?![\w-]|\.\w)"
    return re.sub(pattern, lambda found: names[found[1]], text)


def points(series: str, level: str, sources: tuple[Path, ...], times: int, only: Sequence[int] = ()) -> Iterator[Point]:
    """Measure a series. only: these sizes; all when there are none."""
    sizes, measured = SERIES[series]
    for size in (size for size in sizes if size in only or not only):
        what = f"{size * len(sources)} chapters" if series == "chapters" else f"{size} {series[:-1] if size == 1 else series}"
        if series == "cores" and size > (there := len(os.sched_getaffinity(0))):
            yield Point(series, size, what, reason=f"this machine has {there}")
            continue
        yield Point(series, size, what, tuple(_once(measured, size, level, sources) for _ in range(times)))


def format_points(measured: Sequence[Point]) -> str:
    """The table in Markdown."""
    lines = ["| what | wall s | processor s | memory MiB | result |", "|---|---:|---:|---:|---|"]
    for point in measured:
        if not point.runs:
            lines.append(f"| {point.what} | not measured: {point.reason} | | | |")
            continue
        numbers = [[each.seconds for each in point.runs], [each.processor_seconds for each in point.runs]]
        memory = max(each.memory_mib for each in point.runs)
        shown = " | ".join(map(format_spread, numbers))
        lines.append(f"| {point.what} | {shown} | {memory:.0f} | {format_result(point.runs)} |")
    return "\n".join(lines)


def _once(measured: Callable[[int, Asked], Measured], size: int, level: str, sources: tuple[Path, ...]) -> Measured:
    with tempfile.TemporaryDirectory(prefix="xpulab-growth-") as folder:
        return measured(size, Asked(level, sources, Path(folder)))


def _measure(command: Sequence[str], asked: Asked) -> Measured:
    return measure(command, asked.folder, plain_environment(asked.folder), _TIMEOUT)


def _run(asked: Asked, notebooks: Sequence[Path]) -> list[str]:
    out = str(asked.folder / "out")
    return [sys.executable, "-m", "xpulab", "run", *map(str, notebooks), "--level", asked.level, "--out", out]


def main() -> None:
    """Print the table; what was measured so far goes to standard error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", metavar="SERIES", help=f"{', '.join(SERIES)}; default: all")
    parser.add_argument("--sizes", type=int, nargs="+", default=[], metavar="N", help="only these sizes; default: all")
    parser.add_argument("--level", default="smoke", help="of the runs; default: smoke")
    parser.add_argument("--chapters", default="*", help="a glob of the chapters' names; default: all")
    parser.add_argument("--times", type=int, default=1, help="how often each point is measured; default: 1")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    if unknown := set(chosen.series) - set(SERIES):
        parser.error(f"no series {', '.join(sorted(unknown))}: choose {', '.join(SERIES)}")
    end_cleanly_when_terminated()
    sources = tuple(chosen_notebooks(chosen.chapters))
    measured: list[Point] = []
    for series in chosen.series or SERIES:
        for point in points(series, chosen.level, sources, chosen.times, chosen.sizes):
            measured.append(point)
            print(format_points([point]).splitlines()[-1], file=sys.stderr)
            for each in point.runs:
                if each.exit_code != 0:
                    print(each.output[-2000:], file=sys.stderr)
    if chosen.json:
        print(json.dumps({"level": chosen.level, "points": [point.to_json() for point in measured]}, indent=1))
        return
    print(format_points(measured))


if __name__ == "__main__":
    main()
