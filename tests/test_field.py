"""docs/field.md: each problem of the field names checks that exist, and faults that these checks detect."""

from __future__ import annotations

import re

import pytest

from xpulab import files
from xpulab.faults import CATALOGUE

PAGE = files.ROOT / "docs" / "field.md"
NUMBERS = range(1, 38)
UNSEEN = {19, 29}
"""Rows that no notebook can see."""


def rows():
    """By number the cells of the table: problem, threads, seen by, faults, lanes."""
    lines = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)]
    return {int(number): [cell.strip() for cell in cells] for number, *cells in lines}


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def checks(number):
    return [name for name in names(rows()[number][2]) if "::" not in name]


def faults(number):
    return names(rows()[number][3])


def test_all_problems_are_there():
    assert list(rows()) == list(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_each_check_is_planned_in_a_notebook(number, checks_of_the_book):
    assert set(checks(number)) <= checks_of_the_book


@pytest.mark.parametrize("number", NUMBERS)
def test_each_test_exists(number):
    for path, _, name in (each.partition("::") for each in names(rows()[number][2]) if "::" in each):
        assert f"def {name}(" in (files.ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("number", NUMBERS)
def test_each_fault_is_in_the_catalogue_and_detected_by_a_check_of_its_row(number):
    catalogue = {fault.name: fault for fault in CATALOGUE}
    for name in faults(number):
        assert set(catalogue[name].detected_by) & set(checks(number)), name


@pytest.mark.parametrize("number", sorted(set(NUMBERS) - UNSEEN))
def test_a_row_names_a_check_and_a_fault(number):
    assert checks(number) and faults(number)


def test_rows_that_nothing_sees_say_so():
    assert {number for number, cells in rows().items() if cells[2].startswith("nothing")} == UNSEEN


def test_every_thread_is_a_link():
    text = PAGE.read_text(encoding="utf-8")
    used = set(re.findall(r"\[([A-Z]\w*#\d+)\](?!:)", text))
    assert used == set(re.findall(r"^\[([A-Z]\w*#\d+)\]: https://", text, re.M))


def test_the_page_says_that_nothing_was_run_on_a_card():
    assert "None of this was run on a real card" in PAGE.read_text(encoding="utf-8")
