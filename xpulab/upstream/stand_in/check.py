"""In place of xpulab.checks.check: print what was measured beside what is expected, and whether they agree.

The comparisons are those of the suite, which are copied into a script with this. Controls are left out: they show that a
check can fail, and say nothing about Paddle.
"""

import contextlib
import io
import re
import sys
import traceback
from functools import partial

import numpy as np

from xpulab.checks import compare
from xpulab.checks.rows import close_to, value_of


def close(name, measured, expected, *, control=None, atol=0.0, rtol=0.0, means="", about_nonfinite=False):
    printed(name, measured, close_to(expected, atol, rtol, about_nonfinite), means, expected)


def equal(name, measured, expected, *, control=None, means="", about_nonfinite=False):
    printed(name, measured, partial(compare.equal, expected=expected, nonfinite=about_nonfinite), means, expected)


def bitwise(name, measured, expected, *, control=None, means="", about_nonfinite=False):
    printed(name, measured, partial(compare.bitwise, expected=expected, nonfinite=about_nonfinite), means, expected)


def below(name, measured, bound, *, control=None, means=""):
    printed(name, measured, partial(compare.below, bound=float(bound)), means)


def above(name, measured, bound, *, control=None, means=""):
    printed(name, measured, partial(compare.above, bound=float(bound)), means)


def between(name, measured, low, high, *, control=None, means=""):
    printed(name, measured, partial(compare.between, low=float(low), high=float(high)), means)


def finite(name, measured, *, control=None, means=""):
    printed(name, measured, compare.finite, means)


def true(name, measured, *, control=None, means=""):
    printed(name, measured, compare.true, means)


def raises(name, kind, call, *, control=None, match="", means=""):
    printed(name, lambda: call, partial(compare.raises, kind=kind, match=match), means)


def skip(name, reason):
    print(f"{name}: cannot run on this device: {reason}")


@contextlib.contextmanager
def table(name, *, means=""):
    """The rows of one check; an error inside the block is printed, and the script goes on."""
    rows = Rows(name)
    try:
        yield rows
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        return write(name, False, raised(error), "no error", means)
    if not rows.cases:
        write(name, False, "the table has no row: nothing was compared", "at least one row", means)


def grid(name, grid, run, add_row, *, level, seed, means=""):
    """The cases of a grid: those that differ are printed, then how many there are."""
    cases, written = grid.cases(level, seed), io.StringIO()
    with contextlib.redirect_stdout(written):
        for case, value in zip(cases, run(cases), strict=True):
            add_row(Rows(name), case, value)
    found = re.split(r"(?m)^(?=as expected|DIFFERS)", written.getvalue())
    print(*[text for text in found if text.startswith("DIFFERS")], sep="", end="")
    print(f"{len(cases)} cases of {name}: {means}")


class Rows:
    """Compares like the functions above; each row has the name of its case."""

    def __init__(self, name):
        self.name, self.cases = name, []

    def close(self, case, measured, expected, **bounds):
        close(self.row(case), measured, expected, **bounds)

    def equal(self, case, measured, expected, **more):
        equal(self.row(case), measured, expected, **more)

    def bitwise(self, case, measured, expected, **more):
        bitwise(self.row(case), measured, expected, **more)

    def below(self, case, measured, bound, **more):
        below(self.row(case), measured, bound, **more)

    def above(self, case, measured, bound, **more):
        above(self.row(case), measured, bound, **more)

    def between(self, case, measured, low, high, **more):
        between(self.row(case), measured, low, high, **more)

    def skip(self, case, reason):
        skip(self.row(case), reason)

    def row(self, case):
        self.cases.append(case)
        return f"{self.name}, {case}"


def printed(name, measured, comparison, means, *expected):
    """Compare, and write the finding. expected: the value to show, where the comparison has one."""
    values = "".join(f": {short(each)}" for each in expected)
    try:
        value = value_of(measured)
        finding = comparison(value)
    except Exception as error:
        return write(name, False, raised(error), f"a value that can be compared{values}", means)
    shown = finding.measured if callable(value) else short(value)
    why = f" ({finding.why})" if finding.why else ""
    write(name, finding.accepted, f"{shown}{why}", f"{finding.expected}{values}", means or finding.expected)


def raised(error):
    return f"it raised {type(error).__name__}: {compare.first_line(error)}"


def short(value):
    """The value as text of one paragraph, a tensor by its numbers."""
    value = with_arrays(value)
    text = np.array2string(value, threshold=20) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 400 else f"{text[:400]} ..."


def with_arrays(value):
    """Tensors as numpy arrays, in lists and dicts too."""
    if isinstance(value, dict):
        return {key: with_arrays(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_arrays(each) for each in value]
    return compare.as_array(value) if hasattr(value, "shape") else value


def write(name, agrees, measured, expected, means):
    print(f"{'as expected' if agrees else 'DIFFERS    '}  {name}: {means}\n    measured  {measured}\n    expected  {expected}")
