"""A grid covers what it promises, keeps its rules, follows its seed, and reduces a red case to what matters."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from xpulab.checks import check, grid_table
from xpulab.checks import grid as grids
from xpulab.checks.grid import STRENGTH, Grid
from xpulab.harness.report.result import digest_of_check
from xpulab.records import known_issues

AXES = {
    "dtype": ("float32", "float64", "bool", "int64"),
    "layout": ("contiguous", "transposed", "strided"),
    "shape": ((3, 4), (), (1,), (0, 3), (129,)),
    "axis": (0, -1, None),
    "keepdim": (False, True),
}
RULES = {
    "a 0-d tensor has no axis": lambda shape, axis: shape == () and axis is not None,
    "one axis cannot be transposed": lambda shape, layout: len(shape) < 2 and layout == "transposed",
    "booleans are not strided": lambda dtype, layout: dtype == "bool" and layout == "strided",
}


@pytest.fixture
def grid():
    return Grid(AXES, RULES)


def allowed():
    """All combinations that no rule excludes, by brute force."""
    for values in product(*AXES.values()):
        case = dict(zip(AXES, values, strict=True))
        if not (
            (case["shape"] == () and case["axis"] is not None)
            or (len(case["shape"]) < 2 and case["layout"] == "transposed")
            or (case["dtype"] == "bool" and case["layout"] == "strided")
        ):
            yield case


def parts(case, strength):
    """Each combination of so many axes with the case's values."""
    return {tuple((axis, case[axis]) for axis in axes) for axes in combinations(AXES, strength)}


@pytest.mark.parametrize("level", STRENGTH)
@pytest.mark.parametrize("seed", range(5))
def test_every_combination_that_can_be_is_in_some_case(grid, level, seed):
    wanted = set().union(*(parts(case, STRENGTH[level]) for case in allowed()))
    cases = grid.cases(level, seed)
    assert set().union(*(parts(case.by_axis, STRENGTH[level]) for case in cases)) == wanted
    assert len(cases) < len(list(allowed()))


@pytest.mark.parametrize("seed", range(5))
def test_no_case_breaks_a_rule_and_none_is_there_twice(grid, seed):
    cases = grid.cases("standard", seed)
    assert all(dict(case.by_axis) in list(allowed()) for case in cases)
    assert len({case.name for case in cases}) == len(cases)


def test_a_seed_gives_its_cover_and_its_numbers_again_and_another_seed_others(grid):
    names = [[case.name for case in grid.cases("quick", seed)] for seed in (0, 0, 1)]
    assert names[0] == names[1] != names[2]
    drawn = [grid.case(dtype="int64", seed=seed).rng().random() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert grid.case(dtype="bool").rng().random() != drawn[0]


def test_the_code_of_a_case_makes_it_again(grid):
    for case in grid.cases("quick", 3)[:6]:  # the first is the default, with nothing to say but the seed
        again = eval(case.code(), {"grid": grid})
        assert again == case and again.name == case.name


def test_a_red_case_is_reduced_to_the_values_that_matter(grid):
    tried = []

    def is_red(case):
        tried.append(case.name)
        return case.dtype == "int64" and case.keepdim

    found = grid.reduce(grid.case(dtype="int64", layout="strided", shape="(0, 3)", axis="-1", keepdim="True"), is_red)
    assert found.name == "dtype int64, keepdim True"
    assert len(tried) <= len(AXES) ** 2


# ------------------------------------------------------------------------------------------------------------ the check


SMALL = Grid({"x": (1, 2, 3), "sign": {"plus": 1, "minus": -1}, "twice": (False, True)})


def expected(case):
    return case.x * case.sign * (2 if case.twice else 1)


def add_row(rows, case, value):
    rows.equal(case.name, value, expected(case), control=expected(case) + 1)


@pytest.fixture
def record(monkeypatch):
    """Runs a check that is a grid, with these known issues, and returns its record."""
    monkeypatch.setattr(check, "show", lambda record: None)

    def record(run, *issues, level="standard"):
        monkeypatch.setattr(known_issues, "_listed", lambda: issues)
        kept = []
        monkeypatch.setattr(check, "show", kept.append)
        check.grid("x.values", SMALL, run, add_row, level=level, seed=0, means="values")
        return kept[0]

    return record


def issue(**when):
    return known_issues.KnownIssue("an-id", "x.values", {}, ("cpu",), "a symptom", "measured", "a workaround", when=when)


def wrong_where(condition):
    return grids.one_by_one(lambda case: expected(case) + 5 * condition(case))


def test_what_passed_is_a_row_for_each_value_of_the_first_axis_with_the_digest_of_its_cases(record):
    found = record(grids.one_by_one(expected))
    assert (found.outcome, found.measured, found.control) == ("passed", "12 of 12 cases", "rejected")
    assert [(row.case, row.measured) for row in found.rows] == [("1", "4 cases"), ("2", "4 cases"), ("3", "4 cases")]
    digests = [row.digest for row in record(grids.one_by_one(lambda case: 1 * expected(case))).rows]
    assert digests == [row.digest for row in found.rows] and len(set(digests)) == 3


def test_a_red_case_names_the_values_that_matter_and_the_code_that_repeats_it(record):
    found = record(wrong_where(lambda case: case.sign < 0 and case.twice))
    red = [row for row in found.rows if row.outcome == "failed"]
    assert found.outcome == "failed" and len(red) == 3
    assert all(
        "smallest red case: sign minus, twice True; to repeat it: grid.case(sign='minus', twice='True'" in row.reason
        for row in red
    )


def test_errors_of_one_dtype_do_not_stand_for_another():
    grid = Grid(
        {"operator": ("add", "sum"), "dtype": ("float32", "float16"), "shape": ("one", "two", "three", "four", "five", "six")}
    )

    def measure(case):
        if case.dtype == "float16":
            raise NotImplementedError("no kernel")
        return "value"

    cases = sorted(grid.cases("standard", 0), key=lambda case: case.dtype)  # those that raise come first
    outcomes = grids.one_by_one(measure)(cases)
    assert [isinstance(each, Exception) for each in outcomes] == [case.dtype == "float16" for case in cases]
    assert sum(case.dtype == "float16" and case.operator == "add" for case in cases) > grids.MOST_ERRORS


def test_a_known_defect_concerns_the_cases_with_its_values_and_no_others(record):
    minus = issue(sign=["minus"], twice=["True"])
    found = record(wrong_where(lambda case: case.sign < 0 and case.twice), minus)
    assert (found.outcome, found.measured) == ("known", "9 of 12 cases")
    assert [row.case for row in found.rows if row.outcome == "known"] == ["sign minus, twice True"]
    elsewhere = record(wrong_where(lambda case: case.sign < 0), minus)
    assert elsewhere.outcome == "failed" and sum(row.outcome == "failed" for row in elsewhere.rows) == 3


def test_a_known_defect_is_shown_by_the_first_case_that_the_device_can_have(record):
    found = record(wrong_where(lambda case: case.sign < 0 and case.twice), issue(sign=["none", "minus"], twice=["True"]))
    assert [row.case for row in found.rows if row.outcome == "known"] == ["sign minus, twice True"]
    assert record(grids.one_by_one(expected), issue(sign=["none"])).outcome == "passed"


def test_a_known_defect_is_fixed_when_the_case_that_showed_it_passes_whatever_others_do(record):
    some = record(wrong_where(lambda case: case.sign < 0 and case.x == 1), issue(sign=["minus"]))
    assert (some.outcome, some.measured) == ("known", "10 of 12 cases")
    none = record(grids.one_by_one(expected), issue(sign=["minus"]))
    assert none.outcome == "fixed" and sum(row.outcome == "fixed" for row in none.rows) == 1


# -------------------------------------------------------------------------------------------------------- further values

WIDE = Grid({"x": (1, 2, 3), "sign": {"plus": 1, "minus": -1}, "twice": (False, True)}).with_further(
    {"sign": {"ten": 10, "zero": 0}, "more": {str(more): more for more in range(40)}},
    {"3 has no zero": lambda x, sign: x == 3 and sign == 0, "2 has no 39": lambda x, more: x == 2 and more == 39},
)


def wide_check(monkeypatch, run, level, *issues, seconds=None):
    """The record of the check at this level, where quick has so many seconds."""
    monkeypatch.setattr(known_issues, "_listed", lambda: issues)
    if seconds is not None:
        monkeypatch.setitem(grid_table.SECONDS, "quick", seconds)
    kept = []
    monkeypatch.setattr(check, "show", kept.append)
    check.grid("x.values", WIDE, run, add_row, level=level, seed=0, means="values")
    return kept[0]


@pytest.mark.parametrize("seed", range(3))
def test_each_further_value_is_once_with_each_operator_and_no_case_breaks_a_rule(seed):
    cases = list(WIDE.further_cases(seed))
    assert {(case.x, case.more) for case in cases} == {(x, more) for x in (1, 2, 3) for more in range(40)} - {(2, 39)}
    assert {(case.x, case.sign) for case in cases} >= {(x, sign) for x in (1, 2, 3) for sign in (10, 0)} - {(3, 0)}
    assert len(cases) == 119 <= WIDE.most_further()
    assert {case.x for case in cases[:3]} == {1, 2, 3}
    assert [case.name for case in cases] == [case.name for case in WIDE.further_cases(seed)]
    assert [case.name for case in cases] != [case.name for case in WIDE.further_cases(seed + 1)]


def test_two_runs_that_computed_other_numbers_of_further_cases_measured_the_same(monkeypatch):
    runs = [wide_check(monkeypatch, grids.one_by_one(expected), "quick", seconds=seconds) for seconds in (1e-9, 60.0)]
    assert [found.outcome for found in runs] == ["passed", "passed"]
    assert runs[0].expected != runs[1].expected and "119 of 120 further cases" in runs[1].expected
    assert runs[0].measured == runs[1].measured
    assert digest_of_check(runs[0]) == digest_of_check(runs[1])
    assert runs[0].rows == runs[1].rows


def test_smoke_computes_no_further_case(monkeypatch):
    found = wide_check(monkeypatch, grids.one_by_one(expected), "smoke")
    assert "further" not in found.expected and found.rows[-1].case != grid_table.FURTHER


def test_a_further_case_that_is_wrong_is_red_and_its_code_makes_it_again(monkeypatch):
    found = wide_check(monkeypatch, wrong_where(lambda case: case.sign == 10 and case.x == 2), "standard")
    red = [row for row in found.rows if row.outcome == "failed"]
    assert found.outcome == "failed" and red
    assert "to repeat it: grid.case(x='2', sign='ten', seed=0)" in red[0].reason
    assert WIDE.case(x="2", sign="ten").by_axis == {"x": 2, "sign": 10, "twice": False, "more": 0}


def test_a_listed_defect_explains_a_further_value_as_one_that_is_listed(monkeypatch):
    wrong = wrong_where(lambda case: case.sign != 1 and case.twice)
    found = wide_check(monkeypatch, wrong, "standard", issue(sign=["minus"], twice=["True"]))
    assert found.outcome == "known"
    of_ten = wide_check(monkeypatch, wrong_where(lambda case: case.sign == 0 and case.twice), "standard", issue(sign=["ten"]))
    assert of_ten.outcome == "failed"


def test_another_defect_of_a_listed_further_value_stays_red(monkeypatch):
    def measure(case):
        return 7_000 if case.sign == 10 and case.twice else expected(case)

    minus = known_issues.KnownIssue(
        "an-id", "x.values", {}, ("cpu",), "s", "r", "w", when={"twice": ["True"]}, shows="'no such text'"
    )
    found = wide_check(monkeypatch, grids.one_by_one(measure), "standard", minus)
    assert any(row.outcome == "failed" and "is another defect" in row.reason for row in found.rows)
