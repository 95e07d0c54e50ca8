"""State dicts as values that can be compared to the last bit: as arrays, as one vector, as digests, as text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def arrays(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A copy of each tensor of a state dict as a numpy array."""
    return {name: value.numpy().copy() for name, value in state.items()}


def in_line(state: Mapping[str, Any]) -> np.ndarray:
    """All values of a state dict of arrays as one vector, in the order of their names."""
    return np.concatenate([np.asarray(state[name]).reshape(-1) for name in sorted(state)])


def digests(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """SHA-256 of type, shape and bytes of each tensor or array of a state dict, 32 bytes each; no copy is kept."""
    return {name: _digest(value) for name, value in state.items()}


def exchanged(state: Mapping[str, Any]) -> dict[str, Any]:
    """Each name with the value of the next one, as if a state had been stored under other names."""
    values = list(state.values())
    return dict(zip(state, [*values[1:], *values[:1]], strict=True))


def distinct(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state dict of tensors without those that share the memory of an earlier one, as a head does with its embedding."""
    kept: dict[int, tuple[str, Any]] = {}
    for name, value in state.items():
        kept.setdefault(value.data_ptr(), (name, value))
    return dict(kept.values())


def described(value: Any) -> Any:
    """Type, shape and bits of each tensor in a nested structure; other values as their type and text."""
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [described(item) for item in value]}
    if not hasattr(value, "numpy"):
        return f"{type(value).__name__} {value!r}"
    return f"{value.dtype} {list(value.shape)} {value.numpy().tobytes().hex()}"


def _digest(value: Any) -> np.ndarray:
    array = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
    found = hashlib.sha256(f"{array.dtype} {list(np.shape(value))}".encode())
    found.update(array.reshape(-1).view(np.uint8).data)
    return np.frombuffer(found.digest(), np.uint8)
