"""What a device measured before, for what it measures now to be held against: losses, rates, memory.

They stand in data/baselines/<device>.json, or in the folder that XPULAB_BASELINES names; `xpulab baseline` writes them.
One file holds those of several machines. A baseline counts on the very hardware, for the wheel's family and at the level
that it was measured with, and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.devices import DEVICES, WHEELS, wheel_device
from xpulab.errors import InputError, line_of
from xpulab.records.record import Measurement, RunContext

SCHEMA = 1
FOLDER = "XPULAB_BASELINES"
"""The environment variable that names another folder than data/baselines."""

_SPREADS = 4
"""How many times the spread of its runs a value may be off: five runs hardly ever show all that there is."""

_LEAST_FACTOR = {"cpu": 6.0, "sim": 6.0, "gpu": 1.25, "xpu": 1.25}
"""By how much a rate may differ at least. The CPU's cores are shared, and simulated cards are computed by them."""

_LEAST_SHARE = {"loss": 1e-3, "memory": 0.02}
"""How far a value may be off at least, as a share of the largest: another build of a kernel adds in another order."""


class NoBaseline(Exception):
    """There is none to hold a measurement against; the text says why."""


@dataclass(frozen=True)
class Entry:
    """One baseline value.

    check, case, kind, unit, conditions: as in the measurement (xpulab.records.record).
    value: the median of the runs, of a trajectory step by step.
    spread: the largest minus the smallest of the runs; of a trajectory at the step where it is largest.
    tolerance: for a loss or memory how far off a value may be, in its unit; for a rate the factor by which it may be
    slower or faster.
    """

    check: str
    case: str
    kind: str
    unit: str
    conditions: dict[str, str]
    value: tuple[float, ...]
    spread: float
    tolerance: float

    def bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The least and the most that each number of a measurement may be."""
        if self.kind == "rate":
            factor = self.tolerance
            return tuple(each / factor for each in self.value), tuple(each * factor for each in self.value)
        return tuple(each - self.tolerance for each in self.value), tuple(each + self.tolerance for each in self.value)


@dataclass(frozen=True)
class Baseline:
    """What one machine measured at one level.

    device: as in DEVICES. hardware: what decides its numbers, see `hardware`. wheel: the name of Paddle's wheel, which is its
    family. level: "quick" or "standard". machine, versions: as in a RunContext; driver: its version, or "none".
    commit: of this repository. date: of the first run, UTC, YYYY-MM-DD. runs: how many there were.
    """

    device: str
    hardware: str
    wheel: str
    level: str
    machine: dict[str, Any]
    driver: str
    versions: dict[str, str]
    commit: str
    date: str
    runs: int
    entries: tuple[Entry, ...]

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        built = f"{self.wheel} {self.versions.get(self.wheel, '')}"
        return f"{self.runs} runs of {self.date} on {self.hardware}, {built}, commit {self.commit}"

    def entry(self, check: str, measured: Measurement) -> Entry:
        """The entry for a measurement of a check. Raises NoBaseline."""
        same_case = [entry for entry in self.entries if (entry.check, entry.case) == (check, measured.case)]
        alike = (measured.kind, measured.unit, measured.conditions, len(measured.values))
        for entry in same_case:
            if (entry.kind, entry.unit, entry.conditions, len(entry.value)) == alike:
                return entry
        if not same_case:
            raise NoBaseline("no baseline: it was not measured yet; `xpulab baseline` does")
        there = "; ".join(_in_words(entry.conditions) for entry in same_case)
        raise NoBaseline(f"no baseline for {_in_words(measured.conditions)}: it was measured with {there}")


def hardware(run_context: RunContext) -> str:
    """What decides a device's numbers: the card's model, or for a CPU its model and the number of its cores."""
    if wheel_device(run_context.device) == "cpu":
        return f"{run_context.machine.get('processor')}, {run_context.machine.get('cores')} cores"
    return str(run_context.machine.get("card"))


def wheel(run_context: RunContext) -> str:
    """The Paddle wheel that a notebook ran with, of which there must be one. Raises InputError."""
    installed = [name for name in WHEELS if name in run_context.versions]
    if len(installed) != 1:
        raise InputError(f"there must be one Paddle wheel, and there are {len(installed)}; `xpulab doctor` says what to do")
    return installed[0]


def folder() -> Path:
    """Where baselines are read from, and written to."""
    return Path(os.environ[FOLDER]) if os.environ.get(FOLDER) else files.DATA / "baselines"


def load(path: Path) -> tuple[Baseline, ...]:
    """The baselines of a file. Raises InputError with the file and the line when it is not what `xpulab baseline` writes."""
    content = files.load_json(path, files.data("schema", "baselines.schema.json"))
    baselines = tuple(_baseline(path, content["device"], each) for each in content["baselines"])
    if content["device"] != path.stem:
        raise InputError(f"{path}: it is of {content['device']}, so it must be called {content['device']}.json; was it copied?")
    return baselines


@cache
def load_all(directory: Path) -> tuple[Baseline, ...]:
    """The baselines of all devices in this folder, read once a process. Raises InputError as `load` does."""
    paths = (directory / f"{device}.json" for device in DEVICES)
    return tuple(baseline for path in paths if path.exists() for baseline in load(path))


def find(run_context: RunContext, level: str) -> Baseline:
    """The baseline of this very device. Raises NoBaseline, which says why there is none; InputError for a bad file."""
    path = folder() / f"{run_context.device}.json"
    found = [each for each in load_all(folder()) if each.device == run_context.device]
    if not found:
        raise NoBaseline(f"no baseline: there is no {path.name} in {path.parent.name}; `xpulab baseline` measures one")
    here, family = hardware(run_context), wheel(run_context)
    for what, mine in (("hardware", here), ("wheel", family), ("level", level)):
        others = sorted({getattr(each, what) for each in found})
        found = [each for each in found if getattr(each, what) == mine]
        if not found:
            raise NoBaseline(f"no baseline: {path.name} is of {what} {' and '.join(others)}, and here is {mine}")
    if copied := copies(found[0], load_all(folder())):
        raise NoBaseline(f"no baseline: that of {here} in {path.name} has the very rates of {copied}, so one was copied")
    return found[0]


def copies(baseline: Baseline, others: Iterable[Baseline]) -> str | None:
    """The other baseline that has one of the very same rates, which is never measured twice; None when there is none."""
    for other in others:
        elsewhere = (other.device, *_key(other)) != (baseline.device, *_key(baseline))
        if elsewhere and _rates(baseline) & _rates(other):
            return f"{other.hardware} in {other.device}.json"
    return None


def summarise(check: str, runs: Sequence[Measurement], device: str) -> Entry:
    """One entry from what several runs measured; all are of the same case."""
    first = runs[0]
    steps = list(zip(*(run.values for run in runs), strict=True))
    value = tuple(_rounded(statistics.median(step)) for step in steps)
    spread = _rounded(max(max(step) - min(step) for step in steps))
    tolerance = tolerance_of(first.kind, value, spread, device)
    return Entry(check, first.case, first.kind, first.unit, first.conditions, value, spread, tolerance)


def tolerance_of(kind: str, value: Sequence[float], spread: float, device: str) -> float:
    """From the spread of the runs, but never less than what differs from day to day; in the unit of Entry.tolerance."""
    largest = max(abs(each) for each in value)
    if kind == "rate":
        return _rounded(max(1 + _SPREADS * spread / min(value), _LEAST_FACTOR[device]))
    return _rounded(max(_SPREADS * spread, _LEAST_SHARE[kind] * largest))


def store(baseline: Baseline, target: Path) -> Path:
    """Write the baseline into its device's file in this folder, in place of the one of the same hardware, wheel and level.

    All others stay. Raises InputError when the file there cannot be read or written.
    """
    path = target / f"{baseline.device}.json"
    kept = [each for each in (load(path) if path.exists() else ()) if _key(each) != _key(baseline)]
    text = _as_text(baseline.device, sorted([*kept, baseline], key=_key))
    beside = path.with_suffix(".json.new")
    try:
        target.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; name another folder with {FOLDER}") from error
    return path


def _key(baseline: Baseline) -> tuple[str, str, str]:
    return baseline.hardware, baseline.wheel, baseline.level


def _rates(baseline: Baseline) -> set[tuple[str, str, tuple[float, ...], float]]:
    rates = (entry for entry in baseline.entries if entry.kind == "rate")
    return {(entry.check, entry.case, entry.value, entry.spread) for entry in rates}


def _baseline(path: Path, device: str, stored: dict[str, Any]) -> Baseline:
    entries = tuple(Entry(**{**entry, "value": tuple(entry["value"])}) for entry in stored["entries"])
    for entry in entries:
        if entry.tolerance != (wanted := tolerance_of(entry.kind, entry.value, entry.spread, device)):
            line = line_of(path.read_text(encoding="utf-8"), re.escape(json.dumps(entry.case)))
            raise InputError(
                f"{path} line {line}: {entry.check}, {entry.case}: a tolerance of {entry.tolerance:g} does not follow from the "
                f"spread of its runs, {wanted:g} does; measure it again with `xpulab baseline`"
            )
    return Baseline(**{**stored, "device": device, "entries": entries})


def _as_text(device: str, baselines: Sequence[Baseline]) -> str:
    """JSON with an entry a line, so that a change shows which."""
    blocks = []
    for baseline in baselines:
        stored = {name: value for name, value in asdict(baseline).items() if name not in ("device", "entries")}
        head = json.dumps(stored, indent=1).removesuffix("\n}")
        lines = ",\n".join("  " + json.dumps(asdict(entry)) for entry in baseline.entries)
        blocks.append(f'{head},\n "entries": [\n{lines}\n ]\n}}')
    return f'{{"schema": {SCHEMA}, "device": "{device}", "baselines": [\n' + ",\n".join(blocks) + "\n]}\n"


def _in_words(conditions: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in conditions.items()) or "no conditions"


def _rounded(value: float) -> float:
    """To six digits: more say nothing."""
    return float(f"{value:.6g}")
