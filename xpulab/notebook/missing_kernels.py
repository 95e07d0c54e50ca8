"""Compute where the device has a kernel for it, and skip the row, with Paddle's own reason, where it has none."""

from __future__ import annotations

from collections.abc import Callable

import paddle

from xpulab.checks.compare import first_line
from xpulab.checks.table import Table

NO_KERNEL = ("kernel_factory.cc", "is not compiled", "Unimplemented", "NotImplemented", "has no attribute", "is_gpu_place")
"""What Paddle's error messages contain when a device has no kernel for an operator."""


def results_of(rows: Table, case: str, compute: Callable[[], list[paddle.Tensor]]) -> list[paddle.Tensor]:
    """The tensors that `compute` returns; none, and a skipped row, where the device has no kernel. Other errors are raised."""
    try:
        return compute()
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        if not any(text in str(error) for text in NO_KERNEL):
            raise
        rows.skip(case, f"no kernel for it here: {first_line(error)}")
        return []
