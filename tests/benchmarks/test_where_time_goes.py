"""The time of an executed notebook is added up by section, and what was not measured is said to be so."""

from __future__ import annotations

import json
import subprocess
import sys

import nbformat
import pytest
from nbformat import v4
from where_time_goes import START, format_table, spent_in, time_of

from xpulab import files
from xpulab.records.processor import ProcessorSeconds, add_to_cell
from xpulab.records.record import Record


def cell(took, used=None, checks=0.0):
    """A code cell that has run. took: seconds. used: processor seconds of kernel, ranks and children."""
    made = v4.new_code_cell("pass", execution_count=1, metadata={"papermill": {"duration": took}})
    if used is not None:
        add_to_cell(made.metadata, ProcessorSeconds(*used))
    if checks:
        metadata = Record("demo.one", "passed", "one is one", seconds=checks).to_metadata()
        made.outputs = [v4.new_output("display_data", data={}, metadata=metadata)]
    return made


def section(name):
    return v4.new_markdown_cell(f"## {name}", metadata={"xpulab": {"section": name}})


def notebook(*cells, seconds=20.0):
    return v4.new_notebook(cells=list(cells), metadata={"xpulab": {"run": {"seconds": seconds}}})


MEASURED = notebook(
    cell(1.0, (0.5, 0.0, 0.0)),
    section("one"),
    cell(4.0, (1.0, 0.5, 0.25), checks=2.0),
    v4.new_markdown_cell("text"),
    cell(2.0, (1.0, 6.0, 0.0)),
    section("two"),
    cell(3.0, (3.0, 0.0, 0.0)),
)


def test_a_cell_belongs_to_the_section_above_it():
    sections = time_of("demo", MEASURED).sections
    assert {name: spent.cells for name, spent in sections.items()} == {START: 1.0, "one": 6.0, "two": 3.0}


def test_waiting_is_what_no_process_accounts_for_and_never_below_zero():
    assert spent_in(cell(4.0, (1.0, 0.5, 0.25))).waiting == 2.25
    assert spent_in(cell(2.0, (1.0, 6.0, 0.0))).waiting == 0.0
    assert time_of("demo", MEASURED).sections["one"].waiting == 2.25


def test_a_section_with_a_cell_that_was_not_measured_is_not_measured():
    spent = time_of("demo", notebook(section("one"), cell(1.0, (1.0, 0.0, 0.0)), cell(1.0))).sections["one"]
    assert (spent.cells, spent.processor, spent.waiting) == (2.0, None, None)
    assert "not measured" in format_table([("one", spent)])


@pytest.fixture
def run_folder(tmp_path):
    """A run of two notebooks, with the excerpt that papermill read for one of them."""
    (tmp_path / "notebooks").mkdir()
    short = notebook(section("only"), cell(0.5, (0.5, 0.0, 0.0)))
    for name, made in {"01_short": short, "02_long": MEASURED}.items():
        nbformat.write(made, tmp_path / "notebooks" / f"{name}.ipynb")
    nbformat.write(v4.new_notebook(cells=[cell(9.0)]), tmp_path / "notebooks" / "01_short.source.ipynb")
    return tmp_path


@pytest.mark.integration
def test_the_command_prints_every_section_as_json(run_folder):
    command = [sys.executable, str(files.ROOT / "tools" / "benchmarks" / "where_time_goes.py"), str(run_folder), "--json"]
    chapters = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)["chapters"]
    assert [chapter["name"] for chapter in chapters] == ["02_long", "01_short"]
    assert chapters[0]["sections"]["one"]["processor"] == {"kernel": 2.0, "ranks": 6.5, "children": 0.25}
