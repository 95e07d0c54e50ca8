"""How far runs of one computation are apart on a device that does not repeat itself: a kernel may add by atomic operations.

That it does not repeat itself is said by `determinism.*`. What other checks compare to the bit has this bound there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RUNS, MARGIN = 4, 8
"""How often a computation is repeated, and how many times as far as these runs another one may be: they are few."""

_ROUNDING, _NOTHING = 2.0**-23, 1e-30
"""What a value may differ that is the same in all runs by chance, as a share of its largest element; and where all are 0."""


def bounds_of(runs: Sequence[Mapping[Any, np.ndarray]]) -> dict[Any, float]:
    """By name of a value the absolute difference that is allowed; {} where all runs have the same numbers, or there are none.

    runs: of each run by name the values, in double precision, with the same shapes in all runs.
    """
    first = runs[0] if runs else {}
    apart = {name: max(_largest(run[name] - value) for run in runs[1:]) for name, value in first.items()}
    widened = {name: MARGIN * apart[name] + _ROUNDING * _largest(value) + _NOTHING for name, value in first.items()}
    return widened if any(apart.values()) else {}


def _largest(value: np.ndarray) -> float:
    return float(np.abs(value).max(initial=0.0))
