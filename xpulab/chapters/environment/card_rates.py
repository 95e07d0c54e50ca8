"""Measures the rates of each card, and whether a clock that measures them waits for the card. Not run on a GPU or XPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import paddle

from xpulab.chapters.environment.card_vote import on
from xpulab.chapters.shared.data_sheet import Rate, card_facts
from xpulab.chapters.shared.device import Device
from xpulab.devices import SIMULATED
from xpulab.records.hardware import Sheet
from xpulab.records.usable import whole_cores

_PROCESSOR_GFLOPS = 128 * 6.0
"""More than any core computes in float32: operations in a cycle (two units of AVX-512 do 64) times 10^9 cycles a second."""

_SECONDS = 1e-2
"""How long a measured action takes at least, against milliseconds of launching and waiting: sizes grow until it does."""
_SIDES = tuple(256 << power for power in range(7))
"""Of square matrices: at the last one the fastest card of data/hardware.yaml takes 9 ms."""
_COPIED = tuple(1 << power for power in range(25, 31))
"""Bytes of a copy on a card; the last is more than any card caches."""
_SENT = _COPIED[:4]
"""Bytes of a copy to or from a card."""
_COPIES = 20

Timer = Callable[[Callable[[], Any]], float]
"""Returns the seconds of an action, until the device has finished it."""


def below_the_limit(device: Device, seconds_of: Timer) -> list[Rate]:
    """For the CPU and simulated cards, which have no data sheet: a product beside what no processor exceeds. Else nothing."""
    if device.name not in ("cpu", SIMULATED):
        return []
    limit = _PROCESSOR_GFLOPS * whole_cores() / 1e3
    square = paddle.ones([512, 512])
    rate = 2 * 512**3 / seconds_of(lambda: square @ square) / 1e12
    return [Rate("product, float32", "limit", rate, limit, "TFLOP/s")]


def rates_of(
    sheet: Sheet, types: Sequence[str], kept: Mapping[str, int], cards: Sequence[str], seconds_of: Timer, device: Device
) -> list[Rate]:
    """What each card does: the size of its memory, products in each type of the sheet, copies.

    types: in which the card claims to compute. kept: from kept_bits.bits_of_products; it has float32 where that is TF32.
    cards: as card_vote.cards_of names them. Products and copies on a card are measured also where the sheet has no number.
    """
    rates = []
    if sheet.memory_gib:
        sizes = {card.index: card.memory_total_mib for card in card_facts()}
        rates += [Rate(f"memory of card {n}", "size", mib / 1024, sheet.memory_gib, "GiB") for n, mib in sizes.items() if mib]
    promised: Mapping[str, float | None] = sheet.tflops or dict.fromkeys(("tf32", "float32", "float16", "bfloat16"))
    for card in cards:
        with on(card):
            for dtype in types:
                name = "tf32" if dtype == "float32" and dtype in kept and "tf32" in promised else dtype
                if name in promised:
                    value = _tflops(dtype, seconds_of)
                    rates.append(Rate(f"{card}, product, {name}", "product", value, promised[name], "TFLOP/s"))
            value = 2 * _gb_per_s(lambda block: block.clone, _COPIED, seconds_of)
            rates.append(Rate(f"{card}, copy on the card", "memory", value, sheet.memory_gb_per_s, "GB/s"))
            if sheet.link_gb_per_s and device.name != SIMULATED:  # which has no pinned memory
                rates += _over_the_link(card, sheet.link_gb_per_s, seconds_of)
    return [replace(rate, least=sheet.least) for rate in rates]


def left_after(wait: Callable[[], Any], block: paddle.Tensor) -> float:
    """The share of the time of some copies that passes only after wait() has returned; near 0 when it waits for the device.

    block: what is copied on the device. The median of five runs counts: other programs disturb some of them.
    """
    target: Any = paddle.zeros_like(block)
    number = paddle.zeros([1])
    shares = []
    for _ in range(5):
        number.numpy()
        started = time.perf_counter()
        for _ in range(_COPIES):
            target.copy_(block, False)  # returns before the copy is done
        wait()
        waited = time.perf_counter()
        number.numpy()  # a copy, which comes after all others
        finished = time.perf_counter()
        shares.append((finished - waited) / (finished - started))
    return statistics.median(shares)


def _over_the_link(card: str, promised: float, seconds_of: Timer) -> Iterator[Rate]:
    """Copies between the card and pinned memory of the host, which the card reads without the processor."""
    to_card = _gb_per_s(lambda block: partial(block.pin_memory().to, card), _SENT, seconds_of)
    yield Rate(f"{card}, host to device, pinned", "pinned", to_card, promised, "GB/s")
    to_host = _gb_per_s(lambda block: block.pin_memory, _SENT, seconds_of)
    yield Rate(f"{card}, device to host, pinned", "pinned", to_host, promised, "GB/s")


def _gb_per_s(copy_of: Callable[[Any], Callable[[], Any]], sizes: Sequence[int], seconds_of: Timer) -> float:
    """The rate of copies of a block on the card in use, which copy_of makes an action."""
    return _rate(lambda size: copy_of(paddle.ones([size // 4])), sizes, float, seconds_of) / 1e9


def _tflops(dtype: Any, seconds_of: Timer) -> float:
    """The rate of products of square matrices."""

    def product(n: int) -> Callable[[], Any]:
        square = paddle.ones([n, n]).astype(dtype)
        return lambda: square @ square

    return _rate(product, _SIDES, lambda n: 2.0 * n**3, seconds_of) / 1e12


def _rate(
    action_of: Callable[[int], Callable[[], Any]], sizes: Sequence[int], work_of: Callable[[int], float], seconds_of: Timer
) -> float:
    """The work of a second, at the first size of which an action takes _SECONDS, or the last."""
    for size in sizes:
        seconds = seconds_of(action_of(size))
        if seconds >= _SECONDS:
            break
    return work_of(size) / seconds
