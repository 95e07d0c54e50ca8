"""Copies of chapters can run together: no two share the name of a file or of a check."""

from __future__ import annotations

import sys
from pathlib import Path

import growth
import nbformat
import pytest
from nbformat import v4
from peers import chosen_notebooks
from processes import Measured

from xpulab.harness.plan import make_plans

PARAMETERS = 'device = "auto"\nlevel = "quick"\ncards = 1\nseed = 0'
BUDGET = {"smoke": 20, "quick": 30, "standard": 60}


@pytest.fixture
def source(tmp_path):
    """A chapter with two checks whose names differ in the last character."""
    declared = {"section": "all", "needs": [], "part": "lesson", "level": "smoke"}
    cells = [
        v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        v4.new_markdown_cell("## all", metadata={"xpulab": declared}),
        v4.new_code_cell('check.equal("demo.case-1", 2, 2, control=3)\ncheck.equal("demo.case-2", 2, 2, control=3)'),
    ]
    notebook = v4.new_notebook(cells=cells)
    notebook.metadata["xpulab"] = {"title": "T", "capabilities": ["demo"], "cards": 1, "budget_seconds": BUDGET}
    nbformat.write(notebook, tmp_path / "01_demo.ipynb")
    return tmp_path / "01_demo.ipynb"


def names(path):
    return [check.name for plan in make_plans([str(path)], "quick") for check in plan.checks]


def test_copies_have_names_of_their_own(source, tmp_path):
    copies = growth.write_copies([source], tmp_path / "copies", 4)
    assert len({path.name for path in copies}) == 4
    found = [name for path in copies for name in names(path)]
    assert len(set(found)) == len(found) == 8


def test_the_first_copy_is_the_chapter_itself(source, tmp_path):
    first, *_ = growth.write_copies([source], tmp_path / "copies", 2)
    assert first.read_bytes() == source.read_bytes()


def test_a_name_stays_as_long_as_it_was():
    taken = {"demo.case-1", "demo.case-2"}
    assert growth.new_name("demo.case-2", 1, taken) == "demo.cas1-2"
    assert growth.new_name("demo.other", 1, taken) == "demo.othe1"


def test_a_name_is_replaced_only_where_it_stands_alone():
    text = '"lora.merge" lora.merge-2 my.lora.merge lora.merge. xlora.merge lora.merge.more'
    expected = '"lora.merg1" lora.merge-2 my.lora.merge lora.merg1. xlora.merge lora.merge.more'
    assert growth.rename(text, {"lora.merge": "lora.merg1"}) == expected


@pytest.mark.integration
def test_four_times_all_chapters_can_be_planned_together(tmp_path):
    copies = growth.write_copies(chosen_notebooks("*"), tmp_path / "copies", 4)
    assert len(make_plans(list(map(str, copies)), "smoke")) == len(copies)


def test_more_cores_than_there_are_were_not_measured(monkeypatch):
    monkeypatch.setattr(growth.os, "sched_getaffinity", lambda process: {0})
    monkeypatch.setitem(growth.SERIES, "cores", ((2,), lambda *given: pytest.fail("it was measured")))
    [point] = growth.points("cores", "smoke", (Path("01_demo.ipynb"),), times=1)
    assert growth.format_points([point]).endswith("| 2 cores | not measured: this machine has 1 | | | |")


def test_only_the_sizes_that_were_asked_for_are_measured(monkeypatch):
    run = Measured(0, 1.0, 1.0, 50.0, 0, "")
    monkeypatch.setitem(growth.SERIES, "cards", ((1, 2, 4), lambda *given: run))
    measured = growth.points("cards", "smoke", (Path("01_demo.ipynb"),), times=2, only=[2])
    assert [(point.what, len(point.runs)) for point in measured] == [("2 cards", 2)]


def test_a_point_has_a_row_with_its_spread():
    runs = tuple(Measured(0, seconds, 1.0, 50.0, 0, "") for seconds in (1.0, 3.0))
    table = growth.format_points([growth.Point("cards", 2, "2 cards", runs)])
    assert "| 2 cards | 2.0 (1.0 to 3.0) | 1.0 (1.0 to 1.0) | 50 | green |" in table


def test_an_unknown_series_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["growth.py", "weather"])
    with pytest.raises(SystemExit):
        growth.main()
    assert "no series weather" in capsys.readouterr().err
