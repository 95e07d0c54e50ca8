"""A copy between host and card, on the card, or from page-locked memory, at once followed by a write to its source.

The copy must have the values from before the write, in every round. Page-locked ("pinned") memory exists on a GPU and an
XPU only; there these functions have not run yet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle

ELEMENTS = 1 << 18
"""Of each copy: 1 MB of float32, so that a copy takes long enough to be overtaken."""

WRITTEN = -1.0
"""What is written to the source at once after the copy was started."""


def wrong_rounds(rounds: int) -> dict[str, list[int]]:
    """On a rank: for each kind of copy the numbers of the rounds whose copy has other values than its source had."""
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "array to card": array_to_card,
        "host tensor to card": host_to_card,
        "card to host": card_to_host,
        "on the card": on_the_card,
    }
    if paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu():
        kinds |= {"pinned to card": pinned_to_card, "card to pinned": card_to_pinned}
    found: dict[str, list[int]] = {}
    for name, copy in kinds.items():
        values = [np.full(ELEMENTS, float(number), "float32") for number in range(rounds)]
        found[name] = [number for number, each in enumerate(values) if (copy(each.copy()) != each).any()]
    return found


def array_to_card(values: np.ndarray) -> np.ndarray:
    """A numpy array is copied to the card, and overwritten."""
    tensor = paddle.to_tensor(values)
    values.fill(WRITTEN)
    return tensor.numpy()


def host_to_card(values: np.ndarray) -> np.ndarray:
    """A tensor on the CPU is copied to the card without waiting, and overwritten."""
    source = paddle.to_tensor(values, place=paddle.CPUPlace())
    copied = source.to(paddle.framework._current_expected_place(), blocking=False)
    source.fill_(WRITTEN)
    return copied.numpy()


def card_to_host(values: np.ndarray) -> np.ndarray:
    """A tensor on the card is copied to the host without waiting, and overwritten on the card."""
    source = paddle.to_tensor(values)
    copied = source.to("cpu", blocking=False)
    source.fill_(WRITTEN)
    paddle.device.synchronize()
    return copied.numpy()


def on_the_card(values: np.ndarray) -> np.ndarray:
    """A tensor is copied on the card, and overwritten."""
    source = paddle.to_tensor(values)
    copied = source.clone()
    source.fill_(WRITTEN)
    return copied.numpy()


def pinned_to_card(values: np.ndarray) -> np.ndarray:
    """A tensor in page-locked memory is copied to the card, and overwritten when the copy has returned."""
    source = paddle.to_tensor(values).pin_memory()
    copied = source.to(paddle.framework._current_expected_place(), blocking=True)
    source.fill_(WRITTEN)
    return copied.numpy()


def card_to_pinned(values: np.ndarray) -> np.ndarray:
    """A tensor on the card is copied to page-locked memory, and overwritten on the card; then the host waits."""
    source = paddle.to_tensor(values)
    copied = source.pin_memory()
    source.fill_(WRITTEN)
    paddle.device.synchronize()
    return copied.numpy()
