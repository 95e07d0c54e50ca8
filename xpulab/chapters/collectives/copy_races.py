"""A copy between host and card, on the card, or from page-locked memory, at once followed by a write to its source.

The copy must have the values from before the write, in every round. Page-locked ("pinned") memory exists on a GPU and an
XPU only; there these functions have not run yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import paddle
from paddle.incubate.tensor import manipulation

ELEMENTS = 1 << 18
"""Of each copy: 1 MB of float32, so that a copy takes long enough to be overtaken."""

WRITTEN = -1.0
"""What is written to the source at once after the copy was started."""


COPIES: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[Any], paddle.Tensor]]] = {
    "array to card": (lambda values: values, paddle.to_tensor),
    "host tensor to card": (
        lambda values: paddle.to_tensor(values, place=paddle.CPUPlace()),
        lambda source: source.to(_card(), blocking=False),
    ),
    "card to host": (paddle.to_tensor, lambda source: source.to("cpu", blocking=False)),
    "on the card": (paddle.to_tensor, lambda source: source.clone()),
}
"""By kind what makes the source of its values, and what starts the copy."""

PINNED: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[Any], paddle.Tensor]]] = {
    "pinned to card": (
        lambda values: paddle.to_tensor(values).pin_memory(),
        lambda source: source.to(_card(), blocking=True),
    ),
    "card to pinned": (paddle.to_tensor, lambda source: source.pin_memory()),
}
"""The same of copies from and to page-locked memory; the first has ended when it returns."""

_loader = cache(manipulation.create_async_load)


def _offloaded_and_freed(source: Any) -> Any:
    """Offload a copy that is freed at once: its memory may be taken while it is read."""
    kept, task = manipulation.async_offload(source.clone(), _loader())
    paddle.full([ELEMENTS], WRITTEN)
    task.cpu_wait()
    return kept


def _read_when_reloaded(source: Any) -> Any:
    """Reload, and read the result by an operator that only the card lets wait."""
    back, task = manipulation.async_reload(source, _loader())
    task.cuda_wait()
    read = back * 1
    paddle.device.synchronize()
    return read


ASYNCHRONOUS: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[Any], paddle.Tensor]]] = {
    "offloaded, then freed": (paddle.to_tensor, _offloaded_and_freed),
    "reloaded, then read": (lambda values: paddle.to_tensor(values).pin_memory(), _read_when_reloaded),
}
"""The same of Paddle's loader, on a GPU: on an XPU its async_offload waits, as its source shows. They have not run yet."""


def wrong_rounds(rounds: int) -> dict[str, list[int]]:
    """On a rank: for each kind of copy the numbers of the rounds whose copy has other values than its source had."""
    kinds = COPIES | (PINNED if paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() else {})
    kinds |= ASYNCHRONOUS if paddle.is_compiled_with_cuda() else {}
    found: dict[str, list[int]] = {}
    for kind in kinds:
        values = [np.full(ELEMENTS, float(number), "float32") for number in range(rounds)]
        found[kind] = [number for number, each in enumerate(values) if (_copied(*kinds[kind], each.copy()) != each).any()]
    return found


def _copied(new_source: Callable[[np.ndarray], Any], copy: Callable[[Any], paddle.Tensor], values: np.ndarray) -> np.ndarray:
    source = new_source(values)
    copied = copy(source)
    if isinstance(source, np.ndarray):
        source.fill(WRITTEN)
    else:
        source.fill_(WRITTEN)
    paddle.device.synchronize()
    return copied.numpy()


def _card() -> Any:
    return paddle.framework._current_expected_place()
