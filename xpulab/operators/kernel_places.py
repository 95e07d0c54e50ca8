"""Where the kernels of one step are computed: predicted for a P800, and counted on the device in use.

Read from Paddle's own log of the step (xpulab.operators.kernel_log), so a release that words its log in another way shows no
kernel; a check that counts therefore has `known_fallback` as its control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from xpulab import files
from xpulab.chapters.shared.operator_tester import strides
from xpulab.checks.ledger import ledger
from xpulab.operators import prediction
from xpulab.operators.kernel_log import Launch, logged


def launches_of(step: Callable[[], Any]) -> list[Launch]:
    """Run the step; the kernels that it launched, the most frequent first.

    Views are copies meanwhile, as recipes for XPUs set it, and results get other names: do not log a step of an optimizer that
    is saved afterwards.
    """
    with strides(0), logged() as launches:
        step()
    return launches


def shown(step: Callable[[], Any]) -> list[Launch]:
    """Run the step, print where a P800 would compute its kernels, and return them.

    What is not on the card is printed with what to write instead, then the counts.
    """
    launches = launches_of(step)
    report = prediction.predict(prediction.kernels_here(launches, ledger.device or "cpu"))
    for row in report["kernels"]:
        row["caller"] = row["caller"].rpartition("site-packages/")[2].removeprefix(f"{files.ROOT}/")
    print(prediction.format_places(report))
    print(f"predicted from {report['source']}; not run on a card")
    return launches


def fell_back(launches: Sequence[Launch]) -> int:
    """How many kernels of a step the CPU computed because the device has none."""
    return sum(each.fell_back for each in launches)


def known_fallback() -> list[Launch]:
    """The kernels of an operator that only the CPU has: the loss of a tree of classes, hierarchical sigmoid.

    Source, as of 2025: paddle/phi/kernels/cpu/hsigmoid_loss_kernel.cc alone registers it, Paddle's test of it runs on the CPU
    alone, and no list for XPUs has it. (linalg.eig is none: paddle/phi/kernels/gpu/eig_kernel.cu.)
    """
    x, label, weight = paddle.ones([1, 4]), paddle.zeros([1], "int64"), paddle.ones([1, 4])
    return launches_of(lambda: F.hsigmoid_loss(x, label, 2, weight))
