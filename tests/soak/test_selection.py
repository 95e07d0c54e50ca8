"""A round runs the training, collective and checkpoint sections, or those of the checks that are asked for."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from tests.conftest import usual_plans
from xpulab.errors import InputError
from xpulab.soak.selection import Selection, check_hours, make_soak_plans, selection

PLANNED = [check.name for plan in usual_plans("standard").values() for check in plan.checks]


def test_a_round_trains_sends_and_saves():
    checks = {check.name for plan in make_soak_plans([], []) for check in plan.checks}
    assert {
        "sft.repeat-weights",
        "lora.merge",
        "collectives.moves",
        "resume.exact",
        "distributed-checkpoint.reshard",
    } <= checks


def test_checks_that_are_asked_for_replace_the_usual_ones():
    [plan] = make_soak_plans([], ["determinism.step"])
    assert (plan.name, [check.name for check in plan.checks]) == ("17_numerics", ["determinism.reductions", "determinism.step"])


def test_notebooks_that_are_asked_for_limit_a_round_to_them():
    assert [plan.name for plan in make_soak_plans(["02_sft", "11_parallel_plan"], [])] == ["02_sft"]


def test_notebooks_without_such_a_check_are_refused():
    with pytest.raises(InputError, match="--check"):
        make_soak_plans(["18_tensors"], [])


def test_every_glob_of_the_data_matches_a_check():
    chosen = selection()
    globs = [*chosen.checks, *chosen.without, *(check for check, _ in chosen.varying)]
    assert [glob for glob in globs if not any(fnmatchcase(name, glob) for name in PLANNED)] == []


def test_a_value_varies_where_check_and_case_match():
    chosen = Selection(("*",), (), (("a.*", "time *"),))
    assert chosen.varies("a.b", "time of c") and not chosen.varies("a.b", "loss") and not chosen.varies("b.b", "time of c")


@pytest.mark.parametrize("hours", [0.0, -1.0, float("nan"), float("inf")])
def test_hours_must_be_a_number_above_0(hours):
    with pytest.raises(InputError, match="above 0"):
        check_hours(hours, "soak")


def test_hours_belong_to_level_soak():
    with pytest.raises(InputError, match="only with --level soak"):
        check_hours(1.0, "quick")
    check_hours(None, "quick"), check_hours(0.5, "soak")
