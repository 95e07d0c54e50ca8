"""What a check saw: the one format that passes from inside a kernel to the outside.

A check writes its Record into the metadata of the output that it prints, a notebook's first cell writes a RunContext there
too, so an executed notebook carries all that a report says. Rules that both sides need (what is red, what is missing,
when a notebook is green) stand here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

METADATA_KEY = "xpulab"
"""The key, in a notebook's, an output's and an executed notebook's metadata, under which everything of ours stands."""

OUTCOMES = ("passed", "failed", "broken", "skipped", "missing", "known", "fixed")
RED = frozenset({"failed", "broken", "missing"})
COMPARED = frozenset({"passed", "failed", "broken", "known", "fixed"})

_WELL = frozenset(OUTCOMES) - RED
_WORST_FIRST = ("broken", "failed", "missing", "fixed", "known", "passed", "skipped")


@dataclass(frozen=True)
class Row:
    """One case of a check that has many.

    case: what the case is called, "float16" for instance. The other fields are as in Record.
    """

    case: str
    outcome: str
    measured: float | str | None
    expected: str
    control: str
    reason: str | None = None


@dataclass(frozen=True)
class Measurement:
    """A number that depends on the device, which is held against what the device measured before.

    case: what it is called, "host to device". kind: "loss", "rate" or "memory". unit: "GB/s", "nats per token".
    values: the number, or all of a trajectory, in order.
    conditions: what must be the same for two of them to be compared: {"seed": "0"}.
    """

    case: str
    kind: str
    unit: str
    values: tuple[float, ...]
    conditions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """What one check saw.

    name: "<capability>.<what>", unique in the suite.
    outcome: one of OUTCOMES.
    means: what it means that the check passes, the same words on every machine.
    measured: a number in the unit that `means` implies (a largest difference, a loss), a sentence, or None.
    expected: what the number was held against, in words: "< 0.63".
    control: "rejected", "accepted", "raised" or "proves nothing" (only the first is sound), or "not tried" for a skip.
    seconds: how long the comparison itself took, control included.
    reason: why it is not simply passed, and what to look at; None when there is nothing to say.
    rows: the cases of a check that has many, else empty.
    measurements: what a check against baselines measured, whether there were any or not; else empty.
    """

    name: str
    outcome: str
    means: str
    measured: float | str | None = None
    expected: str = ""
    control: str = "not tried"
    seconds: float = 0.0
    reason: str | None = None
    rows: tuple[Row, ...] = ()
    measurements: tuple[Measurement, ...] = ()

    @property
    def capability(self) -> str:
        """The capability that the check belongs to: its name up to the first dot."""
        return self.name.split(".", 1)[0]

    def to_metadata(self) -> dict[str, Any]:
        """The record as JSON values, to be stored in an output's metadata."""
        return {METADATA_KEY: {"check": asdict(self)}}


@dataclass(frozen=True)
class RunContext:
    """Where a notebook ran.

    device: "cpu", "gpu", "xpu" or "sim". cards: how many cards the notebook may use.
    machine: what a person would say of it (processor, cores, memory; model and driver of its cards).
    versions: package name to version.
    """

    device: str
    cards: int
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def to_metadata(self) -> dict[str, Any]:
        """The run_context as JSON values, to be stored in an output's metadata."""
        return {METADATA_KEY: {"run_context": asdict(self)}}


def record_in(metadata: dict[str, Any]) -> Record | None:
    """The record that an output's metadata holds, or None."""
    stored = metadata.get(METADATA_KEY, {}).get("check")
    if stored is None:
        return None
    measurements = tuple(Measurement(**{**each, "values": tuple(each["values"])}) for each in stored.get("measurements", ()))
    return Record(**{**stored, "rows": tuple(Row(**row) for row in stored["rows"]), "measurements": measurements})


def run_context_in(metadata: dict[str, Any]) -> RunContext | None:
    """The run_context that an output's metadata holds, or None."""
    stored = metadata.get(METADATA_KEY, {}).get("run_context")
    return None if stored is None else RunContext(**stored)


def reconcile(planned: Sequence[str], seen: Iterable[Record]) -> tuple[Record, ...]:
    """Hold what was seen against what was planned.

    Returns one record for each planned name, in that order, "missing" where a check never ran; then, as broken, whatever
    was recorded but never planned, since nobody would miss it. Of several records of one name the worst counts.
    """
    by_name: dict[str, Record] = {}
    for record in seen:
        earlier = by_name.get(record.name)
        by_name[record.name] = worse(earlier, record) if earlier else record
    settled = [by_name.pop(name, None) or _missing(name) for name in planned]
    settled += [_unplanned(record) for record in by_name.values()]
    return tuple(settled)


def is_compared(record: Record) -> bool:
    """Whether the check held something against something, whatever came of it."""
    return record.outcome in COMPARED


def is_green(records: Sequence[Record]) -> bool:
    """Green is earned: at least one check compared, and none failed, broken or missing."""
    return any(map(is_compared, records)) and all(record.outcome in _WELL for record in records)


def worst(outcomes: Iterable[str]) -> str:
    """The outcome that speaks for several: broken before failed before missing before fixed, known, passed, skipped."""
    return min(outcomes, key=_WORST_FIRST.index)


def worse(one: Record, other: Record) -> Record:
    """The one of two records that speaks for both; the other when they are equally bad."""
    return other if worst((one.outcome, other.outcome)) == other.outcome else one


def _missing(name: str) -> Record:
    return Record(
        name=name,
        outcome="missing",
        means="planned in the notebook's source, but it never ran",
        reason="the cell was never reached, or a branch went round the check",
    )


def _unplanned(record: Record) -> Record:
    reason = 'it ran without being planned: write its name as a literal in a cell, check.close("...", ...)'
    return replace(record, outcome="broken", reason=reason)
