"""Sections: what is refused, what a closure holds, and which cells of a notebook run for some of its checks."""

from __future__ import annotations

import pytest
from nbformat import v4

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.chapter import read_chapter
from xpulab.harness.plan import make_plans, plan_of, plan_of_checks
from xpulab.harness.sections import closure, undefined_names


def heading(name, *needs, level="quick", **changed):
    declared = {"section": name, "needs": list(needs), "part": "lesson", "level": level, **changed}
    return v4.new_markdown_cell(f"## About {name}", metadata={"xpulab": declared})


def check(name, value="2"):
    return f'check.equal("demo.{name}", {value}, 2, control=3)'


@pytest.fixture
def chapter(put):
    """Sections a, b (needs a) and c (needs b), each with a check, and d, which runs at level standard only."""
    cells = [
        *(heading("a", level="smoke"), "x = 2", check("a", "x")),
        *(heading("b", "a"), "y = x", check("b", "y")),
        *(heading("c", "b"), check("c", "y")),
        *(heading("d", level="standard"), check("d")),
    ]
    return read_chapter(put("demo", *cells))


def refused(put, *cells):
    """The message without the file's name, which it begins with."""
    path = put("demo", *cells)
    with pytest.raises(InputError) as error:
        read_chapter(path)
    assert str(error.value).startswith(str(path))
    return str(error.value).removeprefix(str(path)).strip()


# -------------------------------------------------------------------------------------------------------------- refused


def test_an_unknown_need_is_refused_with_the_cell(put):
    assert refused(put, heading("a", "none")) == "cell 4: section 'a' needs 'none', which no section is called"


def test_a_circle_of_needs_is_refused_with_its_sections(put):
    text = refused(put, heading("a", "b"), heading("b", "a"))
    assert text == "cell 4: section 'a' needs itself, through a, b; remove one need"


def test_a_section_that_needs_itself_is_refused(put):
    assert "section 'a' needs itself" in refused(put, heading("a", "a"))


def test_a_name_that_is_there_twice_is_refused_with_both_cells(put):
    assert refused(put, heading("a"), heading("a")) == "cell 5: section 'a' is declared in cell 4 too; rename one"


def test_metadata_that_does_not_fit_is_refused_with_its_place(put):
    assert refused(put, heading("a", level="deep")).startswith("cell 4: metadata xpulab/level: 'deep' is not one of")
    assert "'parts' was unexpected" in refused(put, heading("a", parts=1))


def test_a_section_that_a_code_cell_declares_is_refused(put):
    cell = v4.new_code_cell("x = 1", metadata=heading("a").metadata)
    assert refused(put, cell) == "cell 4: declares section 'a', but is no Markdown cell with a heading"


def test_a_check_before_the_first_section_is_refused_with_its_cell(put, book):
    notebook = book(check("a"))
    notebook.cells[2], notebook.cells[3] = notebook.cells[3], notebook.cells[2]
    path = put("demo")
    path.write_text(v4.writes(notebook))
    with pytest.raises(InputError, match=r"cell 3 line 1: check 'demo\.a' stands outside any section"):
        read_chapter(path)


# ------------------------------------------------------------------------------------------------------------- selected


def names(sections):
    return [section.name for section in sections]


def test_the_closure_holds_what_is_needed_in_reading_order(chapter):
    assert names(closure(chapter.sections, ["c"])) == ["a", "b", "c"]
    assert names(closure(chapter.sections, ["d", "a"])) == ["a", "d"]


def test_a_level_runs_the_sections_of_lower_levels_too(chapter):
    ran = {level: names(plan_of(chapter, level).sections) for level in ("smoke", "quick", "standard")}
    assert ran == {"smoke": ["all", "a"][1:], "quick": ["all", "a", "b", "c"], "standard": ["all", "a", "b", "c", "d"]}


def test_an_excerpt_keeps_the_cells_before_the_first_section_the_closure_and_the_verdict(chapter):
    plan = plan_of_checks(chapter, "quick", ["demo.b"])
    sources = [cell.source for cell in plan.notebook.cells if cell.cell_type == "code"]
    assert sources[2:] == ["x = 2", check("a", "x"), "y = x", check("b", "y"), "verdict()"]
    assert sources[0].startswith("device = ") and sources[1].startswith("from xpulab")
    assert [each.name for each in plan.checks] == ["demo.a", "demo.b"]


def test_the_cells_of_an_excerpt_keep_their_numbers(chapter):
    plan = plan_of_checks(chapter, "quick", ["demo.d"])
    numbers = [cell.metadata["xpulab"]["cell"] for cell in plan.notebook.cells if cell.cell_type == "code"]
    assert numbers == [1, 2, 8, 9]


def test_a_glob_selects_checks_of_several_notebooks_and_leaves_out_the_others(put, tmp_path):
    for name in ("one", "two", "three"):
        put(name, heading(name), f'check.equal("demo.{name}", 2, 2, control=3)')
    plans = make_plans([str(tmp_path / "*.ipynb")], "quick", ["demo.t*"])
    assert [(plan.name, plan.partial, [each.name for each in plan.checks]) for plan in plans] == [
        ("three", True, ["demo.three"]),
        ("two", True, ["demo.two"]),
    ]


def test_a_glob_that_matches_nothing_is_refused(chapter):
    with pytest.raises(InputError, match=r"no check 'demo\.z\*'"):
        make_plans([str(chapter.path)], "quick", ["demo.z*"])


def test_a_need_that_is_missing_is_refused_with_the_name_and_its_cell(put):
    path = put("demo", heading("a"), "x = 2", heading("b"), check("b", "x"))
    with pytest.raises(InputError, match=r"sections b use x in cell 4, which they do not define: add the section"):
        make_plans([str(path)], "quick", ["demo.b"])


# ----------------------------------------------------------------------------------------------------- the real notebooks


@pytest.mark.parametrize("path", sorted(files.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
class TestTheNotebooks:
    def test_no_closure_uses_a_name_that_it_does_not_define(self, path):
        chapter = read_chapter(path)
        undefined = {}
        for section in chapter.sections:
            checks = [each.name for each in chapter.checks if chapter.section_of(each) is section]
            if checks:
                undefined[section.name] = undefined_names(plan_of_checks(chapter, "quick", checks).notebook)
        assert undefined and not any(undefined.values())

    def test_each_has_a_check_at_level_smoke(self, path):
        assert plan_of(read_chapter(path), "smoke").checks

    def test_every_heading_declares_a_section(self, path):
        cells = [cell for cell in read_chapter(path).notebook.cells if cell.cell_type == "markdown"]
        headings = [cell for cell in cells if cell.source.lstrip().startswith(("## ", "### "))]
        assert headings and all("section" in cell.metadata.get("xpulab", {}) for cell in headings)
