"""The time of an executed notebook is added up by section."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import peers
import psutil
import pytest
from nbformat import v4
from where_time_goes import START, chapters_of, format_times, spent_in, time_of

from xpulab import files
from xpulab.harness.plan import read_plan
from xpulab.harness.sections import CELL_NUMBER
from xpulab.records.record import Record


def cell(took, checks=0.0):
    """A code cell that has run. took: seconds."""
    began, ended = "2026-11-28T08:00:00.500000Z", f"2026-11-28T08:00:{took + 0.5:09.6f}Z"
    times = {"iopub.execute_input": began, "shell.execute_reply": ended}
    made = v4.new_code_cell("pass", execution_count=1, metadata={"execution": times})
    if checks:
        metadata = Record("demo.one", "passed", "one is one", seconds=checks).to_metadata()
        made.outputs = [v4.new_output("display_data", data={}, metadata=metadata)]
    return made


def section(name):
    return v4.new_markdown_cell(f"## {name}", metadata={"xpulab": {"section": name}})


def notebook(*cells, seconds=20.0):
    return v4.new_notebook(cells=list(cells), metadata={"xpulab": {"run": {"seconds": seconds}}})


MEASURED = notebook(
    cell(1.0),
    section("one"),
    cell(4.0, checks=2.0),
    v4.new_markdown_cell("text"),
    cell(2.0),
    section("two"),
    cell(3.0),
)


def test_a_cell_belongs_to_the_section_above_it():
    sections = time_of("demo", MEASURED).sections
    assert {name: spent.cells for name, spent in sections.items()} == {START: 1.0, "one": 6.0, "two": 3.0}
    assert spent_in(MEASURED.cells[2]).share_of_checks == 0.5
    assert "| demo, one | 6.0 | 33% |" in format_times([time_of("demo", MEASURED)], 40)


@pytest.mark.integration
def test_the_longest_chapter_comes_first_and_excerpts_are_left_out(tmp_path):
    (tmp_path / "notebooks").mkdir()
    short = notebook(section("only"), cell(0.5))
    for name, made in {"01_short": short, "02_long": MEASURED}.items():
        nbformat.write(made, tmp_path / "notebooks" / f"{name}.ipynb")
    nbformat.write(v4.new_notebook(cells=[cell(9.0)]), tmp_path / "notebooks" / "01_short.source.ipynb")
    assert [chapter.name for chapter in chapters_of(tmp_path)] == ["02_long", "01_short"]


@pytest.mark.integration
def test_the_processor_time_of_an_orphan_counts_and_what_runs_on_at_the_limit_is_killed(tmp_path):
    (tmp_path / "run.py").write_text(f"import where_time_goes as w; from pathlib import Path; import sys\n{MEASURE}")
    environment = {**os.environ, "PYTHONPATH": str(files.ROOT / "tools" / "benchmarks")}
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    code, used, limited, sleeping = done.stdout.split()
    assert (code, limited, psutil.pid_exists(int(sleeping))) == ("3", "None", False) and float(used) >= 0.3, done.stderr


MEASURE = """
orphan = "import time\\nwhile time.process_time() < 0.3: pass"
one = w.measure(["sh", "-c", f"{sys.executable} -c '{orphan}' & exit 3"], Path("."))
two = w.measure(["sh", "-c", "sleep 1000 & echo $!; sleep 1000"], Path("."), limit=1)
print(one.exit_code, one.processor_seconds, two.exit_code, two.output)
"""


def test_the_copies_of_other_tools_are_whole_notebooks(tmp_path):
    """18 has sections above level quick, so that its copy is an excerpt; an excerpt's cells keep their old numbers."""
    (copy,) = peers.write_quick([path for path in files.NOTEBOOKS.glob("18_*.ipynb")], tmp_path)
    cells = nbformat.read(copy, as_version=4).cells
    assert not any(CELL_NUMBER in written.metadata.get("xpulab", {}) for written in cells)
    assert read_plan(copy, "standard").is_whole
