"""Compare one value with what was expected: pure functions that say what they saw, and never let nothing pass.

A value may be a number, a string, a paddle tensor, a numpy array, or lists, tuples and dicts of these. NaN, infinity and
emptiness never pass, here or in any function below, unless the caller says that the comparison is about NaN and infinity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Finding:
    """What one comparison saw.

    accepted: whether the value is as expected.
    measured: the number that was held against the bound (a largest difference, a largest value), or a sentence.
    expected: the bound in words.
    why: why it was not accepted, else "".
    misfit: not accepted because the value is no candidate at all (another shape or type, empty, not finite), so nothing
        was compared. A control that is a misfit proves nothing about the comparison.
    """

    accepted: bool
    measured: float | str | None
    expected: str
    why: str = ""
    misfit: bool = False


def close(value: Any, expected: Any, atol: float, rtol: float, nonfinite: bool = False) -> Finding:
    """Every element within atol + rtol * |expected|, computed in double precision. Shapes must be the same."""
    wanted = f"within {_bound_in_words(atol, rtol)}"
    got, want = _numbers(value), _numbers(expected)
    if misfit := _misfit(got, want, nonfinite):
        return Finding(False, None, wanted, misfit, misfit=True)
    difference = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    difference = np.where(same, 0.0, difference)
    excess = np.where(same, -1.0, difference - (atol + rtol * np.abs(want)))
    outside = ~(excess <= 0)
    largest = float(np.max(difference))
    if not outside.any():
        return Finding(True, largest, wanted)
    where = np.unravel_index(int(np.argmax(np.nan_to_num(excess, nan=np.inf))), got.shape)
    at = f" at {tuple(map(int, where))}" if where else ""
    why = f"{int(outside.sum())} of {got.size} outside; the worst{at} is {got[where]:.8g}, expected {want[where]:.8g}"
    return Finding(False, largest, wanted, why)


def equal(value: Any, expected: Any, nonfinite: bool = False) -> Finding:
    """The same values in the same places; tensors and arrays may differ in type (3 equals 3.0), not in shape.

    A tensor or array may be held against a list of numbers.
    """
    if hasattr(value, "shape") != hasattr(expected, "shape"):
        value, expected = _array(value), _array(expected)
    return _compare_leaves(value, expected, "equal", lambda got, want: _leaf_equal(got, want, nonfinite))


def bitwise(value: Any, expected: Any, nonfinite: bool = False) -> Finding:
    """The same bytes, type and shape: -0.0 is not 0.0, float32 is not float64."""
    return _compare_leaves(value, expected, "the same bits", lambda got, want: _leaf_bitwise(got, want, nonfinite))


def below(value: Any, bound: float) -> Finding:
    """Every element smaller than the bound."""
    return _within(value, bound, f"< {bound:.6g}", lambda got: got < bound, np.max)


def above(value: Any, bound: float) -> Finding:
    """Every element larger than the bound."""
    return _within(value, bound, f"> {bound:.6g}", lambda got: got > bound, np.min)


def between(value: Any, low: float, high: float) -> Finding:
    """Every element from low to high, both included."""
    if not low < high:
        raise ValueError(f"between needs low < high, got {low} and {high}")
    middle = (low + high) / 2
    return _within(
        value,
        middle,
        f"from {low:.6g} to {high:.6g}",
        lambda got: (low <= got) & (got <= high),
        lambda got: got.flat[int(np.argmax(np.abs(got - middle)))],
    )


def finite(value: Any) -> Finding:
    """Every element a number: no NaN, no infinity."""
    got = _numbers(value)
    if got.size == 0:
        return Finding(False, None, "all finite", "there is nothing in it", misfit=True)
    bad = int((~np.isfinite(got)).sum())
    return Finding(bad == 0, f"{bad} of {got.size} not finite", "all finite", f"{bad} are NaN or infinite" if bad else "")


def true(value: Any) -> Finding:
    """A single truth value that is True. A number, a string or None is not a truth value."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if not isinstance(value, bool | np.bool_) and not (isinstance(value, np.ndarray) and value.dtype == bool):
        return Finding(False, None, "True", f"{value!r} is no truth value", misfit=True)
    if np.size(value) != 1:
        return Finding(False, None, "True", f"{np.size(value)} truth values where one is expected", misfit=True)
    return Finding(bool(value), str(bool(value)), "True", "" if value else "it is False")


def raises(call: Callable[[], Any], kind: type[BaseException], match: str = "") -> Finding:
    """Calling it raises an exception of that kind, whose text the regular expression finds."""
    wanted = f"{kind.__name__}" + (f" matching {match!r}" if match else "")
    try:
        call()
    except kind as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        found = re.search(match, str(error)) is not None
        return Finding(found, said, wanted, "" if found else f"it raised, but said {first_line(error)!r}")
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        return Finding(False, said, wanted, f"it raised something else: {said}", misfit=True)
    return Finding(False, "nothing was raised", wanted, "nothing was raised")


def first_line(error: BaseException) -> str:
    """The line of an exception's text that says the most: Paddle puts a C++ traceback before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"\(?\w*(Error|NotFound|InvalidArgument|Unimplemented|OutOfRange)", line)]
    return (telling or lines or [""])[0][:300]


# ----------------------------------------------------------------------------------------------- leaves of a structure


def _compare_leaves(value: Any, expected: Any, wanted: str, compare: Callable[[Any, Any], Finding]) -> Finding:
    got, want = dict(_leaves(value)), dict(_leaves(expected))
    if not want or not got:
        empty = "what was measured" if want else "what was expected"
        return Finding(False, None, wanted, f"{empty} is empty, and empty equals nothing", misfit=True)
    if got.keys() != want.keys():
        missing, extra = sorted(want.keys() - got.keys()), sorted(got.keys() - want.keys())
        why = "; ".join(
            f"{what}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
            for what, names in (("missing", missing), ("unexpected", extra))
            if names
        )
        named = isinstance(expected, Mapping)
        return Finding(False, f"{len(got)} entries, not {len(want)}", wanted, why, misfit=named)
    findings = {name: compare(got[name], want[name]) for name in want}
    wrong = {name: finding for name, finding in findings.items() if not finding.accepted}
    if not wrong:
        alone = len(want) == 1
        return Finding(True, next(iter(findings.values())).measured if alone else f"{len(want)} of {len(want)}", wanted)
    name, worst = next(iter(wrong.items()))
    at = f"{name}: " if name else ""
    measured = f"{len(want) - len(wrong)} of {len(want)}" if len(want) > 1 else worst.measured
    return Finding(False, measured, wanted, at + worst.why, misfit=all(finding.misfit for finding in wrong.values()))


def _leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """A structure's leaves with their paths, in order: tensors, arrays, numbers, strings, None."""
    if isinstance(value, Mapping):
        return [leaf for key in value for leaf in _leaves(value[key], f"{name}.{key}" if name else str(key))]
    if isinstance(value, list | tuple):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, f"{name}[{index}]")]
    return [(name, value)]


def _leaf_equal(got: Any, want: Any, nonfinite: bool) -> Finding:
    if isinstance(want, str) or isinstance(got, str):
        alike = isinstance(want, str) and isinstance(got, str)
        if alike and not want:
            return Finding(False, repr(got), repr(want), "expected an empty text, and empty equals nothing", misfit=True)
        accepted = alike and got == want
        return Finding(accepted, got if alike else repr(got), repr(want), "" if accepted else f"{got!r}, not {want!r}")
    if got is None or want is None:
        return Finding(False, repr(got), repr(want), "None equals nothing", misfit=True)
    got, want = _array(got), _array(want)
    if misfit := _misfit(got, want, nonfinite):
        return Finding(False, None, "equal", misfit, misfit=True)
    alike = (got == want) | _both_nan(got, want)
    different = int(np.size(alike) - np.count_nonzero(alike))
    if not different:
        return Finding(True, _short(got), _short(want))
    where = np.unravel_index(int(np.argmin(alike)), np.shape(alike))
    why = f"{different} of {got.size} differ; the first: {got[where]!s}, not {want[where]!s}"
    return Finding(False, _short(got) if got.size == 1 else f"{different} of {got.size} differ", _short(want), why)


def _leaf_bitwise(got: Any, want: Any, nonfinite: bool) -> Finding:
    if misfit := _misfit(_array(got), _array(want), nonfinite):
        return Finding(False, None, "the same bits", misfit, misfit=True)
    got, want = _raw(got), _raw(want)
    if got.dtype != want.dtype:
        return Finding(False, None, str(want.dtype), f"type {got.dtype}, not {want.dtype}", misfit=True)
    mine, theirs = (np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, -1) for array in (got, want))
    different = int((mine != theirs).any(axis=1).sum())
    why = f"{different} of {got.size} values differ in their bits" if different else ""
    return Finding(not different, f"{different} of {got.size} differ", "0 differ", why)


# ------------------------------------------------------------------------------------------------------ values as arrays


def _within(value: Any, bound: float, wanted: str, inside: Callable, extreme: Callable) -> Finding:
    if not math.isfinite(bound):
        raise ValueError(f"the bound is {bound}: nothing can be held against it")
    got = _numbers(value)
    if misfit := _unusable(got, "what was measured", nonfinite=False):
        return Finding(False, None, wanted, misfit, misfit=True)
    outside = int((~inside(got)).sum())
    measured = float(extreme(got))
    return Finding(outside == 0, measured, wanted, f"{measured:.6g} is not {wanted}" if outside else "")


def _misfit(got: np.ndarray, want: np.ndarray, nonfinite: bool) -> str:
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    return _unusable(want, "what was expected", nonfinite) or _unusable(got, "what was measured", nonfinite)


def _unusable(array: np.ndarray, what: str, nonfinite: bool) -> str:
    if array.size == 0:
        return f"{what} is empty, and empty equals nothing"
    if not nonfinite and array.dtype.kind in "fc":
        bad = int((~np.isfinite(array)).sum())
        if bad:
            return f"{bad} of {array.size} in {what} are NaN or infinite"
    return ""


def _both_nan(got: np.ndarray, want: np.ndarray) -> Any:
    if got.dtype.kind in "fc" and want.dtype.kind in "fc":
        return np.isnan(got) & np.isnan(want)
    return False


def _numbers(value: Any) -> np.ndarray:
    """The value as an array in double precision (complex where it is complex)."""
    array = _array(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"numbers are expected here, not {array.dtype}")
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _array(value: Any) -> np.ndarray:
    """The value as an array of numbers: a low-precision type that numpy lacks (bfloat16, float8) becomes float32."""
    if isinstance(value, list | tuple):
        return np.asarray([_array(item) for item in value])
    if hasattr(value, "numpy") and hasattr(value, "astype"):
        return value.astype("float32").numpy() if _is_foreign(value) else value.numpy()
    return np.asarray(value)


def _raw(value: Any) -> np.ndarray:
    """The value's own bits as an array: paddle shows bfloat16 as uint16 and float8 as int8, which is what is wanted."""
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _is_foreign(tensor: Any) -> bool:
    return any(name in str(tensor.dtype) for name in ("bfloat16", "float8"))


def _short(array: np.ndarray) -> float | str:
    return float(array) if array.size == 1 and array.dtype.kind in "iufb" else f"{array.size} values"


def _bound_in_words(atol: float, rtol: float) -> str:
    return " + ".join(words for words in (f"{atol:g}" if atol else "", f"{rtol:g} of it" if rtol else "") if words)
