"""Baselines: the losses, rates and memory that a device measured before, with which new measurements are compared.

They are in data/baselines/<device>.json, or in the folder that XPULAB_BASELINES names; `xpulab baseline` writes them. One
file has the baselines of several machines. A baseline is valid only for the hardware, the family of the wheel and the level
with which it was measured.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xpulab import files
from xpulab.devices import DEVICES, WHEELS, wheel_device
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.records.record import Measurement, RunContext

SCHEMA = 1
FOLDER = "XPULAB_BASELINES"
"""The environment variable that names another folder than data/baselines."""

_SPREADS = 4
"""The tolerance as a multiple of the spread of the runs: five runs rarely show the whole spread."""

_MINIMUM_FACTOR = {"cpu": 6.0, "sim": 6.0, "gpu": 1.25, "xpu": 1.25}
"""The smallest factor by which a rate may differ. A CPU's cores are shared, and they compute for simulated cards too."""

_MINIMUM_FRACTION = {"loss": 1e-3, "memory": 0.02}
"""The smallest tolerance as a fraction of the largest value: another build of a kernel adds in another order."""


class NoBaseline(Exception):
    """There is no baseline for a measurement; the text gives the reason."""


@dataclass(frozen=True)
class Entry:
    """One baseline value.

    check, case, kind, unit, conditions: as in the measurement (xpulab.records.record).
    value: the median of the runs; for a trajectory, of each step.
    spread: the largest minus the smallest of the runs; for a trajectory, at the step where this is largest.
    tolerance: for a loss or memory the largest allowed difference, in its unit; for a rate the largest allowed factor, in
        either direction.
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
        """The smallest and the largest allowed value of each number of a measurement."""
        tolerance, is_rate = self.tolerance, self.kind == "rate"
        smallest = tuple(each / tolerance if is_rate else each - tolerance for each in self.value)
        return smallest, tuple(each * tolerance if is_rate else each + tolerance for each in self.value)


@dataclass(frozen=True)
class Baseline:
    """The baseline of one machine at one level.

    device: one of DEVICES.
    hardware: what determines the numbers of the device, see `hardware`.
    wheel: the name of the Paddle wheel, which is its family.
    level: "quick" or "standard".
    machine, versions: as in RunContext.
    driver: the version of the driver, or "none".
    commit: of this repository.
    date: of the first run, UTC, YYYY-MM-DD.
    runs: the number of runs.
    entries: the values.
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
        """Where the baseline comes from, as text for a report."""
        built = f"{self.wheel} {self.versions.get(self.wheel, '')}"
        return f"{self.runs} runs of {self.date} on {self.hardware}, {built}, commit {self.commit}"

    def entry(self, check: str, measured: Measurement) -> Entry:
        """The entry for a measurement of a check. Raises NoBaseline."""
        same_case = [entry for entry in self.entries if (entry.check, entry.case) == (check, measured.case)]
        wanted = (measured.kind, measured.unit, measured.conditions, len(measured.values))
        for entry in same_case:
            if (entry.kind, entry.unit, entry.conditions, len(entry.value)) == wanted:
                return entry
        if not same_case:
            raise NoBaseline(N_("no baseline: it was not measured yet; run `xpulab baseline`"))
        asked, available = measured.conditions, "; ".join(str(entry.conditions) for entry in same_case)
        raise NoBaseline(N_("no baseline for {asked}: it was measured with {available}", asked=asked, available=available))


def hardware(run_context: RunContext) -> str:
    """What determines the numbers of a device: the model of the card, or of the CPU with its number of cores."""
    if wheel_device(run_context.device) == "cpu":
        return f"{run_context.machine.get('processor')}, {run_context.machine.get('cores')} cores"
    return str(run_context.machine.get("card"))


def wheel(run_context: RunContext) -> str:
    """The name of the Paddle wheel with which a notebook ran. Raises InputError unless exactly one is installed."""
    installed = [name for name in WHEELS if name in run_context.versions]
    if len(installed) != 1:
        raise InputError(f"there must be one Paddle wheel, and there are {len(installed)}; run `xpulab doctor`")
    return installed[0]


def folder() -> Path:
    """The folder from which baselines are read and to which they are written."""
    return Path(os.environ[FOLDER]) if os.environ.get(FOLDER) else files.DATA / "baselines"


def load(path: Path) -> tuple[Baseline, ...]:
    """The baselines in a file. Raises InputError with file and line when `xpulab baseline` cannot have written it."""
    content = files.load_json(path, files.data("schema", "baselines.schema.json"))
    device = content["device"]
    baselines = tuple(_baseline(device, each) for each in content["baselines"])
    if device != path.stem:
        raise InputError(f"{path}: its device is {device}, so its name must be {device}.json; was it copied?")
    return baselines


@cache
def load_all(directory: Path) -> tuple[Baseline, ...]:
    """The baselines of all devices in this folder, read once in a process. Raises InputError as `load` does."""
    paths = (directory / f"{device}.json" for device in DEVICES)
    return tuple(baseline for path in paths if path.exists() for baseline in load(path))


def find(run_context: RunContext, level: str) -> Baseline:
    """The baseline of this device. Raises NoBaseline with the reason when there is none, and InputError for an invalid file."""
    path = folder() / f"{run_context.device}.json"
    found = [each for each in load_all(folder()) if each.device == run_context.device]
    if not found:
        raise NoBaseline(N_("no baseline: there is no {name}; `xpulab baseline` measures one", name=path.name))
    here, family = hardware(run_context), wheel(run_context)
    for what, mine in (("hardware", here), ("wheel", family), ("level", level)):
        others = " and ".join(sorted({getattr(each, what) for each in found}))
        found = [each for each in found if getattr(each, what) == mine]
        if not found:
            facts = {"name": path.name, "what": what, "others": others, "mine": mine}
            raise NoBaseline(N_("no baseline: {name} was measured with {what} {others}, not with {mine}", **facts))
    return found[0]


def summarise(check: str, runs: Sequence[Measurement], device: str) -> Entry:
    """The entry made from the measurements of several runs, all of the same case."""
    first = runs[0]
    steps = list(zip(*(run.values for run in runs), strict=True))
    value = tuple(_rounded(statistics.median(step)) for step in steps)
    spread = _rounded(max(max(step) - min(step) for step in steps))
    tolerance = tolerance_of(first.kind, value, spread, device)
    return Entry(check, first.case, first.kind, first.unit, first.conditions, value, spread, tolerance)


def tolerance_of(kind: str, value: Sequence[float], spread: float, device: str) -> float:
    """The tolerance that follows from the spread of the runs, with a minimum for what differs between days; see Entry."""
    largest = max(abs(each) for each in value)
    if kind == "rate":
        return _rounded(max(1 + _SPREADS * spread / min(value), _MINIMUM_FACTOR[device]))
    return _rounded(max(_SPREADS * spread, _MINIMUM_FRACTION[kind] * largest))


def store(baseline: Baseline, target: Path) -> Path:
    """Write the baseline into its device's file in this folder; return the path of the file.

    It replaces the one with the same hardware, wheel and level; all others stay. Raises InputError when the file cannot be
    read or written.
    """
    path = target / f"{baseline.device}.json"
    kept = [each for each in (load(path) if path.exists() else ()) if _key(each) != _key(baseline)]
    try:
        target.mkdir(parents=True, exist_ok=True)
        files.replace_text(path, _as_text(baseline.device, sorted([*kept, baseline], key=_key)))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; name another folder with {FOLDER}") from error
    return path


def _key(baseline: Baseline) -> tuple[str, str, str]:
    return baseline.hardware, baseline.wheel, baseline.level


def _baseline(device: str, stored: dict[str, Any]) -> Baseline:
    entries = tuple(Entry(**{**entry, "value": tuple(entry["value"])}) for entry in stored["entries"])
    return Baseline(**{**stored, "device": device, "entries": entries})


def _as_text(device: str, baselines: Sequence[Baseline]) -> str:
    """JSON with one entry on each line, so that a diff shows which entry changed."""
    blocks = []
    for baseline in baselines:
        stored = {name: value for name, value in asdict(baseline).items() if name not in ("device", "entries")}
        head = json.dumps(stored, indent=1).removesuffix("\n}")
        lines = ",\n".join("  " + json.dumps(asdict(entry)) for entry in baseline.entries)
        blocks.append(f'{head},\n "entries": [\n{lines}\n ]\n}}')
    return f'{{"schema": {SCHEMA}, "device": "{device}", "baselines": [\n' + ",\n".join(blocks) + "\n]}\n"


def _rounded(value: float) -> float:
    """Rounded to six digits, which is more than any measurement repeats."""
    return float(f"{value:.6g}")
