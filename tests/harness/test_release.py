"""`xpulab run release`: the notebooks that judge a release are a product of their own."""

from __future__ import annotations

import pytest

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import not_run
from xpulab.harness.plan import make_plans
from xpulab.harness.report.result import Result, to_json


def result_of(*names):
    plans = make_plans(names, "quick")
    return Result(RunOptions("cpu", "quick", 1), tuple(not_run(plan, "missing", "a demo") for plan in plans), 1.0, files.ROOT)


def test_the_word_release_stands_for_all_of_them_and_no_level_of_the_chapters_runs_one():
    named = [plan.chapter.path for plan in make_plans([files.RELEASE], "quick")]
    assert named == files.release_notebooks() != []
    assert not set(named) & {plan.chapter.path for plan in make_plans([], "standard")}


def test_they_run_apart_from_chapters():
    with pytest.raises(InputError, match="release/trainer judges the release and chapters judge the machine"):
        make_plans(["02", "release/trainer"], "quick")


@pytest.mark.parametrize(
    ("name", "judges", "word"), [("release/trainer", "release", "does what it says"), ("11", "machine", "READY")]
)
def test_a_run_of_them_judges_the_release_and_never_the_machine(name, judges, word):
    found = result_of(name)
    assert (to_json(found)["judges"], "READY" in found.verdict) == (judges, word == "READY")
