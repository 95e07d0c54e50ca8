"""A table is one check of many cases: its outcome is that of its worst row, and a table without rows is red."""

from __future__ import annotations

import pytest

from xpulab.checks import check
from xpulab.records.record import is_compared, is_green


def one_table(*fill):
    with check.table("a.b", means="it holds") as rows:
        for add in fill:
            add(rows)


def passing(rows):
    rows.equal("passing", 1, 1, control=2)


def failing(rows):
    rows.equal("failing", 3, 1, control=2)


def breaking(rows):
    rows.equal("breaking", 1, 1, control=1)


def skipping(rows):
    rows.skip("skipping", "no bfloat16 here")


def stopping(rows):
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("fill", "outcome"),
    [
        ([passing], "passed"),
        ([passing, skipping], "passed"),
        ([passing, failing], "failed"),
        ([failing, breaking], "broken"),
        ([passing, stopping], "broken"),
        ([stopping], "broken"),
        ([], "failed"),
        ([skipping], "skipped"),
    ],
)
def test_the_outcome_of_a_table_is_that_of_its_worst_row(fill, outcome, shown):
    one_table(*fill)
    assert shown.record.outcome == outcome


def test_the_reason_names_the_failed_rows_and_only_these_are_shown_in_detail(shown):
    one_table(passing, failing, skipping)
    assert shown.record.reason.startswith("failing: ")
    assert ("failing: measured 3" in shown.text, "passing" in shown.text) == (True, False)
    one_table()
    assert "no row" in shown.record.reason


def test_a_table_of_skipped_rows_compared_nothing_and_is_not_green_alone(shown):
    one_table(skipping)
    assert (shown.record.control, shown.record.measured) == ("not tried", None)
    assert not is_compared(shown.record)
    assert not is_green([shown.record])


def test_an_exception_in_the_block_becomes_a_row_after_those_before_it(shown):
    one_table(passing, stopping)
    assert [row.case for row in shown.record.rows] == ["passing", "after 1 rows"]
    assert "RuntimeError: out of memory" in shown.record.rows[-1].reason


def test_a_skip_does_not_hide_a_row_of_the_same_name(shown):
    one_table(failing, lambda rows: rows.skip("failing", "never mind"))
    assert shown.record.outcome == "broken"


def test_a_row_after_the_end_of_the_block_is_refused(shown):
    with check.table("a.b", means="it holds") as rows:
        passing(rows)
    with pytest.raises(ValueError, match="inside its with block"):
        failing(rows)
