"""State dicts as values that can be compared to the last bit: as arrays, as one vector, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def arrays(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A copy of each tensor of a state dict as a numpy array."""
    return {name: value.numpy().copy() for name, value in state.items()}


def in_line(state: Mapping[str, Any]) -> np.ndarray:
    """All values of a state dict of arrays as one vector, in the order of their names."""
    return np.concatenate([np.asarray(state[name]).reshape(-1) for name in sorted(state)])


def described(value: Any) -> Any:
    """Type, shape and bits of each tensor in a nested structure; other values as their type and text."""
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [described(item) for item in value]}
    if not hasattr(value, "numpy"):
        return f"{type(value).__name__} {value!r}"
    return f"{value.dtype} {list(value.shape)} {value.numpy().tobytes().hex()}"
