"""One round of a soak: temperatures, clocks and memory while it runs, its problems, and its line in soak.jsonl."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import nbformat
import psutil

from xpulab.doctor.cards import Card
from xpulab.doctor.nvml import read_nvml
from xpulab.doctor.xpu_smi import read_xpu_smi
from xpulab.harness.judge import Verdict
from xpulab.messages import N_
from xpulab.records.record import record_in
from xpulab.soak.values import Problem

PASSED, FAILED, INTERRUPTED = "passed", "failed", N_("interrupted")
"""The outcomes of a round."""

INTERVAL_SECONDS = 30.0
"""Between two samples of one round; there is one at its beginning and one at its end."""

_TOOLS = {"xpu": read_xpu_smi, "gpu": read_nvml}
_MIB = 2**20
_STOP_SECONDS = 60.0
"""A hanging tool is killed by its own timeouts before."""
_QUANTITIES = ("temperature_c", "clock_mhz", "power_w", "memory_used_mib")


@dataclass(frozen=True)
class Part:
    """One card, or the processor, at one time.

    name: "card 0", "processor". A field is None when nothing shows it.
    temperature_c: degrees Celsius. clock_mhz: MHz. power_w: W. memory_used_mib: MiB, of cards only.
    """

    name: str
    temperature_c: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None
    memory_used_mib: int | None = None


@dataclass(frozen=True)
class Sample:
    """What was read at one time. time: local, with its offset from UTC. note: why there are no parts, else None."""

    time: datetime
    parts: tuple[Part, ...]
    note: str | None = None


@dataclass(frozen=True)
class Memory:
    """What is used between two rounds, in MiB: growth is a leak.

    machine: of the machine's memory. own: by this process. shared: in /dev/shm. disk_free: free where the reports are.
    """

    machine: int
    own: int
    shared: int
    disk_free: int


@dataclass(frozen=True)
class Found:
    """A problem with its circumstances.

    number, seed: of the round. time: when the check ended, in local time with its offset from UTC.
    parts: temperatures and clocks at that time.
    """

    problem: Problem
    number: int
    seed: int
    time: datetime
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        when = f"{self.time:%Y-%m-%d %H:%M:%S}{format_parts(self.parts)}"
        problem = self.problem
        return N_(f"round {self.number} (seed {self.seed}, {when}): {problem.place}: {problem.kind}: {problem.reason}")


@dataclass(frozen=True)
class Round:
    """One round.

    number: from 1. seed: of its notebooks. began: local time. seconds: how long it took.
    outcome: "passed", "failed" (it has problems) or "interrupted" (its first part may have problems all the same).
    checks: how many compared something. repeated: how many values an earlier round with the same seed had too.
    samples: temperatures and clocks, in order of time. memory: at its end. found: its problems, in order of time.
    notes: what else is worth knowing, one sentence each.
    """

    number: int
    seed: int
    began: datetime
    seconds: float
    outcome: str
    checks: int
    repeated: int
    samples: tuple[Sample, ...]
    memory: Memory
    found: tuple[Found, ...] = ()
    notes: tuple[str, ...] = ()


def in_order(
    number: int, seed: int, problems: Sequence[Problem], verdicts: Sequence[Verdict], samples: Sequence[Sample]
) -> tuple[Found, ...]:
    """The problems of a round with time and temperatures, the first one first."""
    by_name = {verdict.name: verdict for verdict in verdicts}
    found = []
    for problem in problems:
        moment = _ended(by_name[problem.place.notebook], problem.place.check)
        sample = nearest(samples, moment)
        found.append(Found(problem, number, seed, moment, sample.parts if sample else ()))
    return tuple(sorted(found, key=lambda each: each.time))


def round_to_json(this: Round) -> dict[str, Any]:
    """The line of a round in soak.jsonl, as JSON values; its schema is data/schema/soak_round.schema.json."""
    return {
        "round": this.number,
        "seed": this.seed,
        "began": this.began.isoformat(timespec="seconds"),
        "seconds": round(this.seconds, 1),
        "outcome": this.outcome,
        "checks": this.checks,
        "repeated": this.repeated,
        "parts": {name: extremes(this.samples, name) for name in part_names(this.samples)},
        "memory_mib": vars(this.memory),
        "problems": [_problem(each) for each in this.found],
        "notes": list(dict.fromkeys([*this.notes, *(sample.note for sample in this.samples if sample.note)])),
    }


def part_names(samples: Sequence[Sample]) -> list[str]:
    """The cards, or the processor, that the samples show."""
    return list(dict.fromkeys(part.name for sample in samples for part in sample.parts))


def extremes(samples: Sequence[Sample], name: str) -> dict[str, list[float]]:
    """Of one part the lowest and the highest value of each quantity that was shown."""
    parts = [part for sample in samples for part in sample.parts if part.name == name]
    shown = {quantity: [value for part in parts if (value := getattr(part, quantity)) is not None] for quantity in _QUANTITIES}
    return {quantity: [min(values), max(values)] for quantity, values in shown.items() if values}


def format_parts(parts: Sequence[Part]) -> str:
    """Temperatures and clocks as an addition to a sentence: ", card 0 81 °C 1410 MHz"; "" when nothing shows them."""
    return "".join(
        f", {part.name}"
        + ("" if part.temperature_c is None else f" {part.temperature_c:g} °C")
        + ("" if part.clock_mhz is None else f" {part.clock_mhz:g} MHz")
        for part in parts
    )


def _problem(found: Found) -> dict[str, Any]:
    problem = found.problem
    return {
        "kind": problem.kind,
        "notebook": problem.place.notebook,
        "check": problem.place.check,
        "case": problem.place.case,
        "reason": problem.reason,
        "before": vars(problem.before) if problem.before else None,
        "after": vars(problem.after) if problem.after else None,
        "time": found.time.isoformat(timespec="seconds"),
        "parts": [vars(part) for part in found.parts],
    }


def _ended(verdict: Verdict, check: str) -> datetime:
    """When the cell of a check ended, as papermill noted it; else when the notebook's last cell that ran did, else now."""
    times = []
    cells = nbformat.read(verdict.executed, as_version=4).cells if verdict.executed else []
    for cell in cells:
        ended = cell.metadata.get("papermill", {}).get("end_time")
        if cell.cell_type != "code" or not ended:
            continue
        times.append(datetime.fromisoformat(ended).replace(tzinfo=timezone.utc).astimezone())
        records = (record_in(output.get("metadata", {})) for output in cell.outputs)
        if any(record and record.name == check for record in records):
            return times[-1]
    return times[-1] if times else datetime.now().astimezone()


def read_parts(device: str) -> Sample:
    """One sample for a device: "gpu" or "xpu" from the vendor's tool, "cpu" and "sim" of the processor."""
    now = datetime.now().astimezone()
    if tool := _TOOLS.get(device):
        reading = tool()
        note = None if reading.cards else N_(f"no tool shows temperatures and clocks: {reading.detail}")
        return Sample(now, tuple(map(_card, reading.cards)), note)
    part = _processor()
    if part.temperature_c is None and part.clock_mhz is None:
        return Sample(now, (), N_("no sensor of the processor is readable here"))
    return Sample(now, (part,))


def read_memory(folder: Path) -> Memory:
    """What is used now; folder: where the reports are."""
    shared = psutil.disk_usage("/dev/shm").used if Path("/dev/shm").is_dir() else 0
    own = psutil.Process().memory_info().rss
    sizes = (psutil.virtual_memory().used, own, shared, psutil.disk_usage(str(folder)).free)
    return Memory(*(size // _MIB for size in sizes))


class Sampler:
    """Samples while a block runs: `with Sampler("xpu") as sampler: ...`, then sampler.samples, in order of time."""

    def __init__(self, device: str, interval: float = INTERVAL_SECONDS, read: Callable[[str], Sample] = read_parts) -> None:
        self._device, self._interval, self._read = device, interval, read
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="temperatures and clocks", daemon=True)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What was read so far."""
        return tuple(self._samples)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        over = False
        while True:
            self._samples.append(self._read(self._device))
            if over:
                return
            over = self._over.wait(self._interval)


def nearest(samples: Sequence[Sample], moment: datetime) -> Sample | None:
    """The sample that was read nearest to a moment; None when there is none."""
    return min(samples, key=lambda sample: abs(sample.time - moment), default=None)


def _card(card: Card) -> Part:
    return Part(f"card {card.index}", card.temperature_c, card.clock_mhz, card.power_w, card.memory_used_mib)


def _processor() -> Part:
    """The hottest sensor of the processor and its mean clock, as far as the kernel shows them."""
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    hottest = max((entry.current for entries in sensors.values() for entry in entries if entry.current), default=None)
    clock = psutil.cpu_freq()
    return Part("processor", hottest, round(clock.current) if clock and clock.current else None)
