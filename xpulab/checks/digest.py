"""The digest of a measured value: a short text that another run has only when it measured the same to the last bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

BYTES = 8
"""Of a digest; two different values have the same one with a probability of 2^-64."""


def digest_of(value: Any) -> str | None:
    """The digest of a value, 16 hexadecimal digits; None for what has no bits to compare (a function, an object).

    value: a number, a string, bytes, a paddle tensor, a numpy array, or lists, tuples, sets and dicts of these. Types, shapes,
    keys and the order of lists count; the order of dicts and sets does not.
    """
    state = hashlib.blake2b(digest_size=BYTES)
    for part in _parts(value):
        if part is None:
            return None
        state.update(part)
    return state.hexdigest()


def _parts(value: Any) -> Iterator[bytes | memoryview | None]:
    """The bytes of a value with a head for each container and leaf; None where a leaf has no bits."""
    if isinstance(value, Mapping):
        yield from _unordered("dict", [(repr(key), value[key]) for key in value])
    elif isinstance(value, list | tuple):
        yield f"list {len(value)};".encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Set):
        yield from _unordered("set", [(repr(item), None) for item in value])
    elif value is None or isinstance(value, str | bytes | bool | int | float | complex):
        yield f"{type(value).__name__} {value!r};".encode("utf-8", "backslashreplace")
    elif hasattr(value, "numpy"):
        yield f"{value.dtype} ".encode()
        yield from _array(value.numpy())
    elif isinstance(value, np.ndarray | np.generic):
        yield from _array(np.asarray(value))
    else:
        yield None


def _unordered(kind: str, items: list[tuple[str, Any]]) -> Iterator[bytes | memoryview | None]:
    """A container whose order does not count: its items, in the order of their keys' texts."""
    yield f"{kind} {len(items)};".encode()
    for key, item in sorted(items, key=lambda pair: pair[0]):
        yield f"{key}:".encode("utf-8", "backslashreplace")
        yield from _parts(item)


def _array(array: np.ndarray) -> Iterator[bytes | memoryview | None]:
    yield f"{array.dtype} {array.shape};".encode()
    if array.dtype.hasobject:
        yield from _parts(array.tolist())
    else:
        yield array.tobytes()
