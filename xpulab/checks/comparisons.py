"""The comparisons of a check and of a row, once for both."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from xpulab.checks import compare
from xpulab.checks.rows import Comparison
from xpulab.messages import N_


class Comparisons:
    """What `check` and the rows of a table compare with.

    name: of the check "<capability>.<what>", of a row its case. control: a value that is wrong on purpose, which the same
    comparison must reject. measured and control may be functions without arguments.
    means: what it means that a check passes; a row has no such text of its own.
    about_nonfinite: it is about NaN and infinity, which must be in the same places on both sides.
    """

    def _compare(self, name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
        """Compare the measured value, try the control, and keep the result."""
        raise NotImplementedError

    def close(
        self,
        name: str,
        measured: Any,
        expected: Any,
        *,
        control: Any,
        atol: float = 0.0,
        rtol: float = 0.0,
        means: str = N_("as close to the expected value as the bound asks"),
        about_nonfinite: bool = False,
    ) -> None:
        """Every element of `measured` is within atol + rtol * |expected| of `expected`; the shapes are the same."""
        if not (atol >= 0 and rtol >= 0 and 0 < atol + rtol < math.inf):
            raise ValueError("check.close needs a finite bound, atol or rtol above 0; for exact equality use check.equal")
        comparison = partial(compare.close, expected=expected, atol=atol, rtol=rtol, nonfinite=about_nonfinite)
        self._compare(name, measured, control, means, comparison)

    def equal(
        self,
        name: str,
        measured: Any,
        expected: Any,
        *,
        control: Any,
        means: str = N_("equal to the expected value"),
        about_nonfinite: bool = False,
    ) -> None:
        """`measured` equals `expected`: numbers, strings, tensors, or lists and dicts of these; 3 equals 3.0."""
        self._compare(name, measured, control, means, partial(compare.equal, expected=expected, nonfinite=about_nonfinite))

    def bitwise(
        self,
        name: str,
        measured: Any,
        expected: Any,
        *,
        control: Any,
        means: str = N_("the same to the last bit"),
        about_nonfinite: bool = False,
    ) -> None:
        """`measured` has the same bytes, type and shape as `expected`: arrays, tensors, or lists and dicts of these."""
        self._compare(name, measured, control, means, partial(compare.bitwise, expected=expected, nonfinite=about_nonfinite))

    def below(self, name: str, measured: Any, bound: float, *, control: Any, means: str = N_("below its bound")) -> None:
        """Every element of `measured` is smaller than `bound`."""
        self._compare(name, measured, control, means, partial(compare.below, bound=float(bound)))

    def above(self, name: str, measured: Any, bound: float, *, control: Any, means: str = N_("above its bound")) -> None:
        """Every element of `measured` is larger than `bound`."""
        self._compare(name, measured, control, means, partial(compare.above, bound=float(bound)))

    def between(
        self, name: str, measured: Any, low: float, high: float, *, control: Any, means: str = N_("within its bounds")
    ) -> None:
        """Every element of `measured` is at least `low` and at most `high`."""
        self._compare(name, measured, control, means, partial(compare.between, low=float(low), high=float(high)))

    def finite(self, name: str, measured: Any, *, control: Any, means: str = N_("free of NaN and infinity")) -> None:
        """No element of `measured` is NaN or infinite."""
        self._compare(name, measured, control, means, compare.finite)

    def true(self, name: str, measured: Any, *, control: Any, means: str = N_("it holds")) -> None:
        """`measured` is True. Prefer a comparison of numbers, because it shows how large the difference is."""
        self._compare(name, measured, control, means, compare.true)
