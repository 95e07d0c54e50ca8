"""Functions, arguments and return values as bytes between a notebook and its ranks; what a cell defines goes by value."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cloudpickle

from xpulab.errors import InputError

REMEDY = "Return numpy arrays, numbers or text"


def dumps(value: Any) -> bytes:
    """The value as bytes, for pickle.loads in another process. Raises whatever an object's own pickling raises."""
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


def dumps_call(function: Callable[..., Any], arguments: tuple) -> bytes:
    """A function and its arguments. Raises InputError that names what in them cannot be serialized."""
    if not callable(function):
        raise InputError(f"{function!r} is no function: give the function itself, and its arguments after the number of ranks")
    try:
        return dumps((function, arguments))
    except Exception as error:
        raise InputError(f"{_not_serializable(function, arguments)} cannot be sent to the ranks: {error}") from error


def loads_result(rank: int, value: bytes) -> Any:
    """What a rank returned. Raises InputError when it cannot be deserialized here."""
    try:
        return pickle.loads(value)
    except Exception as error:
        raise InputError(
            f"what rank {rank} returned cannot be read in the notebook: {type(error).__name__}: {error}. {REMEDY}"
        ) from error


class _Pickler(cloudpickle.Pickler):
    """cloudpickle knows modules by their exact type; paddle.device is one of a type of its own."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType and sys.modules.get(obj.__name__) is obj:
            return importlib.import_module, (obj.__name__,)
        return super().reducer_override(obj)


def _not_serializable(function: Callable[..., Any], arguments: tuple) -> str:
    """Which part of the call cannot be serialized, and what to do instead."""
    name = getattr(function, "__name__", repr(function))
    used = getattr(function, "__globals__", {})
    parts = {f"argument {number} of {name}()": value for number, value in enumerate(arguments, start=1)}
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    parts |= {f"{each!r} of the notebook, which {name}() uses": used[each] for each in names if each in used}
    for part, value in parts.items():
        try:
            dumps(value)
        except Exception:
            return f"{part}, a {type(value).__name__}: make it inside the function; as it is it"
    return f"the function {name}()"
