"""What the replay of a recording found, as plain data for a report."""

from __future__ import annotations

from collections import Counter
from typing import Any

import paddle

from xpulab.operators.calls import Call, Recording, format_call
from xpulab.operators.replay import Result, first_line, replay


def findings(recording: Recording, device: str, place: str) -> dict[str, Any]:
    """Replay each distinct operator on the device; returns the report of `xpulab shapes`, without script and step.

    device: "cpu", "gpu", "xpu" or "sim". place: the same as Paddle names it.
    """
    paddle.set_device(place)
    results = [_replayed(call, seed, device) for seed, call in enumerate(recording.calls)]
    return {
        "device": device,
        "recorded_on": recording.device,
        "paddle": paddle.__version__,
        "operators": [_row(result) for result in results],
        "not_recorded": recording.not_recorded,
        "outcomes": dict(Counter(result.outcome for result in results)),
        "fallbacks": sum(result.falls_back for result in results),
    }


def _replayed(call: Call, seed: int, device: str) -> Result:
    """As replay(); an operator that the comparison does not know how to treat is listed with the reason."""
    try:
        return replay(call, seed, device)
    except Exception as error:
        return Result(call, reason=f"it cannot be compared: {type(error).__name__}: {first_line(error)}")


def _row(result: Result) -> dict[str, Any]:
    call = result.call
    return {
        "operator": call.operator,
        "shown": format_call(call),
        "shapes": [list(spec.shape) for spec in call.tensors()],
        "types": [spec.dtype for spec in call.tensors()],
        "attributes": _attributes(call),
        "called": call.count,
        "caller": call.caller,
        "outcome": result.outcome,
        "value": result.value,
        "gradient": result.gradient,
        "reference": result.reference,
        "falls_back": result.falls_back,
        "error": result.error,
        "reason": result.reason,
    }


def _attributes(call: Call) -> list[str]:
    """The arguments that hold no tensor, as text."""
    given = [*((str(place), value) for place, value in enumerate(call.arguments)), *call.named]
    return [f"{name}={value!r}" for name, value in given if value is not None and "TensorSpec" not in repr(value)]
