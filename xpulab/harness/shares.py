"""Which cards a notebook may use: all of them, alone, or one of its own while others run on the other cards.

On the CPU, on simulated cards and with a single card notebooks run beside each other on the same device. In a rehearsal they
have the cards that they would have, and all run beside each other: what a simulated card computes disturbs no other process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

from xpulab.devices import SIMULATED, judged_as
from xpulab.doctor.meant import EXPECT
from xpulab.harness.plan import Plan

VISIBLE = {"gpu": "CUDA_VISIBLE_DEVICES", "xpu": "XPU_VISIBLE_DEVICES"}
"""The variable by which a process sees only some cards, by device."""


class Cards:
    """The cards of a run.

    waves: the notebooks that run in turn, one after another or side by side: which, the longest first, and how many at a time.
    """

    def __init__(self, device: str, cards: int, plans: Sequence[Plan], jobs: int) -> None:
        """device, cards: as in RunOptions. jobs: how many notebooks at a time at most."""
        self._device, self._cards = device, cards
        self._free: SimpleQueue[int] = SimpleQueue()
        longest_first = sorted(plans, key=lambda plan: plan.expected_seconds, reverse=True)
        self.waves: list[tuple[list[Plan], int]] = [(longest_first, jobs)]
        self._are_shared = judged_as(device) in VISIBLE and cards > 1
        for number in range(cards):
            self._free.put(number)
        if self._are_shared and device != SIMULATED:
            alone = [plan for plan in longest_first if plan.chapter.most_cards > 1]
            self.waves = [(alone, 1), ([plan for plan in longest_first if plan not in alone], min(jobs, cards))]

    @contextmanager
    def share(self, plan: Plan) -> Iterator[tuple[int, Mapping[str, str]]]:
        """How many cards a notebook of a wave may use while the block runs, and its variables; one of its own is waited for."""
        if not self._are_shared or plan.chapter.most_cards > 1:
            yield self._cards, {}
            return
        number = self._free.get()
        try:
            yield 1, self._only(number)
        finally:
            self._free.put(number)

    def _only(self, number: int) -> dict[str, str]:
        """The variables with which a process sees one of the cards that this process sees, and expects no other."""
        expect = {EXPECT: "1"} if os.environ.get(EXPECT) else {}
        name = VISIBLE[judged_as(self._device)]
        visible = [each for each in os.environ.get(name, "").split(",") if each]
        return {**expect, name: visible[number] if number < len(visible) else str(number)}
