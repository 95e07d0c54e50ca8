"""What a rank of a trial is to do, and what it has found: its task gives it the one, and reads the other from a pipe."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from xpulab.checks.compare import Finding
from xpulab.ranks.environment import Seat

_MOST_BAD = 10


@dataclass(frozen=True)
class Job:
    """What a rank is to do. meeting: "address:port". folder: for its files. The other fields: as in Seat, Setup and Group."""

    seat: Seat
    meeting: str
    seed: int
    trial_seconds: float
    rates: bool
    folder: str

    @property
    def ranks(self) -> int:
        """How many ranks the trial has."""
        return len(self.seat.endpoints)


@dataclass
class Found:
    """What a rank has found until now.

    started: whether Paddle is imported, from when on the time limit counts. step: what it does; steps: how many it began.
    bad: its checks that did not pass, the first ten, as in RankReport. passed: how many did. skipped: reasons by the names of
    checks. rates: GB/s by name. raised: the error that ended it, in one line. done: whether all sections were run.
    """

    started: bool = False
    step: str = "start"
    steps: int = 0
    bad: list[dict[str, str]] = field(default_factory=list)
    passed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    raised: str = ""
    done: bool = False


class Notes:
    """Writes what a rank has found, all of it after each change, as a line into a pipe: its task knows it however it ends."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: the end of the pipe for writing."""
        self._descriptor, self._found = descriptor, Found()

    def write(self, **changed: Any) -> None:
        """Change these fields of Found."""
        vars(self._found).update(changed)
        os.write(self._descriptor, (json.dumps(asdict(self._found)) + "\n").encode())

    def step(self, name: str) -> None:
        """What this rank does from now on."""
        self.write(step=name, steps=self._found.steps + 1)

    def check(self, name: str, finding: Finding, control: Finding) -> None:
        """A check with its control, which must not be accepted."""
        bad = {"name": name, "outcome": "broken", "detail": "its control passes"}
        if not (control.accepted or control.incomparable):
            if finding.accepted:
                return self.write(passed=self._found.passed + 1)
            measured = finding.why or str(finding.measured)
            bad = {"name": name, "outcome": "failed", "detail": f"{measured}; expected {finding.expected}"[:400]}
        self.write(bad=[*self._found.bad, bad][:_MOST_BAD])

    def skip(self, name: str, reason: str) -> None:
        """A check that this device or this group cannot have."""
        self.write(skipped={**self._found.skipped, name: reason})

    def rate(self, name: str, value: float) -> None:
        """A rate in GB/s."""
        self.write(rates={**self._found.rates, name: value})
