"""Dropout: which elements it drops is random, how many are and what becomes of the others is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xpulab.operators.calls import Call

_DEVIATIONS = 5.0
_P, _IS_TEST, _MODE = 2, 3, 4


def with_these_dropped(call: Call, result: np.ndarray) -> Callable[[Sequence[np.ndarray]], tuple[Any, ...]]:
    """What _C_ops.dropout computes when it drops the elements that are zero in this result."""
    share, is_test, mode = _attributes(call)
    factor = 1 / (1 - share) if mode == "upscale_in_train" and share < 1 else 1.0
    if is_test:
        kept, factor = np.ones(result.shape, bool), 1.0 if mode == "upscale_in_train" else 1 - share
    else:
        kept = result != 0
    return lambda arrays: (np.where(kept, arrays[0] * factor, 0.0), None)


def wrong_share(call: Call, given: np.ndarray, result: np.ndarray) -> str:
    """An error message when the share of elements that were kept is not by chance another than it should be; else ""."""
    share, is_test, _ = _attributes(call)
    kept = (result != 0)[given != 0]
    if is_test or not kept.size:
        return ""
    bound = _DEVIATIONS * np.sqrt(share * (1 - share) / kept.size) + 1 / kept.size
    right = abs(kept.mean() - (1 - share)) <= bound
    return "" if right else f"it kept {kept.mean():.3g} of the elements, not {1 - share:.3g}"


def _attributes(call: Call) -> tuple[float, bool, str]:
    """The share that is dropped, whether the model is evaluated, and the mode."""
    share, is_test, mode = (call.arguments[place] for place in (_P, _IS_TEST, _MODE))
    return float(share), bool(is_test), str(mode)
