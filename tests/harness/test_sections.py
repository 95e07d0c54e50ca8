"""Sections: what is refused, what a closure holds, and which cells of a notebook run for some of its checks."""

from __future__ import annotations

import ast

import pytest
from nbformat import v4
from pyflakes import checker, messages

from tests.conftest import section
from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.chapter import read_chapter
from xpulab.harness.plan import make_plans, plan_of, plan_of_checks
from xpulab.records.planned import python_of


def check(name, value="2"):
    return f'check.equal("demo.{name}", {value}, 2, control=3)'


@pytest.fixture
def chapter(put):
    """Sections a, b (needs a) and c (needs b), each with a check, and d, which runs at level standard only."""
    cells = [
        *(section("a", level="smoke"), "x = 2", check("a", "x")),
        *(section("b", "a"), "y = x", check("b", "y")),
        *(section("c", "b"), check("c", "y")),
        *(section("d", level="standard"), check("d")),
    ]
    return read_chapter(put("demo", *cells))


# -------------------------------------------------------------------------------------------------------------- refused


CODE = v4.new_code_cell("x = 1", metadata=section("a").metadata)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([section("a", "none")], "cell 4: section 'a' needs 'none'"),
        ([section("a", "b"), section("b", "a")], "cell 4: section 'a' needs itself, through its needs"),
        ([section("a", "a")], "section 'a' needs itself"),
        ([section("a"), section("a")], "cell 5: section 'a' is declared in cell 4 too"),
        ([section("a", level="deep")], "cell 4: metadata xpulab/level: 'deep' is not one of"),
        ([section("a", parts=1)], "'parts' was unexpected"),
        ([CODE], "cell 4: declares section 'a', but is no Markdown cell"),
    ],
    ids=["unknown need", "circle", "itself", "twice", "no level", "no field", "code cell"],
)
def test_what_is_no_set_of_sections_is_refused_with_file_and_cell(put, cells, told):
    path = put("demo", *cells)
    with pytest.raises(InputError) as error:
        read_chapter(path)
    assert str(error.value).startswith(str(path)) and told in str(error.value)


# ------------------------------------------------------------------------------------------------------------- selected


def names(sections):
    return [each.name for each in sections]


def test_a_level_runs_the_sections_of_lower_levels_too(chapter):
    ran = {level: names(plan_of(chapter, level).sections) for level in ("smoke", "quick", "standard")}
    assert ran == {"smoke": ["all", "a"][1:], "quick": ["all", "a", "b", "c"], "standard": ["all", "a", "b", "c", "d"]}


def test_an_excerpt_keeps_the_cells_before_the_first_section_the_closure_and_the_verdict(chapter):
    plan = plan_of_checks(chapter, "quick", ["demo.b"])
    cells = [cell for cell in plan.notebook.cells if cell.cell_type == "code"]
    assert [cell.source for cell in cells[2:]] == ["x = 2", check("a", "x"), "y = x", check("b", "y"), "verdict()"]
    assert cells[0].source.startswith("device = ") and cells[1].source.startswith("from xpulab")
    assert [each.name for each in plan.checks] == ["demo.a", "demo.b"]
    last = plan_of_checks(chapter, "quick", ["demo.d"]).notebook.cells
    assert [cell.metadata["xpulab"]["cell"] for cell in last if cell.cell_type == "code"] == [1, 2, 8, 9]


def test_a_glob_selects_checks_of_several_notebooks_and_leaves_out_the_others(put, tmp_path):
    for name in ("one", "two", "three"):
        put(name, section(name), f'check.equal("demo.{name}", 2, 2, control=3)')
    plans = make_plans([str(tmp_path / "*.ipynb")], "quick", ["demo.t*"])
    assert [(plan.name, plan.partial, [each.name for each in plan.checks]) for plan in plans] == [
        ("three", True, ["demo.three"]),
        ("two", True, ["demo.two"]),
    ]


# ----------------------------------------------------------------------------------------------------- the real notebooks


@pytest.mark.notebooks
@pytest.mark.parametrize("path", sorted(files.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
class TestTheNotebooks:
    def test_no_closure_uses_a_name_that_it_does_not_define(self, path):
        chapter = read_chapter(path)
        undefined = {}
        for each in chapter.sections:
            checks = [check.name for check in chapter.checks if chapter.section_of(check) is each]
            if checks:
                undefined[each.name] = undefined_names(plan_of_checks(chapter, "quick", checks).notebook)
        assert undefined and not any(undefined.values())


def undefined_names(notebook):
    """The names that the code cells of an excerpt use and nothing in them defines: a section is missing in `needs`."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tree = ast.parse("".join(python_of(cell.source) for cell in cells))
    found = checker.Checker(tree, builtins={"get_ipython", "display"}).messages
    return [str(each) for each in found if isinstance(each, messages.UndefinedName | messages.UndefinedLocal)]
