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


def test_the_seed_alone_decides(cases):
    again, other = index_cases.make(SEED), index_cases.make(SEED + 1)
    assert [case.name for case in again] == [case.name for case in cases]
    assert [case.name for case in other] != [case.name for case in cases]


def test_there_are_more_than_a_thousand_and_none_is_there_twice(cases):
    assert len(cases) > 1000
    assert len({case.name for case in cases}) == len(cases)


def test_every_type_view_and_kind_of_value_occurs(cases):
    assert {case.dtype for case in cases} == set(index_cases.TYPES)
    assert {case.view for case in cases} == set(index_cases.VIEWS)
    assert {case.value for case in cases} == {"number", "0-d", "broadcast", "whole"}
    assert {len(case.shape) for case in cases} == {1, 2, 3, 4}


def test_every_control_differs_from_what_is_expected(cases):
    filled = [case for case in cases if index_cases.got(case).size]
    assert len(filled) > 0.8 * len(cases)
    for case in filled:
        expected = index_cases.got(case)
        assert (index_cases.neighbours(expected) != expected).all(), case.name


def test_a_16_bit_type_represents_every_element(cases):
    for case in cases:
        whole = index_cases.written(case).astype("float64")
        assert np.array_equal(whole, np.round(whole)) and whole.max() <= 256, case.name


@pytest.mark.parametrize(
    ("index", "in_two_steps"),
    [
        ((0, slice(None), np.array([1, 1])), lambda array: array[0][:, [1, 1]]),
        ((np.array([1, 1]), slice(None), 0), lambda array: array[:, :, 0][[1, 1]]),
        ((np.array(2), slice(None), np.array([1, 1])), lambda array: array[2][:, [1, 1]]),
        ((Ellipsis, np.array([0, 1])), lambda array: array[..., [0, 1]]),
        ((np.ones((3, 4), bool), slice(1, 3)), lambda array: array.reshape(12, 5)[:, 1:3]),
        ((None, slice(1, 3)), lambda array: array[None, 1:3]),
    ],
)
def test_integers_and_slices_are_applied_before_arrays(index, in_two_steps):
    array = np.arange(60).reshape(3, 4, 5)
    assert np.array_equal(index_cases.get(array, index), in_two_steps(array))


def test_writing_changes_the_elements_that_reading_gives():
    array, index = np.zeros((3, 4, 5)), (0, slice(1, 3), np.array([1, 4]))
    index_cases.put(array, index, 7)
    assert (index_cases.get(array, index) == 7).all()
    assert (array == 7).sum() == 4


def test_paddle_reads_and_writes_every_case_as_numpy_does(answers):
    assert set(outcomes(index_cases.compare_reads, answers)) <= {"passed", "skipped"}
    assert set(outcomes(index_cases.compare_writes, answers)) <= {"passed", "skipped"}


@pytest.mark.parametrize("wrong", [lambda array: array + 1, lambda array: array[None]], ids=["other elements", "other shape"])
def test_a_wrong_answer_fails(answers, cases, wrong):
    number = next(place for place, case in enumerate(cases) if case.dtype == "float32" and case.set_flags == (1, 0))
    changed = {flag: list(of_flag) for flag, of_flag in answers.items()}
    changed[0][number] = tuple(wrong(array) for array in answers[0][number])
    assert outcomes(index_cases.compare_reads, changed)["failed"] == 1
    assert outcomes(index_cases.compare_writes, changed)["failed"] == 1


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


def test_the_flag_is_as_before_after_the_block():
    import paddle

    before = paddle.get_flags(index_cases.STRIDE_FLAG)
    with pytest.raises(ValueError), index_cases.strides(0):
        assert paddle.get_flags(index_cases.STRIDE_FLAG) == {index_cases.STRIDE_FLAG: False}
        raise ValueError
    assert paddle.get_flags(index_cases.STRIDE_FLAG) == before


def test_an_error_is_returned_as_its_kind_and_last_line():
    def refuse():
        raise IndexError("first\nlast\n")

    assert index_cases.answer_of(refuse) == "IndexError: last"
    assert index_cases.answer_of(lambda: 3) == 3
