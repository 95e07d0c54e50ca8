"""In place of xpulab.checks.check: print what was measured beside what is expected, and whether they agree."""

import contextlib
import re
import sys
import traceback

import numpy as np


def close(name, measured, expected, *, control=None, atol=0.0, rtol=0.0, means="", about_nonfinite=False):
    bound = f"within {atol} + {rtol} * |expected|"
    shown(name, measured, expected, lambda got, want: differing(got, want, atol, rtol), means or bound)


def equal(name, measured, expected, *, control=None, means="", about_nonfinite=False):
    shown(name, measured, expected, lambda got, want: differing(got, want), means or "equal")


def bitwise(name, measured, expected, *, control=None, means="", about_nonfinite=False):
    shown(name, measured, expected, lambda got, want: differing(got, want, same=same_bits), means or "the same to the last bit")


def below(name, measured, bound, *, control=None, means=""):
    holds(name, measured, lambda got: (np.asarray(got) < bound).all(), f"below {bound}", means)


def above(name, measured, bound, *, control=None, means=""):
    holds(name, measured, lambda got: (np.asarray(got) > bound).all(), f"above {bound}", means)


def between(name, measured, low, high, *, control=None, means=""):
    holds(name, measured, lambda got: ((low <= np.asarray(got)) & (np.asarray(got) <= high)).all(), f"{low} to {high}", means)


def finite(name, measured, *, control=None, means=""):
    holds(name, measured, lambda got: np.isfinite(np.asarray(got)).all(), "no NaN, no infinity", means)


def true(name, measured, *, control=None, means=""):
    holds(name, measured, lambda got: got is True or got is np.True_, "True", means)


def raises(name, kind, call, *, control=None, match="", means=""):
    try:
        call()
    except kind as error:
        agrees = re.search(match, str(error)) is not None
        return printed(name, agrees, f"{type(error).__name__}: {error}"[:300], f"{kind.__name__}: {match}", means)
    except Exception as error:
        return printed(name, False, f"{type(error).__name__}: {error}"[:300], f"{kind.__name__}: {match}", means)
    return printed(name, False, "no error", f"{kind.__name__}: {match}", means)


def skip(name, reason):
    print(f"{name}: cannot run on this device: {reason}")


@contextlib.contextmanager
def table(name, *, means=""):
    """The rows of one check; an error inside the block is printed, and the script goes on."""
    try:
        yield Rows(name)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        printed(name, False, "the error above", "no error", means)


class Rows:
    """Compares like the functions above; each row has the name of its case."""

    def __init__(self, name):
        self.name = name

    def close(self, case, measured, expected, **bounds):
        close(f"{self.name}, {case}", measured, expected, **bounds)

    def equal(self, case, measured, expected, **more):
        equal(f"{self.name}, {case}", measured, expected, **more)

    def bitwise(self, case, measured, expected, **more):
        bitwise(f"{self.name}, {case}", measured, expected, **more)

    def below(self, case, measured, bound, **more):
        below(f"{self.name}, {case}", measured, bound, **more)

    def above(self, case, measured, bound, **more):
        above(f"{self.name}, {case}", measured, bound, **more)

    def between(self, case, measured, low, high, **more):
        between(f"{self.name}, {case}", measured, low, high, **more)

    def skip(self, case, reason):
        skip(f"{self.name}, {case}", reason)


def shown(name, measured, expected, difference, means):
    got, want = plain(value_of(name, measured)), plain(expected)
    why = difference(got, want)
    printed(name, not why, f"{short(got)}{f' ({why})' if why else ''}", short(want), means)


def holds(name, measured, condition, expected, means):
    got = plain(value_of(name, measured))
    printed(name, bool(condition(got)), short(got), expected, means)


def value_of(name, measured):
    """The value; of a function without arguments what it returns, or its error as text."""
    if not callable(measured):
        return measured
    try:
        return measured()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]


def plain(value):
    """Tensors as numpy arrays, in lists and dicts too."""
    if hasattr(value, "numpy") and hasattr(value, "place"):
        return value.astype("float32").numpy() if "bfloat16" in str(value.dtype) else value.numpy()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def differing(got, want, atol=0.0, rtol=0.0, same=None):
    """How they differ, or "". same: compares two arrays in place of the bounds."""
    if isinstance(got, dict) and isinstance(want, dict):
        if got.keys() != want.keys():
            return f"keys {sorted(map(str, got.keys() ^ want.keys()))} are on one side only"
        return next((f"{key}: {why}" for key in got if (why := differing(got[key], want[key], atol, rtol, same))), "")
    if isinstance(got, list) and isinstance(want, list):
        if len(got) != len(want):
            return f"{len(got)} entries, not {len(want)}"
        pairs = enumerate(zip(got, want, strict=True))
        return next((f"entry {index}: {why}" for index, pair in pairs if (why := differing(*pair, atol, rtol, same))), "")
    a, b = np.asarray(got), np.asarray(want)
    if a.shape != b.shape:
        return f"shape {a.shape}, not {b.shape}"
    if same:
        return same(a, b)
    agrees = a == b
    if a.dtype.kind in "fciub" and b.dtype.kind in "fciub":
        with np.errstate(all="ignore"):
            agrees |= np.isnan(a) & np.isnan(b)
            agrees |= np.abs(a.astype("complex128") - b) <= atol + rtol * np.abs(b) if atol or rtol else False
    if np.all(agrees):
        return ""
    return f"{np.size(agrees) - np.sum(agrees)} of {np.size(agrees)} differ"


def same_bits(a, b):
    if a.dtype != b.dtype:
        return f"type {a.dtype}, not {b.dtype}"
    return "" if a.tobytes() == b.tobytes() else "other bits"


def short(value):
    text = np.array2string(value, threshold=20) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 400 else f"{text[:400]} ..."


def printed(name, agrees, measured, expected, means):
    print(f"{'as expected' if agrees else 'DIFFERS    '}  {name}: {means}\n    measured  {measured}\n    expected  {expected}")
