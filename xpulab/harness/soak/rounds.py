"""One round of a soak, and its line in soak.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import nbformat

from xpulab.harness.judge import Verdict
from xpulab.harness.soak.readings import Memory, Part, Sample, nearest
from xpulab.harness.soak.values import Problem
from xpulab.records.record import record_in

PASSED, FAILED, INTERRUPTED = "passed", "failed", "interrupted"
"""The outcomes of a round."""


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
        where = f"round {self.number} (seed {self.seed}, {self.time:%Y-%m-%d %H:%M:%S}{format_parts(self.parts)})"
        return f"{where}: {self.problem.place}: {self.problem.kind}: {self.problem.reason}"


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


def to_json(this: Round) -> dict[str, Any]:
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


QUANTITIES = ("temperature_c", "clock_mhz", "power_w", "memory_used_mib")


def extremes(samples: Sequence[Sample], name: str) -> dict[str, list[float]]:
    """Of one part the lowest and the highest value of each quantity that was shown."""
    parts = [part for sample in samples for part in sample.parts if part.name == name]
    shown = {quantity: [value for part in parts if (value := getattr(part, quantity)) is not None] for quantity in QUANTITIES}
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
