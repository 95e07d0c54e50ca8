"""The cases of indexing: drawn from the seed alone, with a reference implementation and controls that show what they must."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from xpulab.chapters.shared import index_cases
from xpulab.chapters.shared.missing_kernels import lacked
from xpulab.checks.table import Table

SEED = 0


@pytest.fixture(scope="module")
def cases():
    return index_cases.make(SEED)


@pytest.fixture(scope="module")
def answers():
    return index_cases.run(SEED)


def outcomes(compare, answers):
    """How many rows have which outcome."""
    rows = Table("indexing.get")
    compare(rows, SEED, answers)
    return Counter(row.outcome for row in rows.record("", 0.0).rows)


def test_there_are_more_than_a_thousand_and_none_is_there_twice(cases):
    assert len(cases) > 1000
    assert len({case.name for case in cases}) == len(cases)


def test_every_type_view_and_kind_of_value_occurs(cases):
    assert {case.dtype for case in cases} == set(index_cases.TYPES)
    assert {case.view for case in cases} == set(index_cases.VIEWS)
    assert {case.value for case in cases} == {"number", "0-d", "broadcast", "whole"}
    assert {len(case.shape) for case in cases} == {1, 2, 3, 4}


def test_a_16_bit_type_represents_every_element(cases):
    for case in cases:
        whole = index_cases.written(case).astype("float64")
        assert np.array_equal(whole, np.round(whole)) and whole.max() <= 256, case.name


def test_an_error_fails_unless_the_device_is_known_to_lack_the_kernel_for_this_type(answers, cases, monkeypatch):
    refused, lacking = (
        next(place for place, case in enumerate(cases) if case.dtype == dtype and "[tensor([" in case.name)
        for dtype in ("float64", "int32")
    )
    before = outcomes(index_cases.compare_reads, answers)["skipped"]
    changed = {flag: list(of_flag) for flag, of_flag in answers.items()}
    for of_flag in changed.values():
        for place in (refused, lacking):
            of_flag[place] = ("RuntimeError: (NotFound) the kernel is not registered, not supported", None)
    assert outcomes(index_cases.compare_reads, changed)["failed"] == 2
    monkeypatch.setattr(
        index_cases, "lacked", lambda kernel, dtype: "it has none" if dtype == "int32" else lacked(kernel, dtype)
    )
    found = outcomes(index_cases.compare_reads, changed)
    assert (found["failed"], found["skipped"]) == (1, before + 1)


def test_a_process_that_ended_is_no_result():
    with pytest.raises(RuntimeError, match="killed by signal 11"):
        index_cases.compare_reads(Table("indexing.get"), SEED, "killed by signal 11 (SIGSEGV)")
