"""A check's digest changes with every value that must repeat, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xpulab.harness.report.result import digest_of_check
from xpulab.records.record import Measurement, Record, Row

SIMPLE = Record("demo.sum", "passed", "", 0.25, "< 1", "rejected", 0.1, digest="aa" * 8)
ROWS = (Row("a", "passed", 0.1, "< 1", "rejected", digest="01" * 8), Row("b", "known", 3.0, "< 1", "rejected", digest="02" * 8))
TABLE = Record("demo.table", "known", "", "1 of 2 rows", "", "rejected", rows=ROWS)
RATE = Measurement("copy", "rate", "GB/s", (10.0,))
LOSSES = Measurement("losses", "loss", "nats", (3.0, 2.0))


MEASURED = replace(SIMPLE, measurements=(RATE, LOSSES))
RAISED = replace(SIMPLE, digest=None, measured="OSError: in /tmp/a")
FIRST, SECOND = ROWS


@pytest.mark.parametrize(
    ("record", "same", "other"),
    [
        (SIMPLE, {"seconds": 9.0, "means": "else", "reason": "else"}, [{"digest": "ab" * 8}]),
        (
            TABLE,
            {"rows": (FIRST, replace(SECOND, digest="03" * 8))},  # what a known issue makes wrong
            [{"rows": (replace(FIRST, digest="03" * 8), SECOND)}, {"rows": (replace(FIRST, case="c"), SECOND)}],
        ),
        (
            MEASURED,
            {"measurements": (replace(RATE, values=(9.0,)), LOSSES)},
            [{"measurements": (RATE, replace(LOSSES, values=(3.0, 2.0000001)))}],
        ),
        (RAISED, {"measured": "OSError: in /tmp/b"}, [{"measured": "KeyError: a"}]),
    ],
    ids=["values, not times and texts", "each right row with its case", "losses, not rates", "the type of an exception"],
)
def test_what_counts(record, same, other):
    digest = digest_of_check(record)
    assert len(digest) == 16 and digest == digest_of_check(replace(record, **same))
    assert digest not in [digest_of_check(replace(record, **changed)) for changed in other]
