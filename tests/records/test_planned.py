"""The planned checks of a notebook are read from its source; a name that is not a literal is refused."""

from __future__ import annotations

import pytest

from xpulab.checks import check
from xpulab.errors import InputError
from xpulab.records.planned import COMPARING, PlannedCheck, planned_checks


def names(*cells):
    return [check.name for check in planned_checks(cells, "05.ipynb")]


def refusal(*cells, **options):
    with pytest.raises(InputError) as refused:
        planned_checks(cells, "05.ipynb", **options)
    return str(refused.value)


def test_a_check_is_planned_with_its_method_cell_and_line():
    cells = ["import paddle", 'x = 1\ncheck.close("sft.loss", x, 1, atol=0.1, control=2)']
    assert planned_checks(cells, "05.ipynb") == (PlannedCheck("sft.loss", "close", 2, 2),)


def test_every_comparison_that_check_offers_plans():
    own = {name: value for name, value in vars(check).items() if callable(value) and name.islower() and name[0] != "_"}
    offered = {name for name, value in own.items() if hasattr(value, "__self__") or value.__module__ == check.__name__}
    assert offered - {"skip"} == COMPARING


WHERE = {
    "in a branch": 'if device == "xpu":\n    check.equal("a.b", 1, 1, control=2)',
    "in a function": 'def later():\n    check.equal("a.b", 1, 1, control=2)',
    "in a loop": 'for _ in range(0):\n    check.equal("a.b", 1, 1, control=2)',
    "in a lambda": 'later = lambda: check.equal("a.b", 1, 1, control=2)',
    "as a table": 'with check.table("a.b", means="it holds") as rows:\n    rows.equal("case", 1, 1, control=2)',
    "after a line magic": '%matplotlib inline\ncheck.equal("a.b", 1, 1, control=2)',
    "after a shell line": '!ls\nfiles = !ls\ncheck.equal("a.b", 1, 1, control=2)',
}


@pytest.mark.parametrize("cell", WHERE.values(), ids=WHERE.keys())
def test_a_check_is_planned_anywhere_in_a_cell(cell):
    assert names(cell) == ["a.b"]


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "# check.equal('a.b', 1, 1, control=2)",
        "'''check.equal('a.b', 1, 1, control=2)'''",
        "check",
        "other.equal('a.b', 1, 1)",
        "check.unknown_method('a.b')",
        "%%bash\ncheck.equal('a.b', 1, 1, control=2)",
    ],
)
def test_other_code_plans_nothing(cell):
    assert names(cell) == []


NOT_LITERAL = ['f"a.{x}"', "name", '"a." + x', '"a.{}".format(x)', "*names", "1", "None", 'b"a.b"', "", 'name="a.b"']


@pytest.mark.parametrize("argument", NOT_LITERAL)
def test_a_name_that_is_not_a_literal_is_refused_with_its_cell_and_line(argument):
    message = refusal("x = 1", f"\ncheck.equal({argument})")
    assert message.startswith("05.ipynb cell 2 line 2: ") and "check.table" in message


@pytest.mark.parametrize("name", ["loss", "", ".", "sft.", ".loss"])
def test_a_name_without_capability_or_subject_is_refused(name):
    assert refusal(f'\n\ncheck.skip("{name}", "x")').startswith(f"05.ipynb cell 1 line 3: check {name!r} has no capability")


def test_a_name_used_twice_is_refused_with_both_positions():
    message = refusal('check.true("a.b", x, control=y)', "", '\ncheck.equal("a.b", 1, 1, control=2)')
    assert message.startswith("05.ipynb cell 3 line 2: check 'a.b'") and "cell 1 line 1" in message
    assert "planned already" in refusal('check.true("a.b", x, control=y)\ncheck.true("a.b", x, control=y)')


EITHER = {
    "comparison first": 'if x:\n    check.true("a.b", x, control=y)\nelse:\n    check.skip("a.b", "why")',
    "skip first": 'if x:\n    check.skip("a.b", "why")\nelse:\n    check.true("a.b", x, control=y)',
    "two skips": 'check.skip("a.b", "why")\ncheck.true("a.b", x, control=y)\ncheck.skip("a.b", "why else")',
}


@pytest.mark.parametrize("cell", EITHER.values(), ids=EITHER.keys())
def test_a_skip_may_have_the_name_of_the_comparison_that_it_replaces(cell):
    assert [check.method for check in planned_checks([cell], "05.ipynb")] == ["true"]


@pytest.mark.parametrize("order", [("true", "skip", "equal"), ("skip", "true", "equal"), ("true", "equal", "skip")])
def test_two_comparisons_of_one_name_are_refused_even_with_a_skip(order):
    assert "planned already" in refusal("\n".join(f'check.{method}("a.b")' for method in order))
