"""What a soak found, over all its rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from xpulab.doctor.meant import Lost
from xpulab.harness.execute import Target
from xpulab.harness.plan import Plan
from xpulab.harness.report.result import SCOPE
from xpulab.harness.soak.rounds import INTERRUPTED, PASSED, Found, Round, extremes, part_names
from xpulab.harness.soak.values import Place

SCHEMA = 1


@dataclass(frozen=True)
class Summary:
    """A soak, at its end or after one of its rounds.

    target: of all rounds; its seed is that of the first one. plans: of one round. rounds: in order.
    seconds: how long it took. hours: what was asked for, None for until it is interrupted.
    interrupted: whether it was ended from outside. folder: the absolute path of its reports.
    first_bad: the number of the first round with a problem, whose reports are kept; None when there is none.
    lost: the accelerator that the machine is meant to have and that Paddle cannot use, so that no round ran; else None.
    """

    target: Target
    plans: tuple[Plan, ...]
    rounds: tuple[Round, ...]
    seconds: float
    hours: float | None
    interrupted: bool
    folder: Path
    first_bad: int | None
    lost: Lost | None = None

    @property
    def found(self) -> tuple[Found, ...]:
        """All problems, the first one first."""
        return tuple(found for each in self.rounds for found in each.found)

    @property
    def scope(self) -> str:
        """What the soak says, and what it does not."""
        return f"No round ran: {self.lost.headline}" if self.lost else SCOPE[self.target.device]

    @property
    def complete(self) -> tuple[Round, ...]:
        """The rounds that ran to their end."""
        return tuple(each for each in self.rounds if each.outcome != INTERRUPTED)

    @property
    def repeated(self) -> int:
        """How many values were compared with those of an earlier round."""
        return sum(each.repeated for each in self.rounds)

    @property
    def outcome(self) -> str:
        """ "failed" when something was found or lost, else "passed" when rounds were compared, else "nothing compared"."""
        if self.found or self.lost:
            return "failed"
        return "passed" if self.repeated else "nothing compared"

    @property
    def exit_code(self) -> int:
        """1 when it failed, however it ended; else 130 when interrupted; else 0, or 2 when no value was compared."""
        if self.outcome == "failed":
            return 1
        if self.interrupted:
            return 130
        return 0 if self.repeated else 2

    def rounds_of(self, place: Place) -> tuple[Found, ...]:
        """The problems of one check or row, in order."""
        return tuple(each for each in self.found if each.problem.place == place)

    def places(self) -> dict[Place, int]:
        """Each place that has a problem with the number of rounds in which it has, the first one first."""
        return dict(Counter(each.problem.place for each in self.found))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Lowest, median and highest of some values; empty for none."""
    return {"lowest": min(values), "median": median(values), "highest": max(values)} if values else {}


def to_json(summary: Summary) -> dict[str, Any]:
    """What soak.json holds, as JSON values; its schema is data/schema/soak_result.schema.json."""
    samples = tuple(sample for each in summary.rounds for sample in each.samples)
    target = summary.target
    memory = [each.memory for each in summary.rounds]
    return {
        "schema": SCHEMA,
        "outcome": summary.outcome,
        "interrupted": summary.interrupted,
        "device": target.device,
        "scope": summary.scope,
        "lost": asdict(summary.lost) if summary.lost else None,
        "level": target.level,
        "cards": target.cards,
        "hours_asked": summary.hours,
        "hours": round(summary.seconds / 3600, 4),
        "ended": datetime.now().astimezone().isoformat(timespec="seconds"),
        "notebooks": [plan.name for plan in summary.plans],
        "rounds": len(summary.rounds),
        "rounds_passed": sum(each.outcome == PASSED for each in summary.rounds),
        "seeds": sorted({each.seed for each in summary.rounds}),
        "checks": sum(each.checks for each in summary.rounds),
        "repeated": summary.repeated,
        "round_seconds": {name: round(value, 1) for name, value in spread(_seconds(summary)).items()},
        "parts": {name: extremes(samples, name) for name in part_names(samples)},
        "memory_mib": {"first": vars(memory[0]), "last": vars(memory[-1])} if memory else {},
        "first_bad_round": summary.first_bad,
        "problems": [
            {"notebook": place.notebook, "check": place.check, "case": place.case, "rounds": count, "first": str(first)}
            for place, count in summary.places().items()
            for first in summary.rounds_of(place)[:1]
        ],
    }


def _seconds(summary: Summary) -> list[float]:
    return [each.seconds for each in summary.complete]
