"""Compare one value with the expected one: pure functions that return a ComparisonResult.

A value may be a number, a string, a paddle tensor, a numpy array, or lists, tuples, sets and dicts of these. Empty values, NaN
and infinity never pass: xpulab.checks.compared.numbers makes numbers of the last two, where a comparison is about them.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Mapping, Set, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xpulab.messages import N_
from xpulab.reference import noise


@dataclass(frozen=True)
class ComparisonResult:
    """The result of one comparison.

    accepted: whether the value is as expected.
    measured: the number that was compared with the bound (the largest difference, the largest value), or a sentence.
    expected: the bound or the expected value as text.
    why: why the value was not accepted; "" when it was.
    incomparable: the value was not accepted because it cannot be compared at all (another shape or type, empty, not finite).
        A control that is incomparable shows nothing about the comparison.
    """

    accepted: bool
    measured: float | str | None
    expected: str
    why: str = ""
    incomparable: bool = False


def close(value: Any, expected: Any, atol: float, rtol: float) -> ComparisonResult:
    """Every element is within atol + rtol * |expected|, computed in double precision. Shapes must be the same."""
    requirement = N_("within {atol}", atol=_format_bound(atol, rtol))
    got, want = _as_doubles(value), _as_doubles(expected)
    if why := _why_incomparable(got, want):
        return ComparisonResult(False, None, requirement, why, incomparable=True)
    difference = np.abs(got - want)
    excess = difference - (atol + rtol * np.abs(want))
    largest, outside = float(np.max(difference)), int((excess > 0).sum())
    if not outside:
        return ComparisonResult(True, largest, requirement)
    where = np.unravel_index(int(np.argmax(excess)), got.shape)
    at = f" at {tuple(map(int, where))}" if where else ""
    worst = N_("the worst{at} is {got}, expected {want}", at=at, got=f"{got[where]:.8g}", want=f"{want[where]:.8g}")
    why = f"{N_('{sum} of {size} outside', sum=outside, size=got.size)}; {worst}"
    return ComparisonResult(False, largest, requirement, why)


def equal(value: Any, expected: Any) -> ComparisonResult:
    """The same values in the same places; tensors and arrays may differ in type (3 equals 3.0), not in shape.

    A tensor or array may be compared with a list of numbers.
    """
    if hasattr(value, "shape") or hasattr(expected, "shape"):
        arrays = as_array(value), as_array(expected)
        of_numbers = not any(array.dtype.kind in "OSU" for array in arrays)
        value, expected = arrays if of_numbers else (_to_list(value), _to_list(expected))
    return _compare_leaves(value, expected, N_("equal"), _leaf_equal)


def bitwise(value: Any, expected: Any) -> ComparisonResult:
    """The same bytes, type and shape: -0.0 is not 0.0, float32 is not float64."""
    return _compare_leaves(value, expected, N_("the same bits"), _leaf_bitwise)


class WithinNoise:
    """Compares as bitwise() does; where the device does not repeat itself, the difference of its own runs is the bound.

    repeat: computes, without what the check is about, what has the shapes of `expected` and must be the same each time. It is
    called where the first value, the measured one, has other bits; on a device that repeats itself nothing else is accepted.
    """

    def __init__(self, expected: Any, repeat: Callable[[], Any]) -> None:
        self._expected, self._repeat = expected, repeat
        self._bounds: dict[Any, float] | None = None

    def __call__(self, value: Any) -> ComparisonResult:
        result = bitwise(value, self._expected)
        if self._bounds is None:
            runs = 0 if result.accepted or result.incomparable else noise.RUNS
            self._bounds = noise.bounds_of([_doubles_by_path(self._repeat()) for _ in range(runs)])
        if result.accepted or result.incomparable or not self._bounds:
            return result
        values = map(_doubles_by_path, (value, self._expected))
        got, want = (np.concatenate([np.ravel(of[path] / bound) for path, bound in self._bounds.items()]) for of in values)
        expected = N_("within {margin} times what its own runs differ: the device does not repeat itself", margin=noise.MARGIN)
        return replace(close(got, want, atol=1.0, rtol=0.0), expected=expected)


def below(value: Any, bound: float) -> ComparisonResult:
    """Every element is smaller than the bound."""
    return _compare_with_bound(value, bound, f"< {bound:.6g}", lambda got: got < bound, np.max)


def above(value: Any, bound: float) -> ComparisonResult:
    """Every element is larger than the bound."""
    return _compare_with_bound(value, bound, f"> {bound:.6g}", lambda got: got > bound, np.min)


def between(value: Any, low: float, high: float) -> ComparisonResult:
    """Every element is at least `low` and at most `high`. Raises ValueError unless low < high."""
    if not low < high:
        raise ValueError(f"between needs low < high, got {low} and {high}")
    middle = (low + high) / 2
    return _compare_with_bound(
        value,
        middle,
        f"from {low:.6g} to {high:.6g}",
        lambda got: (low <= got) & (got <= high),
        lambda got: got.flat[int(np.argmax(np.abs(got - middle)))],
    )


def finite(value: Any) -> ComparisonResult:
    """No element is NaN or infinite."""
    got = _as_doubles(value)
    if got.size == 0:
        return ComparisonResult(False, None, N_("all finite"), N_("the value has no elements"), incomparable=True)
    bad = int((~np.isfinite(got)).sum())
    measured, why = N_("{bad} of {size} not finite", bad=bad, size=got.size), N_("{bad} are NaN or infinite", bad=bad)
    return ComparisonResult(bad == 0, measured, N_("all finite"), why if bad else "")


def true(value: Any) -> ComparisonResult:
    """A single truth value that is True. A number, a string or None is incomparable."""
    value = value.numpy() if hasattr(value, "numpy") else value
    is_array = isinstance(value, np.ndarray) and value.dtype == bool and value.size == 1
    if not is_array and not isinstance(value, bool | np.bool_):
        return ComparisonResult(False, None, "True", N_("{value} is not a truth value", value=repr(value)), incomparable=True)
    return ComparisonResult(bool(value), str(bool(value)), "True", "" if value else N_("it is False"))


def raises(call: Callable[[], Any], kind: type[BaseException], match: str = "") -> ComparisonResult:
    """`call` raises an exception of type `kind` whose text the regular expression `match` finds.

    Raises TypeError when `call` is not callable. KeyboardInterrupt and SystemExit are not caught.
    """
    if not callable(call):
        raise TypeError(f"a function is expected, not {type(call).__name__}: write `lambda: ...`")
    requirement = f"{kind.__name__}" + (f" matching {match!r}" if match else "")
    try:
        call()
    except kind as error:
        found = re.search(match, str(error)) is not None
        why = "" if found else N_("the exception has another text: {error}", error=repr(first_line(error)))
        return ComparisonResult(found, format_error(error), requirement, why)
    except Exception as error:
        why = N_("it raised another exception: {raised}", raised=(raised := format_error(error)))
        return ComparisonResult(False, raised, requirement, why, incomparable=True)
    return ComparisonResult(False, N_("nothing was raised"), requirement, N_("nothing was raised"))


def format_error(error: BaseException) -> str:
    """The type of an exception and the first line of its text."""
    return f"{type(error).__name__}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """The most informative line of an exception's text, at most 300 characters: Paddle puts a C++ traceback before it.

    Of files in the folder for temporary files only the name stays: the folder is another one in each run.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    informative = [line for line in lines if re.match(r"\(?\w*(Error|NotFound|InvalidArgument|Unimplemented|OutOfRange)", line)]
    temporary = re.escape(tempfile.gettempdir()) + r"/(?:[\w.-]+/)*"
    return re.sub(temporary, "", (informative or lines or [""])[0])[:300]


# ----------------------------------------------------------------------------------------------- leaves of a structure


Path = tuple[tuple[str, Any], ...]
"""The position of a leaf: for each container, outermost first, its kind ("dict", "list", "set") and the key in it."""


def _compare_leaves(
    value: Any, expected: Any, requirement: str, compare_leaf: Callable[[Any, Any], ComparisonResult]
) -> ComparisonResult:
    for what, side in ((N_("the expected value"), expected), (N_("the measured value"), value)):
        if _is_empty(side):
            return ComparisonResult(False, None, requirement, f"{what} is {_format_empty(side)}", incomparable=True)
    got, want = dict(leaves(value)), dict(leaves(expected))
    if got.keys() != want.keys():
        differing = ((N_("missing"), want.keys() - got.keys()), (N_("unexpected"), got.keys() - want.keys()))
        why = "; ".join(f"{what}: {_format_paths(paths)}" for what, paths in differing if paths)
        comparable = _container_kind(got) == _container_kind(want) != "dict" and not all(map(_is_empty, got.values()))
        measured = N_("{got} entries, not {want}", got=len(got), want=len(want))
        return ComparisonResult(False, measured, requirement, why, incomparable=not comparable)
    results = {path: compare_leaf(got[path], want[path]) for path in want}
    wrong = {path: result for path, result in results.items() if not result.accepted}
    path, first = next(iter((wrong or results).items()))
    equal_leaves = f"{len(want) - len(wrong)} of {len(want)}" if len(want) > 1 else first.measured
    if not wrong:
        return ComparisonResult(True, equal_leaves, requirement)
    at = f"{_format_path(path)}: " if path else ""
    incomparable = all(result.incomparable for result in wrong.values())
    return ComparisonResult(False, equal_leaves, requirement, at + first.why, incomparable)


def leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """A structure's leaves with their paths, in order: tensors, arrays, numbers, strings, and whatever is empty."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        value = _to_list(value)
    if _is_empty(value):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [leaf for key in value for leaf in leaves(value[key], (*path, ("dict", key)))]
    if isinstance(value, list | tuple):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, ("list", index)))]
    if isinstance(value, Set):
        return [leaf for item in value for leaf in leaves(item, (*path, ("set", item)))]
    return [(path, value)]


def _format_paths(paths: Set[Path]) -> str:
    names = sorted(map(_format_path, paths))
    return f"{', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"


def _format_path(path: Path) -> str:
    return "".join(f".{key}" if kind == "dict" else f"[{key}]" for kind, key in path).removeprefix(".")


def _container_kind(leaves: dict[Path, Any]) -> str:
    path = next(iter(leaves))
    return path[0][0] if path else "leaf"


def _to_list(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _is_empty(value: Any) -> bool:
    """Whether the value is None or has no items. Arrays and tensors are handled in _why_unusable."""
    if value is None:
        return True
    return isinstance(value, Sized) and (isinstance(value, str) or not hasattr(value, "shape")) and len(value) == 0


def _format_empty(value: Any) -> str:
    return N_("None, which never passes") if value is None else N_("empty, which never passes")


def _leaf_equal(got: Any, want: Any) -> ComparisonResult:
    if (result := _compare_texts(got, want)) is not None:
        return result
    got, want = as_array(got), as_array(want)
    if why := _why_incomparable(got, want):
        return ComparisonResult(False, None, "equal", why, incomparable=True)
    as_python = got.dtype.kind != want.dtype.kind  # where an integer is not rounded before it is compared with a float
    alike = got.astype(object) == want.astype(object) if as_python else got == want
    different = int(np.size(alike) - np.count_nonzero(alike))
    if not different:
        return ComparisonResult(True, _summarize(got), str(_summarize(want)))
    where = np.unravel_index(int(np.argmin(alike)), np.shape(alike))
    shown = {"got": str(got[where]), "want": str(want[where])}
    why = N_("{different} of {size} differ; the first: {got}, not {want}", different=different, size=got.size, **shown)
    measured = _summarize(got) if got.size == 1 else f"{different} of {got.size} differ"
    return ComparisonResult(False, measured, str(_summarize(want)), why)


def _leaf_bitwise(got: Any, want: Any) -> ComparisonResult:
    if (result := _compare_texts(got, want)) is not None:
        return result
    if why := _why_incomparable(as_array(got), as_array(want)):
        return ComparisonResult(False, None, "the same bits", why, incomparable=True)
    got_type, want_type = _type_names(got, want)
    if got_type != want_type:
        why = N_("type {got_type}, not {want_type}", got_type=got_type, want_type=want_type)
        return ComparisonResult(False, None, want_type, why, incomparable=True)
    got, want = _raw_bits(got), _raw_bits(want)
    if want.dtype.hasobject:
        raise TypeError(f"{want.item()!r} has no bits to compare: use numbers, tensors or arrays")
    got_bytes, want_bytes = (np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, -1) for array in (got, want))
    different = int((got_bytes != want_bytes).any(axis=1).sum())
    why = N_("{different} of {size} values differ in their bits", different=different, size=got.size) if different else ""
    return ComparisonResult(not different, f"{different} of {got.size} differ", "0 differ", why)


def _compare_texts(got: Any, want: Any) -> ComparisonResult | None:
    """The result when one of two leaves is None, empty or text; None when both are numbers."""
    for leaf in (want, got):
        if _is_empty(leaf):
            why = N_("a value is {leaf}", leaf=_format_empty(leaf))
            return ComparisonResult(False, repr(got), repr(want), why, incomparable=True)
    if not isinstance(want, str | bytes) and not isinstance(got, str | bytes):
        return None
    why = "" if got == want else f"{got!r}, not {want!r}"
    measured = got if isinstance(got, str) else repr(got)
    return ComparisonResult(got == want, measured, repr(want), why, incomparable=type(got) is not type(want))


# ------------------------------------------------------------------------------------------------------ values as arrays


def _compare_with_bound(value: Any, bound: float, requirement: str, inside: Callable, extreme: Callable) -> ComparisonResult:
    if not math.isfinite(bound):
        raise ValueError(f"the bound is {bound}: a bound must be finite")
    got = _as_doubles(value)
    if got.dtype.kind == "c":
        raise TypeError("complex numbers have no order: compare their np.abs")
    if why := _why_unusable(got, "the measured value"):
        return ComparisonResult(False, None, requirement, why, incomparable=True)
    outside = int((~inside(got)).sum())
    measured = float(extreme(got))
    if not outside:
        return ComparisonResult(True, measured, requirement)
    where = np.argwhere(got == extreme(got))[0]
    at = f" at {tuple(map(int, where))}" if where.size else ""
    return ComparisonResult(False, measured, requirement, f"{measured:.6g}{at} is not {requirement}")


def _why_incomparable(got: np.ndarray, want: np.ndarray) -> str:
    if got.shape != want.shape:
        return N_("shape {shape}, not {shape2}", shape=got.shape, shape2=want.shape)
    return _why_unusable(want, "the expected value") or _why_unusable(got, "the measured value")


def _why_unusable(array: np.ndarray, what: str) -> str:
    if array.size == 0:
        return N_("{what} is empty, which never passes", what=what)
    if array.dtype.kind in "fc" and (bad := int((~np.isfinite(array)).sum())):
        return N_("{bad} of {size} in {what} are NaN or infinite", bad=bad, size=array.size, what=what)
    return ""


def _as_doubles(value: Any) -> np.ndarray:
    """The value as an array in double precision (complex where it is complex)."""
    array = as_array(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"numbers are expected, not {array.dtype}")
    if array.dtype.kind in "iu" and not _fits_in_double(array):
        raise TypeError("an integer this large is rounded in double precision: compare it with an integer by check.equal")
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def as_array(value: Any) -> np.ndarray:
    """The value as an array of numbers: a low-precision type that numpy lacks (bfloat16, float8) becomes float32."""
    if isinstance(value, list | tuple):
        items = [as_array(item) for item in value]
        array = np.asarray(items)
        if array.dtype.kind in "fc" and not all(item.dtype.kind not in "iu" or _fits_in_double(item) for item in items):
            raise TypeError("numpy would round an integer of this list to a float: give an array of integers")
        return array
    if hasattr(value, "numpy") and hasattr(value, "astype"):
        return value.astype("float32").numpy() if _lacks_numpy_type(value) else value.numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" and _lacks_numpy_type(array) else array


def _doubles_by_path(value: Any) -> dict[Path, np.ndarray]:
    return {path: _as_doubles(leaf) for path, leaf in leaves(value)}


def _fits_in_double(integers: np.ndarray) -> bool:
    """Whether all of them are the same numbers in double precision."""
    large = integers[(integers > 2**53) | (integers < -(2**53))]
    return all(int(float(each)) == int(each) for each in large)


def _raw_bits(value: Any) -> np.ndarray:
    """The value as an array that has its bits: paddle returns bfloat16 as uint16 and float8 as int8."""
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _type_names(got: Any, want: Any) -> tuple[str, str]:
    """The names of both types. For two tensors these are paddle's, since numpy gives both kinds of float8 the same name."""
    if hasattr(got, "numpy") and hasattr(want, "numpy"):
        return str(got.dtype), str(want.dtype)
    return str(_raw_bits(got).dtype), str(_raw_bits(want).dtype)


def _lacks_numpy_type(tensor: Any) -> bool:
    return any(name in str(tensor.dtype) for name in ("bfloat16", "float8"))


def _summarize(array: np.ndarray) -> float | str:
    return float(array.item()) if array.size == 1 and array.dtype.kind in "iufb" else f"{array.size} values"


def _format_bound(atol: float, rtol: float) -> str:
    return " + ".join(term for term in (f"{atol:g}" if atol else "", f"{rtol:g} * |expected|" if rtol else "") if term)
