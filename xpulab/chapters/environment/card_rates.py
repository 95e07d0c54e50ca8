"""Rates of a card beside what its data sheet promises, and whether a clock that measures them waits for the card.

A rate above the promised one means that the clock stopped before the card had finished; one far below it, that something is
wrong with the card, its link or its place in the machine. Bounds are wide: nothing here was run on a GPU or XPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.device import Device
from xpulab.checks.ledger import ledger
from xpulab.checks.table import Table
from xpulab.devices import SIMULATED
from xpulab.messages import N_
from xpulab.records.hardware import Sheet
from xpulab.records.usable import whole_cores

ABOVE = 1.05
"""How far a rate may be above the promised one: clocks are measured with an error, and boost clocks differ."""
LEAST = {"product": 0.2, "memory": 0.3, "pinned": 0.25, "size": 0.85, "limit": 0.0}
"""By kind the least share of the promised value. Not measured on a card: other links, lower clocks and ECC must not be red."""

_PROCESSOR_GFLOPS = 128 * 6.0
"""More than any core computes in float32: operations in a cycle (two units of AVX-512 do 64) times 10^9 cycles a second."""

_SECONDS = 2e-3
"""How long a product takes at the promised rate: a hundred times as long as launching it."""
_COPIED = 1 << 30
"""Bytes of a copy: more than any card caches."""
_COPIES = 20

Timer = Callable[[Callable[[], Any]], float]
"""Returns the seconds of an action, until the device has finished it."""


@dataclass(frozen=True)
class Rate:
    """A measured value and what the data sheet promises, in the same unit. kind: a key of LEAST."""

    case: str
    kind: str
    value: float
    promised: float
    unit: str

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value that the check accepts."""
        return LEAST[self.kind] * self.promised, ABOVE * self.promised


def model_of_card() -> str:
    """The model of the first card as the vendor's tool prints it; "" when there is none. Source: use_device."""
    cards = ledger.run_context.card_facts if ledger.run_context else ()
    return cards[0].model if cards else ""


def why_no_sheet(model: str) -> str:
    """Why there is no data sheet to compare with."""
    if not model:
        return N_("the card has no name to look up in data/hardware.yaml")
    return N_("the card {model} is not in data/hardware.yaml; add its data sheet there", model=model)


def below_the_limit(device: Device, seconds_of: Timer) -> list[Rate]:
    """For the CPU and simulated cards, which have no data sheet: a product beside what no processor exceeds. Else nothing."""
    if device.name not in ("cpu", SIMULATED):
        return []
    limit = _PROCESSOR_GFLOPS * whole_cores() / 1e3
    square = paddle.ones([512, 512])
    rate = 2 * 512**3 / seconds_of(lambda: square @ square) / 1e12
    return [Rate("product, float32", "limit", rate, limit, "TFLOP/s")]


def rates_of(sheet: Sheet, types: Sequence[str], kept: Mapping[str, int], seconds_of: Timer, device: Device) -> list[Rate]:
    """What the sheet promises, measured: the size of the memory, products in each type, copies.

    types: in which the card claims to compute. kept: from kept_bits.bits_of_products; it has float32 where that is TF32.
    """
    rates = []
    size = _memory_gib()
    if sheet.memory_gib and size:
        rates.append(Rate("memory", "size", size, sheet.memory_gib, "GiB"))
    for dtype in types:
        in_tf32 = dtype == "float32" and dtype in kept and "tf32" in sheet.tflops
        name = "tf32" if in_tf32 else dtype
        if peak := sheet.tflops.get(name):
            rates.append(Rate(f"product, {name}", "product", _tflops(dtype, peak, seconds_of), peak, "TFLOP/s"))
    if sheet.memory_gb_per_s:
        block = paddle.ones([_COPIED // 4])
        rate = 2 * _COPIED / seconds_of(block.clone) / 1e9
        rates.append(Rate("copy on the card", "memory", rate, sheet.memory_gb_per_s, "GB/s"))
    if sheet.link_gb_per_s:
        rates += _over_the_link(sheet.link_gb_per_s, seconds_of, device)
    return rates


def compare(rows: Table, rates: Sequence[Rate]) -> None:
    """Add a row for each rate: between its bounds. The control is a rate twice as high as promised."""
    for rate in rates:
        rows.between(f"{rate.case}, {rate.unit}", rate.value, *rate.bounds, control=2 * rate.promised)


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


def _over_the_link(promised: float, seconds_of: Timer, device: Device) -> list[Rate]:
    """Copies between the card and pinned memory of the host, which the card reads without the processor."""
    place = getattr(paddle, {"gpu": "CUDAPinnedPlace", "xpu": "XPUPinnedPlace"}[device.name])()
    on_host = paddle.to_tensor(np.ones(_COPIED // 4, dtype="float32"), place=place)
    on_card = on_host.to(device.place)
    actions = {"host to device, pinned": lambda: on_host.to(device.place), "device to host, pinned": on_card.pin_memory}
    return [Rate(case, "pinned", _COPIED / seconds_of(action) / 1e9, promised, "GB/s") for case, action in actions.items()]


def _tflops(dtype: Any, peak: float, seconds_of: Timer) -> float:
    """The rate of a product of square matrices that takes _SECONDS at the peak."""
    n = 256 * max(1, round((peak * 1e12 * _SECONDS / 2) ** (1 / 3) / 256))
    square = paddle.ones([n, n]).astype(dtype)
    return 2 * n**3 / seconds_of(lambda: square @ square) / 1e12


def _memory_gib() -> float | None:
    cards = ledger.run_context.card_facts if ledger.run_context else ()
    size = cards[0].memory_total_mib if cards else None
    return size / 1024 if size else None
