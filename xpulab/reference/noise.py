"""How far runs of one computation are apart on a device that does not repeat itself: a kernel may add by atomic operations.

What a check compares to the bit is compared with this on such a device (xpulab.checks.compare.WithinNoise); that it does not
repeat itself is said by `determinism.*`. Sums in another order differ by roundings, and training makes more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RUNS = 4
"""How often a computation is repeated."""

MARGIN = 8
"""How many times as far as RUNS runs another one may be: the largest of a few differences is not the largest of all."""

_ROUNDING = 2.0**-23
"""What a value that happens to repeat itself in all runs may differ, as a share of its largest element."""

_NOTHING = 1e-30
"""The bound of a value that is 0 in all runs."""


def bounds_of(runs: Sequence[Mapping[Any, np.ndarray]]) -> dict[Any, float]:
    """By name of a value the absolute difference that is allowed; {} where all runs have the same numbers, or there are none.

    runs: of each run by name the values, in double precision, with the same shapes in all runs.
    """
    apart = {name: max(_largest(run[name] - value) for run in runs[1:]) for name, value in (runs[0] if runs else {}).items()}
    if not any(apart.values()):
        return {}
    return {name: MARGIN * apart[name] + _ROUNDING * _largest(value) + _NOTHING for name, value in runs[0].items()}


def _largest(value: np.ndarray) -> float:
    return float(np.abs(value).max(initial=0.0))
