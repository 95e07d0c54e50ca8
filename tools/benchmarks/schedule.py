"""Simulates the order and the admission of notebooks on a machine with some cores, before a real run is worth its minutes.

    python tools/benchmarks/schedule.py [--cores 2 4] [--scale 1.0] [--seeds 5] [RUN]

RUN is the folder of a run; its executed notebooks say how long the cells of each chapter took. Without it a table of measured
chapters is used, which has their processor seconds too. The simulation shares the cores evenly between everything that can run.
A chapter computes and waits in turn; its ranks compute side by side. The admission is the real one (xpulab.harness.admission),
with a machine whose load the simulation computes.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from xpulab.harness import admission
from xpulab.harness.admission import Admission, AtATime, ByLoad, Running
from xpulab.harness.machine import Reading
from xpulab.records.record import METADATA_KEY

TICK = 0.05
ASKED_EVERY = 0.2
START_SECONDS, END_SECONDS = 0.4, 1.0
"""What a notebook takes before its first cell and after its last one, almost without computing."""
PHASE_SECONDS = (0.3, 3.0)
AFTERWARDS = 1.15
"""A good schedule needs at most this many times the larger of the longest chapter and the work divided by the cores."""

MEASURED = {
    "00": (2.8, 2.8), "01": (20.0, 34.0), "02": (10.2, 10.4), "03": (14.1, 14.0), "04": (14.1, 13.8), "05": (8.4, 7.4),
    "06": (11.5, 15.9), "07": (9.9, 14.6), "08": (6.8, 6.9), "09": (20.0, 11.0), "10": (20.0, 14.0), "11": (3.3, 4.0),
    "13": (8.2, 5.4), "14": (8.0, 5.5), "15": (20.0, 12.0), "16": (2.8, 2.0), "17": (7.0, 7.1), "18": (5.4, 6.5),
}  # fmt: skip
"""Chapters at level quick on 2 idle cores: seconds of the cells alone, processor seconds; the longest as they are to be."""


@dataclass
class Chapter:
    """A chapter that runs in the simulation. phases: those left, as [cores that it would use, seconds left]."""

    name: str
    phases: list[list[float]]
    began: float = 0.0
    bytes: int = 0

    @property
    def demand(self) -> float:
        """The cores that it would use now."""
        return self.phases[0][0] if self.phases else 0.0


@dataclass
class SimulatedMachine:
    """What the admission reads."""

    cores: int
    now: float = 0.0
    looks: list[tuple[float, float]] = field(default_factory=list)
    spent: float = 0.0

    def look(self) -> Reading:
        """As xpulab.harness.machine.Machine.look."""
        self.looks.append((self.now, self.spent))
        while len(self.looks) > 1 and self.now - self.looks[1][0] >= 1.5:
            del self.looks[0]
        began, before = self.looks[0]
        busy = (self.spent - before) / (self.now - began) if self.now - began >= 0.6 else None
        return Reading(self.cores, busy, math.inf)

    def forget(self) -> None:
        """As xpulab.harness.machine.Machine.forget."""
        self.looks.clear()


def phases(wall: float, busy: float, rng: random.Random) -> list[list[float]]:
    """Compute and wait in turn, so that alone on 2 cores it takes `wall` seconds and uses `busy` processor seconds."""
    cores = 1.0 if busy <= 0.95 * wall and busy > 0.8 * wall else min(2.0, max(1.6, busy / wall)) if busy != wall else 1.0
    cores = 1.0 if 0.8 * wall < busy <= 1.05 * wall else cores
    computing, waiting = busy / cores, max(0.0, wall - busy / cores)
    parts = max(1, round(wall / rng.uniform(*PHASE_SECONDS)))
    weights = [[rng.random() + 0.2, rng.random() + 0.2] for _ in range(parts)]
    sums = [sum(each[kind] for each in weights) for kind in (0, 1)]
    result = [[0.5, START_SECONDS]]
    for compute, wait in weights:
        result += [[cores, computing * compute / sums[0]], [0.0, waiting * wait / sums[1]]]
    return [*[each for each in result if each[1] > 0], [0.1, END_SECONDS]]


def simulate(chapters: Sequence[tuple[str, float, float]], cores: int, policy: Admission, seed: int, machine: SimulatedMachine,
             timed: frozenset[str] = frozenset()) -> float:  # fmt: skip
    """Run the chapters in this order; returns the seconds until the last one has ended."""
    rng = random.Random(seed)
    waiting = [Chapter(name, phases(wall, busy, rng)) for name, wall, busy in chapters]
    running: list[Chapter] = []
    asked = -1.0
    while waiting or running:
        now = machine.now
        while (waiting and now - asked >= ASKED_EVERY) or (waiting and not running):
            known = [Running(each.began, 0, each.name in timed) for each in running]
            place = policy.next(now, known, [Running(now, 0, each.name in timed) for each in waiting])
            if place is None:
                asked = now
                break
            started = waiting.pop(place)
            started.began = now
            running.append(started)
            policy.changed()
        demand = sum(each.demand for each in running)
        share = min(1.0, cores / demand) if demand else 1.0
        machine.spent += min(cores, demand) * TICK
        machine.now += TICK
        for each in list(running):
            each.phases[0][1] -= TICK * (share if each.demand else 1.0)
            if each.phases[0][1] <= 0:
                each.phases.pop(0)
            if not each.phases:
                running.remove(each)
                policy.changed()
                asked = -1.0
    return machine.now


ORDERS: dict[str, Callable[[tuple[str, float, float]], float]] = {
    "longest wall": lambda chapter: -chapter[1],
    "most work": lambda chapter: -chapter[2],
    "most waiting": lambda chapter: chapter[2] - chapter[1],
    "shortest": lambda chapter: chapter[1],
}


def first_the_shortest(chapters: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """The shortest one for an early answer, then the longest wall first."""
    ordered = sorted(chapters, key=ORDERS["longest wall"])
    return [ordered[-1], *ordered[:-1]]


def main() -> None:
    """Print a table for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--cores", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--scale", type=float, default=1.0, help="of all processor seconds and walls")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    table = seconds_of(asked.run) if asked.run else MEASURED
    chapters = [(name, wall * asked.scale, busy * asked.scale) for name, (wall, busy) in table.items()]
    for cores in asked.cores:
        work, longest = sum(busy for *_, busy in chapters), max(wall for _, wall, _ in chapters)
        bound = max(longest, work / cores)
        print(f"{cores} cores: work {work:.0f} s, longest {longest:.0f} s, bound {bound:.0f} s, times {AFTERWARDS}: "
              f"{AFTERWARDS * bound:.0f} s")  # fmt: skip
        for label, order in [*ORDERS.items(), ("shortest, then longest", None)]:
            ordered = sorted(chapters, key=order) if order else first_the_shortest(chapters)
            row = []
            for factor in (1.0, 1.5, 2.0, 3.0):
                walls = [_by_load(ordered, cores, factor, seed) for seed in range(asked.seeds)]
                row.append(f"by load, at most {factor:g} a core: {_mean(walls):6.1f}")
            walls = [_by_load(ordered, cores, 2.0, seed, frozenset({"00", "02", "09"})) for seed in range(asked.seeds)]
            row.append(f"2 a core, 00, 02, 09 judge times: {_mean(walls):6.1f}")
            for jobs in (cores, cores + 1, 2 * cores):
                walls = [simulate(ordered, cores, AtATime(jobs), seed, SimulatedMachine(cores)) for seed in range(asked.seeds)]
                row.append(f"{jobs} at a time: {_mean(walls):6.1f}")
            print(f"  {label}: " + " | ".join(row))


def _by_load(ordered: list, cores: int, factor: float, seed: int, timed: frozenset[str] = frozenset()) -> float:
    admission.MOST_A_CORE = factor
    machine = SimulatedMachine(cores)
    return simulate(ordered, cores, ByLoad(machine), seed, machine, timed)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def seconds_of(run: Path) -> dict[str, tuple[float, float]]:
    """Of each executed notebook of a run: the seconds of its cells, also as its processor seconds."""
    found = {}
    for path in sorted((run / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if "run" in notebook.metadata.get(METADATA_KEY, {}):
            wall = sum(cell.metadata.get("papermill", {}).get("duration") or 0.0 for cell in notebook.cells)
            found[path.stem] = (wall, wall)
    return found


if __name__ == "__main__":
    main()
