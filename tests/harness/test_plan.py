"""What can be run is said exactly, and what cannot is refused with the file, the place and the remedy."""

from __future__ import annotations

import json

import pytest
from nbformat import v4

from tests.conftest import GOOD
from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.plan import (
    find_notebooks,
    make_plans,
    refuse_other_environments,
)
from xpulab.records import environments


@pytest.fixture
def folder(tmp_path, put, monkeypatch):
    """A notebooks/ with 01_one, 02_two and a file that is no notebook."""
    put("01_one", GOOD)
    put("02_two", 'check.equal("demo.two", 2, 2, control=3)')
    (tmp_path / "README.md").write_text("no notebook")
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path)
    return tmp_path


def names(notebooks):
    return [path.name for path in find_notebooks(notebooks)]


def refusal(path, level="quick"):
    with pytest.raises(InputError) as error:
        make_plans([str(path)], level)
    return str(error.value)


# ---------------------------------------------------------------------------------------------------------- which run


ONE, TWO = "01_one.ipynb", "02_two.ipynb"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        *(([each], [ONE]) for each in ("01_one", "01_one.ipynb", "01_*", "01_*.ipynb", "0[1]_one", "*_on?")),
        *(([each], [TWO]) for each in ("2", "02", "two", "02_two", "*two")),
        ([], [ONE, TWO]),
        (["02_two", "01_one", "*", "02_two.ipynb"], [TWO, ONE]),
    ],
    ids=str,
)
def test_names_numbers_and_globs_find_notebooks_in_their_order_each_once(folder, given, found):
    assert names(given) == found


class TestAChapterWithAnEnvironmentOfItsOwn:
    @pytest.fixture
    def own(self, folder, put):
        return put("03_own", 'check.equal("demo.own", 2, 2, control=3)', environment="formers")

    @pytest.mark.parametrize("given", [["3"], ["*"]])
    def test_it_is_planned_where_it_is_named_and_refused_with_what_runs_it(self, own, given):
        chapters = [plan.chapter for plan in make_plans(given, "quick")]
        with pytest.raises(InputError, match=r"^03_own: needs an environment of its own.*bash env/validate.sh 03 runs it"):
            refuse_other_environments(chapters)
        refuse_other_environments([each for each in chapters if each.path != own])  # control

    def test_in_its_environment_the_others_are_refused(self, own, monkeypatch):
        monkeypatch.setattr(environments, "present", lambda: "formers")
        refuse_other_environments(plan.chapter for plan in make_plans(["3"], "quick"))  # control
        with pytest.raises(InputError, match=r"^01_one, 02_two: cannot run in .*in the usual one: bash env/validate.sh"):
            refuse_other_environments(plan.chapter for plan in make_plans([], "quick"))


@pytest.mark.parametrize("given", ["3", "03_three", "9*", "README", ""])
def test_an_unknown_notebook_is_refused_with_those_there_are(folder, given):
    text = refusal(given)
    assert repr(given) in text and "01_one, 02_two" in text


# ------------------------------------------------------------------------------------------------ what cannot be run


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        "text",
        3,
        None,
        {"nbformat": "4", "nbformat_minor": 5, "metadata": {}, "cells": []},
        {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}]},
    ],
    ids=json.dumps,
)
def test_json_that_is_no_notebook_is_refused(tmp_path, value):
    path = tmp_path / "other.ipynb"
    path.write_text(json.dumps(value))
    assert refusal(path).startswith(f"{path}: ")


TAG = {"tags": ["parameters"]}
REFUSED = [
    ([GOOD], {"parameters": None}, ': 0 code cells are tagged "parameters"'),
    ([v4.new_code_cell("seed = 1", metadata=TAG), GOOD], {}, ': 2 code cells are tagged "parameters"'),
    ([v4.new_markdown_cell("Set the device here", metadata=TAG)], {"parameters": None}, '"parameters"'),
    ([GOOD], {"budget_seconds": {"smoke": 1, "quick": -1, "standard": 60}}, "xpulab/budget_seconds/quick: -1"),
    ([GOOD], {"budget_seconds": {"smoke": 1, "quick": 3}}, "xpulab/budget_seconds: 'standard' is a required"),
    ([GOOD], {"capabilities": ["Demo"]}, "xpulab/capabilities/0: 'Demo'"),
    ([GOOD], {"extra": 1}, "metadata xpulab: Additional properties are not allowed ('extra'"),
    ([GOOD], {"metadata": {"cards": 1}}, "is a required property"),
    ([GOOD, f"x = 1\n{GOOD}"], {}, " cell 4 line 2: check 'demo.good' is planned already in cell 3 line 1"),
    (['for n in "ab":\n    check.equal(f"demo.{n}", 1, 1, control=2)'], {}, " cell 3 line 2: a check's name must be a literal"),
    (['check.equal("good", 1, 1, control=2)'], {}, " cell 3 line 1: check 'good' has no capability"),
    (['check.equal("other.good", 1, 1, control=2)'], {"capabilities": ["demo", "more"]}, "which lists demo, more"),
    (["x = 1\ny = ("], {}, " cell 3 line 2: not Python"),
]


@pytest.mark.parametrize(("cells", "changed", "told"), REFUSED, ids=[told for *_, told in REFUSED])
def test_a_notebook_that_cannot_be_run_is_refused_with_its_place(put, cells, changed, told):
    path = put("refused", *cells, **changed)
    text = refusal(path)
    assert text.startswith(str(path)) and told in text


def test_two_notebooks_of_one_file_name_are_refused_since_their_reports_would_mix(put, tmp_path):
    one, two = put("a/same", GOOD), put("b/same", 'check.equal("demo.other", 2, 2, control=3)')
    with pytest.raises(InputError) as error:
        make_plans([str(one), str(two)], "quick")
    assert str(one) in str(error.value) and str(two) in str(error.value) and "name" in str(error.value)
