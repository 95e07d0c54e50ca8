"""Trainings on ranks beside those of one process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from xpulab.checks.compared import Compared

START = "start "
"""What the name of a weight begins with where its value is that before the first step."""

LOSSES = "losses"


def as_one_process(found: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray], coarse: float) -> Compared:
    """A training on ranks beside that of one process: the way of each weight, in units of its longest, and the losses.

    found: the weights at the end, and LOSSES where they are compared. exact: the same, and with START those before training.
    coarse: what products round on this device, 0 where they keep all bits. The control is nine tenths of each.
    """
    got, right, bound = {}, {}, {}
    for name in exact:
        if name.startswith(START):
            continue
        start, unit = exact.get(START + name, np.zeros(1)), 1.0
        if name != LOSSES:
            unit = float(np.abs(exact[name] - start).max()) or 1.0
        got[name], right[name] = ((each[name] - start) / unit for each in (found, exact))
        # a way is at most 1; a loss of squared errors may be thousands, and float32 rounds it by 6e-8 of itself in each sum
        bound[name] = 1e-4 + 8 * coarse + (1e-6 * np.abs(right[name]) if name == LOSSES else 0.0)
    return Compared(got, right, bound, {name: 0.9 * value for name, value in right.items()})
