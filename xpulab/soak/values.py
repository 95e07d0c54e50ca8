"""The values of a round that every later round with the same seed must repeat to the last bit, and where one did not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from xpulab.harness.judge import Verdict
from xpulab.messages import N_
from xpulab.records.record import RED, Record, Row
from xpulab.soak.selection import Selection

DIFFERENCE, RED_KIND = N_("difference"), N_("red")
"""The kinds of problems."""
SEEDS = 8
"""How many seeds a soak uses, in turns. With seeds 0 to 7 all sections were green on the CPU."""

_LOSS = "loss"
_RIGHT = ("passed", "fixed")


def seed_of(number: int, first: int) -> int:
    """The seed of a round, counted from 1: the first seed in every second round, in the others the SEEDS in turns.

    0 0 1 0 2 0 3 0 ...: what has changed for good differs from round 1 in the next even round, and no later.
    """
    return first if number % 2 == 0 else first + (number - 1) // 2 % SEEDS


@dataclass(frozen=True)
class Place:
    """Where a value stands: the notebook, the check, and its case, "" for a check without rows."""

    notebook: str
    check: str
    case: str

    def __str__(self) -> str:
        return f"{self.notebook} {self.check}{f', {self.case}' if self.case else ''}"


@dataclass(frozen=True)
class Value:
    """One value as a check recorded it. measured, digest: as in Record; number: of the round."""

    measured: float | str | None
    digest: str | None
    number: int = 0

    def repeats(self, earlier: Value) -> bool:
        """Whether both rounds measured the same."""
        return replace(self, number=0) == replace(earlier, number=0)

    def __str__(self) -> str:
        shown = "" if self.measured is None else f"{self.measured!r}" if isinstance(self.measured, float) else self.measured
        return " ".join(filter(None, [shown, self.digest and f"[{self.digest}]"])) or "nothing"


@dataclass(frozen=True)
class Problem:
    """Something that a soak reports.

    kind: DIFFERENCE (an earlier round with the same seed measured otherwise) or RED_KIND (a check or a notebook is red).
    place: where. reason: one sentence. before, after: of a difference, the values of both rounds, else None.
    """

    kind: str
    place: Place
    reason: str
    before: Value | None = None
    after: Value | None = None


class Values:
    """For each seed, the first value of each place."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._first: dict[int, dict[Place, Value]] = {}

    def compare(self, number: int, seed: int, verdicts: Sequence[Verdict]) -> tuple[int, list[Problem]]:
        """How many values of a round an earlier one with its seed had too, and which of them differ.

        Values that no earlier round had are those that later rounds are compared with.
        """
        first = self._first.setdefault(seed, {})
        compared, problems = 0, []
        values = dict(self._values(verdicts))
        for place in _skipped(verdicts):
            if place not in values and place in first:
                values[place] = Value("skipped", None)
        for place, value in values.items():
            earlier = first.setdefault(place, replace(value, number=number))
            if earlier.number == number:
                continue
            compared += 1
            if not value.repeats(earlier):
                reason = N_(f"{value}, in round {earlier.number} with the same seed {earlier}")
                problems.append(Problem(DIFFERENCE, place, reason, earlier, replace(value, number=number)))
        return compared, problems

    def _values(self, verdicts: Sequence[Verdict]) -> Iterator[tuple[Place, Value]]:
        for verdict in verdicts:
            for record in verdict.records:
                for case, value in _values_of(record):
                    if not self._selection.varies(record.name, case):
                        yield Place(verdict.name, record.name, case), value


def red_in(verdicts: Sequence[Verdict]) -> list[Problem]:
    """What is red: each check that failed or is broken; a notebook whose reasons name more than that."""
    problems = []
    for verdict in verdicts:
        red = [record for record in verdict.records if record.outcome in RED - {"missing"}]
        for record in red:
            outcome, measured, expected = record.outcome, record.measured, record.expected or "-"
            reason = N_(f"{outcome}, measured {measured}, expected {expected}; {record.reason}")
            problems.append(Problem(RED_KIND, Place(verdict.name, record.name, ""), reason))
        if verdict.outcome in ("failed", "missing") and (not red or (verdict.run and verdict.run.stopped)):
            problems.append(
                Problem(RED_KIND, Place(verdict.name, "the notebook", ""), verdict.reason_in_short or verdict.outcome)
            )
    return problems


def _values_of(record: Record) -> Iterator[tuple[str, Value]]:
    """The values of one check by case: of a check against baselines only its losses, of others what is right.

    What is wrong because of a known issue may be what was in memory before, and so differ each time.
    """
    for measurement in record.measurements:
        if measurement.kind == _LOSS:
            bits = hashlib.blake2b(json.dumps(measurement.values).encode(), digest_size=8).hexdigest()
            yield measurement.case, Value(measurement.values[-1], bits)
    if record.measurements:
        return
    for each in record.rows or (record,):
        if each.outcome in _RIGHT:
            yield _case(each), Value(_stable(each), each.digest)


def _stable(compared: Record | Row) -> float | str | None:
    """What was measured; of an exception, which has no digest, only its type: the message may name a temporary folder."""
    measured = compared.measured
    return measured.partition(":")[0] if compared.digest is None and isinstance(measured, str) else measured


def _skipped(verdicts: Sequence[Verdict]) -> Iterator[Place]:
    """The checks and rows that compared nothing: where an earlier round compared, that is a difference."""
    for verdict in verdicts:
        for record in verdict.records:
            parts: tuple[Record | Row, ...] = (record, *record.rows)
            for each in parts:
                if each.outcome == "skipped":
                    yield Place(verdict.name, record.name, _case(each))


def _case(compared: Record | Row) -> str:
    return compared.case if isinstance(compared, Row) else ""
