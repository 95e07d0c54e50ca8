"""Compare one value with what was expected: pure functions that say what they saw, and never let nothing pass.

A value may be a number, a string, a paddle tensor, a numpy array, or lists, tuples, sets and dicts of these. NaN, infinity
and emptiness never pass, here or in any function below, unless the caller says that the comparison is about NaN and infinity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Set, Sized
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
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", over="ignore"):  # infinity minus infinity, where the check is about them
        difference = np.where(same, 0.0, np.abs(got - want))
        excess = np.where(same, -1.0, difference - (atol + rtol * np.abs(want)))
    outside = ~(excess <= 0)
    largest = _storable(np.max(difference))
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
    if hasattr(value, "shape") or hasattr(expected, "shape"):
        arrays = _array(value), _array(expected)
        of_numbers = not any(array.dtype.kind in "OSU" for array in arrays)
        value, expected = arrays if of_numbers else (_listed(value), _listed(expected))
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
    if not callable(call):
        raise TypeError(f"a function to call is expected, not {type(call).__name__}: write lambda: ... before it")
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
    try:
        text = str(error)
    except Exception:
        return "an error that cannot say what it is"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"\(?\w*(Error|NotFound|InvalidArgument|Unimplemented|OutOfRange)", line)]
    return (telling or lines or [""])[0][:300]


# ----------------------------------------------------------------------------------------------- leaves of a structure


Path = tuple[tuple[str, Any], ...]
"""Where a leaf stands: for each container from the outside in, its kind ("dict", "list", "set") and the key in it."""


def _compare_leaves(value: Any, expected: Any, wanted: str, compare: Callable[[Any, Any], Finding]) -> Finding:
    for what, side in (("what was expected", expected), ("what was measured", value)):
        if _is_nothing(side):
            return Finding(False, None, wanted, f"{what} is {_nothing_in_words(side)}", misfit=True)
    got, want = dict(_leaves(value)), dict(_leaves(expected))
    if got.keys() != want.keys():
        missing, extra = (sorted(map(_name, paths)) for paths in (want.keys() - got.keys(), got.keys() - want.keys()))
        why = "; ".join(
            f"{what}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
            for what, names in (("missing", missing), ("unexpected", extra))
            if names
        )
        candidate = _kind(got) == _kind(want) != "dict" and not all(map(_is_nothing, got.values()))
        return Finding(False, f"{len(got)} entries, not {len(want)}", wanted, why, misfit=not candidate)
    findings = {path: compare(got[path], want[path]) for path in want}
    wrong = {path: finding for path, finding in findings.items() if not finding.accepted}
    if not wrong:
        alone = len(want) == 1
        return Finding(True, next(iter(findings.values())).measured if alone else f"{len(want)} of {len(want)}", wanted)
    path, worst = next(iter(wrong.items()))
    at = f"{_name(path)}: " if path else ""
    measured = f"{len(want) - len(wrong)} of {len(want)}" if len(want) > 1 else worst.measured
    return Finding(False, measured, wanted, at + worst.why, misfit=all(finding.misfit for finding in wrong.values()))


def _leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """A structure's leaves with their paths, in order: tensors, arrays, numbers, strings, and whatever is empty."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        value = _listed(value)
    if _is_nothing(value):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [leaf for key in value for leaf in _leaves(value[key], (*path, ("dict", key)))]
    if isinstance(value, list | tuple):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, (*path, ("list", index)))]
    if isinstance(value, Set):
        return [leaf for item in value for leaf in _leaves(item, (*path, ("set", item)))]
    return [(path, value)]


def _name(path: Path) -> str:
    return "".join(f".{key}" if kind == "dict" else f"[{key}]" for kind, key in path).removeprefix(".")


def _kind(leaves: dict[Path, Any]) -> str:
    path = next(iter(leaves))
    return path[0][0] if path else "leaf"


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _is_nothing(value: Any) -> bool:
    """None, or empty; arrays and tensors are asked elsewhere."""
    if value is None:
        return True
    return isinstance(value, Sized) and (isinstance(value, str) or not hasattr(value, "shape")) and len(value) == 0


def _nothing_in_words(value: Any) -> str:
    return "None, and None equals nothing" if value is None else "empty, and empty equals nothing"


def _leaf_equal(got: Any, want: Any, nonfinite: bool) -> Finding:
    if unlike := _not_comparable(got, want):
        return unlike
    if isinstance(want, str | bytes):
        return Finding(got == want, repr(got) if isinstance(got, bytes) else got, repr(want), _differ(got, want))
    got, want = _array(got), _array(want)
    if misfit := _misfit(got, want, nonfinite):
        return Finding(False, None, "equal", misfit, misfit=True)
    alike = _same_values(got, want) | _both_nan(got, want)
    different = int(np.size(alike) - np.count_nonzero(alike))
    if not different:
        return Finding(True, _short(got), _short(want))
    where = np.unravel_index(int(np.argmin(alike)), np.shape(alike))
    why = f"{different} of {got.size} differ; the first: {got[where]!s}, not {want[where]!s}"
    return Finding(False, _short(got) if got.size == 1 else f"{different} of {got.size} differ", _short(want), why)


def _leaf_bitwise(got: Any, want: Any, nonfinite: bool) -> Finding:
    if unlike := _not_comparable(got, want):
        return unlike
    if isinstance(want, str | bytes):
        return Finding(got == want, repr(got), repr(want), _differ(got, want))
    if misfit := _misfit(_array(got), _array(want), nonfinite):
        return Finding(False, None, "the same bits", misfit, misfit=True)
    mine, theirs = _types(got, want)
    if mine != theirs:
        return Finding(False, None, theirs, f"type {mine}, not {theirs}", misfit=True)
    got, want = _raw(got), _raw(want)
    if want.dtype.hasobject:
        raise TypeError(f"{want.item()!r} has no bits to compare: give numbers, tensors or arrays")
    mine, theirs = (np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, -1) for array in (got, want))
    different = int((mine != theirs).any(axis=1).sum())
    why = f"{different} of {got.size} values differ in their bits" if different else ""
    return Finding(not different, f"{different} of {got.size} differ", "0 differ", why)


def _not_comparable(got: Any, want: Any) -> Finding | None:
    """The finding when one of two leaves is nothing, or when a text meets what is no text."""
    for leaf in (want, got):
        if _is_nothing(leaf):
            return Finding(False, repr(got), repr(want), f"it is {_nothing_in_words(leaf)}", misfit=True)
    for text in (str, bytes):
        if isinstance(want, text) != isinstance(got, text):
            return Finding(False, repr(got), repr(want), f"{got!r}, not {want!r}", misfit=True)
    return None


def _differ(got: Any, want: Any) -> str:
    return "" if got == want else f"{got!r}, not {want!r}"


def _same_values(got: np.ndarray, want: np.ndarray) -> Any:
    """Where the values are the same; numpy rounds an integer before it compares it with a float, this does not."""
    same = got == want
    for whole, other in ((got, want), (want, got)):
        if whole.dtype.kind in "iu" and other.dtype.kind in "fc":
            same = same & _fits_double(whole)
    return same


# ------------------------------------------------------------------------------------------------------ values as arrays


def _within(value: Any, bound: float, wanted: str, inside: Callable, extreme: Callable) -> Finding:
    if not math.isfinite(bound):
        raise ValueError(f"the bound is {bound}: nothing can be held against it")
    got = _numbers(value)
    if got.dtype.kind == "c":
        raise TypeError("complex numbers are neither below nor above anything: compare np.abs of them")
    if misfit := _unusable(got, "what was measured", nonfinite=False):
        return Finding(False, None, wanted, misfit, misfit=True)
    outside = int((~inside(got)).sum())
    measured = float(extreme(got))
    if not outside:
        return Finding(True, measured, wanted)
    where = np.argwhere(got == extreme(got))[0]
    at = f" at {tuple(map(int, where))}" if where.size else ""
    return Finding(False, measured, wanted, f"{measured:.6g}{at} is not {wanted}")


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
    if array.dtype.kind in "iu" and not _fits_double(array).all():
        raise TypeError("an integer this large is rounded in double precision: hold it against an integer with check.equal")
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _array(value: Any) -> np.ndarray:
    """The value as an array of numbers: a low-precision type that numpy lacks (bfloat16, float8) becomes float32."""
    if isinstance(value, list | tuple):
        items = [_array(item) for item in value]
        array = np.asarray(items)
        if array.dtype.kind in "fc" and not all(item.dtype.kind not in "iu" or _fits_double(item).all() for item in items):
            raise TypeError("numpy would round an integer of this list to a float: give an array of integers")
        return array
    if hasattr(value, "numpy") and hasattr(value, "astype"):
        return value.astype("float32").numpy() if _is_foreign(value) else value.numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" and _is_foreign(array) else array


def _raw(value: Any) -> np.ndarray:
    """The value's own bits as an array: paddle shows bfloat16 as uint16 and float8 as int8, which is what is wanted."""
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _types(got: Any, want: Any) -> tuple[str, str]:
    """The types by name. Two tensors are asked themselves, since numpy shows both kinds of float8 alike."""
    if hasattr(got, "numpy") and hasattr(want, "numpy"):
        return str(got.dtype), str(want.dtype)
    return str(_raw(got).dtype), str(_raw(want).dtype)


def _fits_double(whole: np.ndarray) -> Any:
    """Where integers keep their value in double precision."""
    if whole.dtype.itemsize < 8:
        return np.ones(whole.shape, bool)
    turned = whole.astype(np.float64)
    within = turned < float(np.iinfo(whole.dtype).max)
    return within & (np.where(within, turned, 0.0).astype(whole.dtype) == whole)


def _is_foreign(tensor: Any) -> bool:
    return any(name in str(tensor.dtype) for name in ("bfloat16", "float8"))


def _short(array: np.ndarray) -> float | str:
    return _storable(array.item()) if array.size == 1 and array.dtype.kind in "iufb" else f"{array.size} values"


def _storable(number: Any) -> float | str:
    """The number as JSON can hold it, which has neither NaN nor infinity."""
    return float(number) if math.isfinite(number) else str(float(number))


def _bound_in_words(atol: float, rtol: float) -> str:
    return " + ".join(words for words in (f"{atol:g}" if atol else "", f"{rtol:g} of it" if rtol else "") if words)
