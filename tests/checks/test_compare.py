"""Comparisons accept the right value, reject a wrong one, and never accept an empty one."""

from __future__ import annotations

import math
import tempfile
from collections import OrderedDict
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from xpulab.checks import compare

NAN, INF = math.nan, math.inf
BIG = 2**53


def close(value, expected, atol=0.1, rtol=0.0):
    return compare.close(value, expected, atol, rtol)


EMPTY = {
    "list": [],
    "dict": {},
    "set": set(),
    "text": "",
    "array": np.zeros(0),
    "array with a zero in its shape": np.zeros((3, 0)),
    "array of empty texts": np.array(["", ""]),
    "list in a list": [[]],
    "text in a list": [""],
    "dict in a dict": {"a": {}},
    "array in a dict": {"a": np.zeros(0)},
    "range": range(0),
    "None": None,
    "None in a list": [None],
    "None in an array": np.array([None]),
    "an entry with a value and one without": {"a": 1, "b": []},
    "an item with a value and one without": [["x"], []],
}


ALL = {"close": close, "equal": compare.equal, "bitwise": compare.bitwise}
"""The comparisons with an expected value."""

OF_NUMBERS = {
    "close": lambda value: close(value, value),
    "below": lambda value: compare.below(value, 1e300),
    "above": lambda value: compare.above(value, -1e300),
    "between": lambda value: compare.between(value, -1e300, 1e300),
    "finite": compare.finite,
}
"""The comparisons of numbers, with bounds that every number is within."""


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY.keys())
def test_an_empty_value_equals_nothing_and_nothing_equals_it(empty):
    assert compare.equal(empty, empty).incomparable
    for value, expected in ((empty, empty), (empty, "something"), ("something", empty)):
        assert not compare.equal(value, expected).accepted
        assert not compare.bitwise(value, expected).accepted


@pytest.mark.parametrize("empty", [[], (), np.zeros(0), np.zeros((2, 0)), [[]]], ids=repr)
@pytest.mark.parametrize("comparison", OF_NUMBERS.values(), ids=OF_NUMBERS.keys())
def test_an_empty_value_is_incomparable_as_numbers(comparison, empty):
    finding = comparison(empty)
    assert (finding.accepted, finding.incomparable) == (False, True)


NOT_FINITE = {"NaN": NAN, "infinity": INF, "minus infinity": -INF}


CONTAINERS = {
    "number": lambda number: number,
    "numpy scalar": lambda number: np.float32(number),
    "array": lambda number: np.array([1.0, number]),
    "list": lambda number: [1.0, number],
    "complex": lambda number: complex(0.0, number),
}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS.keys())
@pytest.mark.parametrize("comparison", ALL.values(), ids=ALL.keys())
def test_nan_and_infinity_do_not_pass_when_the_same_is_expected(comparison, container):
    for number in NOT_FINITE.values():
        assert not comparison(container(number), container(number)).accepted, number


@pytest.mark.parametrize("comparison", ["below", "above", "between"])
def test_nan_and_infinity_are_incomparable_with_a_bound(comparison):
    for number in NOT_FINITE.values():
        finding = OF_NUMBERS[comparison]([0.0, number])
        assert (finding.accepted, finding.incomparable) == (False, True), number


# --------------------------------------------------------------------------------------------------------------- close


CLOSE = {
    "within its bound": (1.0, 1.0, {}, True),
    "just within its bound": ([1.0999, 0.9001], [1.0, 1.0], {}, True),
    "a difference equal to its bound": (1.5, 1.0, {"atol": 0.5}, True),
    "above its bound": (1.1001, 1.0, {}, False),
    "below its bound": (0.8999, 1.0, {}, False),
    "one element outside": ([1.0, 2.0, 3.2], [1.0, 2.0, 3.0], {}, False),
    "a relative bound grows with the expected value": ([109.0], [100.0], {"atol": 0.0, "rtol": 0.1}, True),
    "a relative bound does not grow with the measured value": ([100.0], [90.5], {"atol": 0.0, "rtol": 0.1}, False),
    "the sum of both bounds": (112.0, 100.0, {"atol": 3.0, "rtol": 0.1}, True),
    "double precision": (np.float32(16777216), 16777217, {"atol": 0.5}, False),
    "the imaginary part": (1 + 2j, 1 + 3j, {}, False),
    "complex numbers within their bound": (1 + 2j, 1 + 2.05j, {}, True),
    "a large integer that double precision represents": (2**60, 2**60, {}, True),
}


@pytest.mark.parametrize(("value", "expected", "bounds", "accepted"), CLOSE.values(), ids=CLOSE.keys())
def test_close(value, expected, bounds, accepted):
    finding = close(value, expected, **bounds)
    assert (finding.accepted, finding.incomparable) == (accepted, False)


@pytest.mark.parametrize("value", [BIG + 1, np.int64(BIG + 1), np.uint64(2**64 - 1), np.array([2**63 - 1]), [1, BIG + 1]])
def test_close_refuses_integers_that_double_precision_would_round(value):
    with pytest.raises(TypeError, match="rounded"):
        close(value, value, atol=0.5)


SHAPES = {
    "number and one element": (1.0, [1.0]),
    "one element and many": ([1.0], [1.0, 1.0]),
    "row and column": (np.ones((1, 3)), np.ones((3, 1))),
    "one element and a 0-d array": (np.ones(1), np.array(1.0)),
}


@pytest.mark.parametrize(("value", "expected"), SHAPES.values(), ids=SHAPES.keys())
def test_shapes_are_not_broadcast(value, expected):
    for comparison in ALL.values():
        assert not comparison(value, expected).accepted
        assert not comparison(expected, value).accepted
    assert close(value, expected).incomparable


# --------------------------------------------------------------------------------------------------------------- equal


SAME = {
    "numbers": (3, 3),
    "integer and float": (3, 3.0),
    "numpy scalar and number": (np.int32(3), 3),
    "bools": (True, np.bool_(True)),
    "zeros of both signs": (-0.0, 0.0),
    "complex": (1 + 2j, np.complex64(1 + 2j)),
    "large integers": (BIG + 1, np.int64(BIG + 1)),
    "integers beyond every numpy type": (2**70, 2**70),
    "signed and unsigned beyond 2**53": (np.array([BIG + 1]), np.array([BIG + 1], np.uint64)),
    "float and fraction": (0.5, Fraction(1, 2)),
    "texts": ("Beijing", "Beijing"),
    "bytes": (b"ab", b"ab"),
    "lists": ([1, "a", [2.0]], [1, "a", [2.0]]),
    "list and tuple": ([1, 2], (1, 2)),
    "sets": ({"a", "b"}, {"b", "a"}),
    "dicts in another order": ({"a": 1, "b": 2}, OrderedDict(b=2, a=1)),
    "dicts in lists": ([{"a": [1]}], [{"a": [1]}]),
    "array and list": (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "array of texts and list": (np.array(["a", "b"]), ["a", "b"]),
    "array of objects and list": (np.array([1, 2.5, "a"], object), [1, 2.5, "a"]),
    "arrays of two types": (np.array([1, 2], np.int8), np.array([1.0, 2.0], np.float16)),
    "bfloat16 and float32": (np.array([1.5], ml_dtypes.bfloat16), np.array([1.5], np.float32)),
    "arrays in dicts": ({"w": np.ones(2)}, {"w": np.ones(2)}),
}


@pytest.mark.parametrize(("value", "expected"), SAME.values(), ids=SAME.keys())
def test_equal_accepts_the_same_values_in_both_directions(value, expected):
    assert compare.equal(value, expected).accepted
    assert compare.equal(expected, value).accepted


DIFFERENT = {
    "numbers": (3, 4),
    "numbers that differ in the last bit": (1.0, 1.0 + 2**-52),
    "single and double precision": (np.float32(0.1), 0.1),
    "bools": (True, False),
    "complex, imaginary part": (1 + 2j, 1 + 3j),
    "large integers": (BIG + 1, BIG),
    "large integer and float": (BIG + 1, float(BIG)),
    "large integers and floats in arrays": (np.array([BIG + 1]), np.array([float(BIG)])),
    "largest integer and the float above it": (np.int64(2**63 - 1), 2.0**63),
    "largest unsigned integer and the float above it": (np.uint64(2**64 - 1), 2.0**64),
    "signed and unsigned": (np.array([-1]), np.array([2**64 - 1], np.uint64)),
    "large integers, array and list": (np.array([BIG + 1, 1]), [BIG, 1]),
    "texts": ("Beijing", "Shanghai"),
    "bytes with a zero": (b"a\0", b"a"),
    "lists, last item": ([1, 2, 3], [1, 2, 4]),
    "lists, length": ([1, 2], [1, 2, 3]),
    "lists, nesting": ([[1, 2], [3]], [[1], [2, 3]]),
    "sets": ({"a", "b"}, {"a", "c"}),
    "dicts, value": ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
    "arrays, one element": (np.array([1, 2, 3]), np.array([1, 2, 4])),
    "an empty item more": ([1, []], [1]),
    "an empty item more at the front": ([[], 1], [1]),
    "keys that are spelled alike": ({1: 5, "1": 6}, {1: 99, "1": 6}),
    "keys that are nested and dotted": ({"a": {"b": 1}, "a.b": 2}, {"a": {"b": 9}, "a.b": 2}),
}


@pytest.mark.parametrize(("value", "expected"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_equal_rejects_different_values_in_both_directions_with_a_reason(value, expected):
    for finding in (compare.equal(value, expected), compare.equal(expected, value)):
        assert not finding.accepted
        assert finding.why


OTHER_KIND = {
    "text and number": ("3", 3),
    "text and bytes": ("a", b"a"),
    "text and list": ("ab", ["a", "b"]),
    "number and list": (1, [1]),
    "list and dict": ([1], {"[0]": 1}),
    "list and set": (["a"], {"a"}),
    "dicts with other keys": ({"a": 1}, {"b": 1}),
    "dicts of other sizes": ({"a": 1}, {"a": 1, "b": 2}),
    "array and dict": (np.ones(2), {"a": 1}),
    "array of texts and of numbers": (np.array(["a", "b"]), np.array([1.0, 2.0])),
    "None and number": (None, 3),
    "None and list": (None, ["a", "b"]),
    "None and text": (None, "a"),
}


@pytest.mark.parametrize(("value", "expected"), OTHER_KIND.values(), ids=OTHER_KIND.keys())
def test_a_value_of_another_kind_is_incomparable(value, expected):
    finding = compare.equal(value, expected)
    assert (finding.accepted, finding.incomparable) == (False, True)


def test_a_finding_says_what_differs_and_how_many_are_equal():
    assert compare.equal({"layers": [1, 2]}, {"layers": [1, 3]}).why.startswith("layers[1]: ")
    assert compare.equal({"a": 1, "c": 1}, {"a": 1, "b": 1}).why == "missing: b; unexpected: c"
    assert "empty" in compare.equal([], [1]).why and "None" in compare.equal(None, [1]).why
    assert compare.equal([1, 2, 4], [1, 2, 3]).measured == "2 of 3"
    assert "(1, 0) is 9, expected 3" in close([[1.0, 2.0], [9.0, 5.0]], [[1.0, 2.0], [3.0, 4.0]]).why
    assert close([1.0, 2.5], [1.0, 2.0]).measured == pytest.approx(0.5)
    assert compare.bitwise(np.array([1.0, 2.0, 3.0]), np.array([1.0, 9.0, 9.0])).measured == "2 of 3 differ"


# ------------------------------------------------------------------------------------------------------------- bitwise


BITS = [
    np.array([1.0, -0.0]),
    np.array([1, 2], np.int8),
    np.array([1 + 2j]),
    np.array([1.5], ml_dtypes.bfloat16),
    np.float32(1.5),
    3,
    True,
    "text",
    {"w": np.ones(2, np.float16)},
]


@pytest.mark.parametrize("value", BITS, ids=repr)
def test_bitwise_accepts_the_same_bits(value):
    assert compare.bitwise(value, value).accepted


OTHER_BITS = {
    "zeros of both signs": (np.array([-0.0]), np.array([0.0]), False),
    "zeros of both signs as numbers": (-0.0, 0.0, False),
    "the last bit": (np.array([1.0]), np.array([1.0 + 2**-52]), False),
    "in a dict": ({"a": np.ones(2), "b": np.ones(2)}, {"a": np.ones(2), "b": np.zeros(2)}, False),
    "bytes": (b"a\0", b"a", False),
    "float32 and float64": (np.float32(1), np.float64(1), True),
    "signed and unsigned": (np.array([1], np.int32), np.array([1], np.uint32), True),
    "float and integer": (0.0, 0, True),
    "bool and integer": (np.array([True]), np.array([1], np.uint8), True),
    "float16 and bfloat16": (np.zeros(1, np.float16), np.zeros(1, ml_dtypes.bfloat16), True),
}


@pytest.mark.parametrize(("value", "expected", "incomparable"), OTHER_BITS.values(), ids=OTHER_BITS.keys())
def test_bitwise_rejects_other_bits_and_finds_another_type_incomparable(value, expected, incomparable):
    finding = compare.bitwise(value, expected)
    assert (finding.accepted, finding.incomparable) == (False, incomparable)


# ------------------------------------------------------------------------------------------------ below, above, between


BOUNDED = {
    "below": (
        lambda value: compare.below(value, 1.0),
        [0.9, -5, np.float32(0.5), [0.1, 0.9], np.zeros((2, 2)), False],
        [1.0, 1.1, [0.0, 1.0], np.array([[0.0], [2.0]])],
    ),
    "above": (lambda value: compare.above(value, 1.0), [1.1, 5, [1.1, 9.0]], [1.0, 0.9, [2.0, 1.0], np.array([[2.0], [0.0]])]),
    "between": (
        lambda value: compare.between(value, 1.0, 2.0),
        [1.0, 2.0, [1.0, 1.5, 2.0]],
        [0.999, 2.001, [1.5, 0.9], [1.5, 2.1]],
    ),
    "finite": (
        compare.finite,
        [0.0, 3, [1.0, -1e308], np.zeros((2, 2)), 1 + 2j, np.float16(65504)],
        [NAN, INF, -INF, [1.0, NAN], np.array([[INF]]), complex(0, NAN), np.float16(INF)],
    ),
    "true": (
        compare.true,
        [True, np.bool_(True), np.array(True), np.array([True])],
        [False, np.bool_(False), np.array(False), np.array([False])],
    ),
}
"""By comparison what it accepts and what it rejects."""


@pytest.mark.parametrize("name", BOUNDED)
def test_what_is_within_the_bounds_is_accepted_and_what_is_not_is_rejected(name):
    comparison, right, wrong = BOUNDED[name]
    for value in right:
        assert comparison(value).accepted, value
    for value in wrong:
        finding = comparison(value)
        assert (finding.accepted, finding.incomparable) == (False, False), value


@pytest.mark.parametrize("comparison", [compare.below, compare.above], ids=["below", "above"])
def test_a_bound_must_be_finite(comparison):
    for bound in NOT_FINITE.values():
        with pytest.raises(ValueError, match="bound"):
            comparison(0.0, bound)


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (1.0, 1.0), (NAN, 1.0), (1.0, NAN), (0.0, INF), (-INF, 0.0)])
def test_between_refuses_bounds_that_no_value_or_every_value_satisfies(low, high):
    with pytest.raises(ValueError, match=r"between|bound"):
        compare.between(1.0, low, high)


# --------------------------------------------------------------------------------------------------------- finite, true


NOT_ONE_TRUTH_VALUE = [
    1,
    1.0,
    "True",
    None,
    [True],
    pytest.param(object(), id="object"),
    np.array([1]),
    np.array([True, True]),
]


@pytest.mark.parametrize("value", NOT_ONE_TRUTH_VALUE, ids=repr)
def test_true_finds_other_values_incomparable(value):
    finding = compare.true(value)
    assert (finding.accepted, finding.incomparable) == (False, True)


# -------------------------------------------------------------------------------------------------------------- raises


def raising(error):
    def call():
        raise error

    return call


RAISES = {
    "the expected exception": (raising(KeyError("x")), KeyError, None, "accepted"),
    "a subclass": (raising(FileNotFoundError("x")), OSError, None, "accepted"),
    "a matching text": (raising(ValueError("shape [2, 3]")), ValueError, r"\[2, \d\]", "accepted"),
    "a call that does not raise": (lambda: None, ValueError, None, "rejected"),
    "another text": (raising(ValueError("something else")), ValueError, "shape", "rejected"),
    "another exception": (raising(KeyError("x")), ValueError, None, "incomparable"),
}


@pytest.mark.parametrize(("call", "kind", "match", "outcome"), RAISES.values(), ids=RAISES.keys())
def test_raises(call, kind, match, outcome):
    finding = compare.raises(call, kind, **({"match": match} if match else {}))
    assert (finding.accepted, finding.incomparable) == (outcome == "accepted", outcome == "incomparable")


def test_the_first_line_of_an_error_has_the_reason_and_of_a_temporary_file_the_name_only(tmp_path, monkeypatch):
    text = "\n\n----------------\nC++ Traceback\n----------------\nInvalidArgumentError: shapes differ\n  [Hint: 3]"
    assert compare.first_line(RuntimeError(text)) == "InvalidArgumentError: shapes differ"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = f"{tmp_path}/one/two/weights.bin differs from {tmp_path.parent}/three.bin"
    assert compare.first_line(ValueError(text)) == f"weights.bin differs from {tmp_path.parent}/three.bin"
