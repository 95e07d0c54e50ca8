"""What the replay found: by operator and type for the table of a chapter, call by call for the report of `xpulab shapes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from xpulab.checks.compare import format_error
from xpulab.messages import N_
from xpulab.operators.calls import FLOATS, Call, Recording, format_call
from xpulab.operators.reference import of_type
from xpulab.operators.replay import RANDOM, Result, replay


def findings(recording: Recording, device: str) -> dict[str, Any]:
    """Replay each operator of a recording on the device in use; the report of `xpulab shapes`, without script and step."""
    results = [_replayed(call, seed, device) for seed, call in enumerate(recording)]
    return {
        "device": device,
        "paddle": paddle.__version__,
        "operators": [_described(result) for result in results],
        "outcomes": dict(Counter(result.outcome for result in results)),
        "without_labels": [format_call(call) for call in recording if has_no_label(call)],
    }


def has_no_label(call: Call) -> bool:
    """Whether this is a loss of which every label is to be ignored, so that it is a mean of nothing."""
    labels = [spec.values for spec in call.tensors()[1:2] if spec.values is not None and spec.values.dtype.kind == "i"]
    ignored = [value for value in (*call.arguments, *dict(call.named).values()) if type(value) is int and value < -1]
    return "cross_entropy" in call.operator and any(each.size > 0 and np.isin(each, ignored).all() for each in labels)


def _replayed(call: Call, seed: int, device: str) -> Result:
    """As replay(); an operator that the comparison does not know how to treat is listed with the reason."""
    try:
        return replay(call, seed, device)
    except Exception as error:
        return Result(call, reason=f"it cannot be compared: {format_error(error)}")


def _described(result: Result) -> dict[str, Any]:
    call = result.call
    own = {"operator": call.operator, "shown": format_call(call), "called": call.count, "caller": call.caller}
    named = ("outcome", "value", "gradient", "reference", "falls_back", "error", "reason")
    forward, backward = call.work if call.operator not in RANDOM else (0.0, 0.0)
    compared = forward * (result.value is not None) + backward * (result.gradient is not None)
    shares = {
        "calls": 0 if call.operator in RANDOM else call.count * (call.program.operators if call.program else 1),
        "work": call.count * (forward + backward),
        "compared_work": call.count * (forward + backward if result.error else compared),
        "is_program": call.program is not None,
    }
    return own | shares | {name: getattr(result, name) for name in named}


def distinct(recordings: Mapping[str, Recording]) -> list[Call]:
    """Each operator once, in the order of its first call; counts are summed."""
    found: dict[Any, Call] = {}
    for recording in recordings.values():
        for call in recording:
            key = (call.owner, call.name, repr(call.arguments), repr(call.named), call.amp)
            found[key] = replace(found[key], count=found[key].count + call.count) if key in found else call
    return list(found.values())


def counts(recordings: Mapping[str, Recording]) -> dict[str, Counter[str]]:
    """By name of the recording how often each operator was called."""
    found = {name: Counter[str]() for name in recordings}
    for name, recording in recordings.items():
        for call in recording:
            found[name][call.operator] += call.count
    return found


def results(calls: Iterable[Call], dtypes: Iterable[str], seed: int, device: str) -> dict[tuple[str, str], list[Result]]:
    """By operator and type what the replay of each call found; an operator without real numbers once, as of the first type."""
    dtypes, calls = list(dtypes), list(calls)
    cases = [(dtype, of_type(call, dtype), call) for dtype in dtypes for call in calls]
    cases = [each for each in cases if each[0] == dtypes[0] or repr(each[1]) != repr(each[2])]
    found: dict[tuple[str, str], list[Result]] = {}
    for number, (dtype, call, _) in enumerate(cases):
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
