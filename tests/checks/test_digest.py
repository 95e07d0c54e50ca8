"""Two values have the same digest only when they are the same to the last bit; a record has that of its measured value."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.checks import check
from xpulab.checks.digest import digest_of

WEIGHTS = np.arange(6, dtype="float32").reshape(2, 3)
ONE_BIT = (WEIGHTS.view("uint32") ^ np.uint32(1)).view("float32")

DIFFERENT = {
    "one bit": (WEIGHTS, ONE_BIT),
    "the type": (WEIGHTS, WEIGHTS.astype("float64")),
    "the shape": (WEIGHTS, WEIGHTS.reshape(3, 2)),
    "the sign of zero": (0.0, -0.0),
    "a key": ({"a": 1.0}, {"b": 1.0}),
    "the order of a list": ([1, 2], [2, 1]),
    "a truth value and a number": (True, 1),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_value_has_another_digest(what):
    one, other = DIFFERENT[what]
    assert digest_of(one) != digest_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (WEIGHTS, WEIGHTS.copy()),
        (WEIGHTS, np.asfortranarray(WEIGHTS)),
        ({"a": 1, "b": WEIGHTS}, {"b": WEIGHTS, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (np.float32("nan"), np.float32("nan")),
    ],
)
def test_the_same_value_has_the_same_digest(one, other):
    assert digest_of(one) == digest_of(other) is not None


def test_a_record_and_a_row_have_the_digest_of_what_was_measured():
    check.close("demo.close", lambda: WEIGHTS, WEIGHTS, atol=1e-6, control=WEIGHTS + 1)
    with check.table("demo.table", means="rows") as rows:
        rows.bitwise("first", WEIGHTS, WEIGHTS, control=ONE_BIT)
        rows.skip("second", "not here")
    records = check.ledger.records
    assert records["demo.close"].digest == digest_of(WEIGHTS)
    assert [row.digest for row in records["demo.table"].rows] == [digest_of(WEIGHTS), None]
