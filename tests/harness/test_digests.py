"""A check's digest changes with every value that must repeat, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

from xpulab.harness.report.result import digest_of_check
from xpulab.records.record import Measurement, Record, Row

SIMPLE = Record("demo.sum", "passed", "", 0.25, "< 1", "rejected", 0.1, digest="aa" * 8)
ROWS = (Row("a", "passed", 0.1, "< 1", "rejected", digest="01" * 8), Row("b", "known", 3.0, "< 1", "rejected", digest="02" * 8))
TABLE = Record("demo.table", "known", "", "1 of 2 rows", "", "rejected", rows=ROWS)
RATE = Measurement("copy", "rate", "GB/s", (10.0,))
LOSSES = Measurement("losses", "loss", "nats", (3.0, 2.0))


def with_rows(*rows):
    return digest_of_check(replace(TABLE, rows=rows))


def test_it_has_sixteen_digits_and_does_not_depend_on_times_and_texts():
    assert len(digest_of_check(SIMPLE)) == 16
    assert digest_of_check(SIMPLE) == digest_of_check(replace(SIMPLE, seconds=9.0, means="else", reason="else"))


def test_other_bits_have_another_digest():
    assert digest_of_check(SIMPLE) != digest_of_check(replace(SIMPLE, digest="ab" * 8))


def test_of_a_table_each_right_row_counts_with_its_case():
    first, second = ROWS
    assert with_rows(first, second) != with_rows(replace(first, digest="03" * 8), second)
    assert with_rows(first, second) != with_rows(replace(first, case="c"), second)


def test_what_a_known_issue_makes_wrong_does_not_count():
    first, second = ROWS
    assert with_rows(first, second) == with_rows(first, replace(second, digest="03" * 8))
    assert digest_of_check(replace(SIMPLE, outcome="known")) is None


def test_of_measurements_only_losses_count():
    measured = replace(SIMPLE, measurements=(RATE, LOSSES))
    assert digest_of_check(measured) == digest_of_check(replace(measured, measurements=(replace(RATE, values=(9.0,)), LOSSES)))
    other = replace(LOSSES, values=(3.0, 2.0000001))
    assert digest_of_check(measured) != digest_of_check(replace(measured, measurements=(RATE, other)))
    assert digest_of_check(replace(SIMPLE, measurements=(RATE,))) is None


def test_of_an_exception_only_the_type_counts():
    texts = [replace(SIMPLE, digest=None, measured=f"OSError: in /tmp/{name}") for name in "ab"]
    assert digest_of_check(texts[0]) == digest_of_check(texts[1]) != digest_of_check(replace(texts[0], measured="KeyError: a"))


def test_what_was_not_compared_has_none():
    assert digest_of_check(replace(SIMPLE, outcome="skipped", measured=None, digest=None)) is None
    assert digest_of_check(replace(SIMPLE, outcome="failed")) is None
