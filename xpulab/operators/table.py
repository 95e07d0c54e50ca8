"""From recordings to a table: each distinct operator in each type, and what came of it, by operator and type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from xpulab.messages import N_
from xpulab.operators.calls import FLOATS, Call, Recording, format_call
from xpulab.operators.reference import of_type
from xpulab.operators.replay import Result, replay


def distinct(recordings: Mapping[str, Recording]) -> list[Call]:
    """Each operator once, in the order of its first call; counts are summed."""
    found: dict[Any, Call] = {}
    for recording in recordings.values():
        for call in recording.calls:
            key = (call.owner, call.name, repr(call.arguments), repr(call.named), call.amp)
            found[key] = replace(found[key], count=found[key].count + call.count) if key in found else call
    return list(found.values())


def counts(recordings: Mapping[str, Recording]) -> dict[str, dict[str, int]]:
    """By name of the recording how often each operator was called."""
    found: dict[str, dict[str, int]] = {}
    for name, recording in recordings.items():
        found[name] = {}
        for call in recording.calls:
            found[name][call.operator] = found[name].get(call.operator, 0) + call.count
    return found


def cases(calls: Iterable[Call], dtypes: Iterable[str]) -> Iterator[tuple[str, Call]]:
    """Each operator with real numbers in each of these types, and each other one once, as of the first type."""
    dtypes, calls = list(dtypes), list(calls)
    for dtype in dtypes:
        for call in calls:
            changed = of_type(call, dtype)
            if dtype == dtypes[0] or repr(changed) != repr(call):
                yield dtype, changed


def results(calls: Iterable[Call], dtypes: Iterable[str], seed: int, device: str) -> dict[tuple[str, str], list[Result]]:
    """By operator and type what the replay of each call found."""
    found: dict[tuple[str, str], list[Result]] = {}
    for number, (dtype, call) in enumerate(cases(calls, dtypes)):
        found.setdefault((call.operator, dtype), []).append(replay(call, seed + number, device))
    return found


@dataclass(frozen=True)
class Row:
    """A comparison of all calls of an operator in a type.

    measured: the largest error / tolerance, or the error message of an operator that raised; None when nothing was compared.
    control: the smallest of the controls. reason: why nothing was compared.
    """

    case: str
    measured: float | str | None
    control: float | None
    reason: str = ""


def values(found: Mapping[tuple[str, str], list[Result]]) -> Iterator[Row]:
    """A row for each operator and type: its results."""
    for (operator, dtype), each in found.items():
        yield _row(f"{operator}, {dtype}", each, "value")


def gradients(found: Mapping[tuple[str, str], list[Result]]) -> Iterator[Row]:
    """A row for each operator and type that backward passes through in the step."""
    for (operator, dtype), each in found.items():
        backward = [result for result in each if result.gradient is not None or result.error.startswith("backward")]
        if backward and dtype in FLOATS:
            yield _row(f"{operator}, {dtype}", backward, "gradient")


def _row(case: str, each: list[Result], what: str) -> Row:
    errors = [
        f"{format_call(result.call)}: {result.error}"
        for result in each
        if result.error and result.error.startswith("backward") == (what == "gradient")
    ]
    if errors:
        return Row(case, errors[0], None)
    pairs = [(getattr(result, what), getattr(result, f"{what}_control")) for result in each]
    compared = [(number, control) for number, control in pairs if number is not None]
    if not compared:
        return Row(case, None, None, next((result.reason for result in each if result.reason), N_("it has no results")))
    return Row(case, max(number for number, _ in compared), min(control for _, control in compared))
