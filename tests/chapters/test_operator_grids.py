"""Bounds of the grids of operators: half types round what gradients are made of, and float16 ends at 65504 and near 0."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xpulab.chapters.numerics.operator_grids import Compared, add_compared
from xpulab.checks.table import Table

pytestmark = pytest.mark.unit


def outcome(found, right, dtype, composed=False):
    """The outcome of a row with these results, the first one and the gradients; all terms are 1."""
    rows = Table("a.b")
    right = [np.array(each, "float64") for each in right]
    compared = Compared([np.array(each, "float64") for each in found], right, [np.ones(each.shape) for each in right])
    add_compared(rows, "case", compared, dtype, ("add",), composed=composed)
    return rows._rows[0].outcome


def test_the_gradient_of_a_half_type_may_be_off_by_the_last_bit_of_a_term_and_the_result_by_its_own():
    off = 1 + 1.5 * 2.0**-7
    assert outcome([[1.0], [off]], [[1.0], [1.0]], "bfloat16") == "passed"
    assert outcome([[off], [1.0]], [[1.0], [1.0]], "bfloat16") == "failed"
    assert outcome([[off], [1.0]], [[1.0], [1.0]], "bfloat16", composed=True) == "passed"
    assert outcome([[1.0], [off]], [[1.0], [1.0]], "float32") == "failed"


def test_what_is_beyond_float16_must_be_infinite_and_nothing_else():
    assert outcome([[math.inf, 2.0]], [[7e4, 2.0]], "float16") == "passed"
    for found, right in (([-math.inf, 2.0], [7e4, 2.0]), ([math.inf, 2.0], [6e4, 2.0]), ([math.inf, 2.0], [7e4, 3.0])):
        assert outcome([found], [right], "float16") == "failed"
    assert outcome([[math.inf]], [[7e4]], "bfloat16") == "failed"


def test_a_result_beyond_the_type_has_no_gradient_to_compare():
    assert outcome([[math.inf], [math.nan]], [[7e4], [1.0]], "float16") == "passed"
    assert outcome([[6e4], [math.nan]], [[6e4], [1.0]], "float16") == "failed"


def test_float16_has_few_bits_near_0():
    assert outcome([[0.0, 1.0]], [[5e-8, 1.0]], "float16") == "passed"
    assert outcome([[0.0, 1.0]], [[5e-6, 1.0]], "bfloat16") == "failed"
