"""The digest of a measured value: a short text that another run has only when it measured the same to the last bit."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from xpulab.checks.compare import leaves

BYTES = 8
"""Of a digest; two different values have the same one with a probability of 2^-64."""


def digest_of(value: Any) -> str | None:
    """The digest of a value, 16 hexadecimal digits; None for what has no bits to compare (a function, an object).

    value: a number, a string, bytes, a paddle tensor, a numpy array, or lists, tuples, sets and dicts of these. Types, shapes,
    keys and the order of lists count; the order of dicts and sets does not.
    """
    state = hashlib.blake2b(digest_size=BYTES)
    for path, leaf in sorted(leaves(value), key=lambda found: repr(found[0])):
        if (content := _bytes_of(leaf)) is None:
            return None
        state.update(f"{path!r}: ".encode("utf-8", "backslashreplace") + content)
    return state.hexdigest()


def _bytes_of(leaf: Any) -> bytes | None:
    """Type, shape and bits of a leaf; None where it has no bits."""
    if leaf is None or isinstance(leaf, str | bytes | bool | int | float | complex | list | tuple | dict | set | frozenset):
        return f"{type(leaf).__name__} {leaf!r};".encode("utf-8", "backslashreplace")
    if hasattr(leaf, "numpy"):
        array = leaf.numpy()
        return f"{leaf.dtype} {array.shape};".encode() + array.tobytes()
    if isinstance(leaf, np.ndarray | np.generic):
        return f"{leaf.dtype} {leaf.shape};".encode() + leaf.tobytes()
    return None
