"""Copies through page-locked ("pinned") host memory: exact for every type and layout, and fast. Not run on a GPU or XPU yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.device import Device, synchronize
from xpulab.checks.table import Table
from xpulab.messages import N_

TYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")

COPIED, COPIES = 1 << 28, 5
"""Bytes of a copy whose time is measured, and how often."""


def seconds_of(device: Device, action: Callable[[], Any]) -> float:
    """The seconds of an action, until the device has finished it."""
    synchronize(device)
    start = time.perf_counter()
    action()
    synchronize(device)
    return time.perf_counter() - start


def why_not() -> str:
    """Why this device has no page-locked memory in Paddle, or an empty text."""
    if paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu():
        return ""
    return N_("Paddle for this device has no page-locked memory: pin_memory() raises an error")


def layouts(dtype: Any) -> dict[str, Any]:
    """By name a tensor of this type on the device in use."""
    tensor = (paddle.arange(1, 97).reshape([8, 12]) % 5 + 1).astype(dtype)
    return {"whole": tensor, "transposed": tensor.t(), "every second column": tensor[:, ::2], "0-d": tensor[1, 1]}


def rows_of_type(rows: Table, dtype: str) -> None:
    """Rows: each layout is copied to page-locked memory and back; the pinned copy is written over when it is back."""
    for layout, tensor in layouts(dtype).items():
        expected = tensor.astype("float32").numpy()
        pinned = tensor.pin_memory()
        back = pinned.to(tensor.place, blocking=True)
        rows.equal(f"{layout}, {dtype}, place", "pinned" in str(pinned.place).lower(), True, control=False)
        rows.equal(f"{layout}, {dtype}", back.astype("float32").numpy(), expected, control=np.ones_like(expected) - expected)


def seconds_of_directions(device: Device) -> dict[str, tuple[float, float]]:
    """By direction the median seconds of a copy with page-locked memory, and with ordinary memory."""
    on_card = paddle.ones([COPIED // 4])
    ordinary, pinned, place = on_card.cpu(), on_card.pin_memory(), on_card.place

    def median(action: Callable[[], Any]) -> float:
        return sorted(seconds_of(device, action) for _ in range(COPIES))[COPIES // 2]

    return {
        "to the card": (median(lambda: pinned.to(place, blocking=True)), median(lambda: ordinary.to(place, blocking=True))),
        "to the host": (median(on_card.pin_memory), median(on_card.cpu)),
    }
