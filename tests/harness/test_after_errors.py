"""After a cell raised, the sections that do not need its section run; the checks of the others name the cell."""

from __future__ import annotations

import nbformat
import pytest

from tests.conftest import make, section
from xpulab.harness.execute import Execution, RunOptions
from xpulab.harness.judge import judge
from xpulab.harness.plan import plan_of_checks, read_plan

pytestmark = pytest.mark.integration

CHECK = 'check.equal("demo.{0}", 2, 2, control=3)'


def sections(raises="raise ValueError('no data')", **changed):
    """Code cells: 3 section all, 4 and 5 data, 6 uses, which needs data, 7 deep, which needs uses, 8 alone, 9 verdict()."""
    return make(
        CHECK.format("first"),
        section("data"),
        f"value = 2\n{CHECK.format('before')}\n{raises}\n{CHECK.format('raising')}",
        CHECK.format("data"),
        section("uses", "data"),
        CHECK.format("uses"),
        section("deep", "uses"),
        CHECK.format("deep"),
        section("alone"),
        CHECK.format("alone"),
        **changed,
    )


@pytest.fixture
def run(tmp_path):
    """run(notebook, check): the verdict on it, or on the sections of one of its checks."""

    def execute(notebook, check=None):
        nbformat.write(notebook, tmp_path / "demo.ipynb")
        plan = read_plan(tmp_path / "demo.ipynb", "quick")
        plan = plan_of_checks(plan.chapter, "quick", [check]) if check else plan
        (tmp_path / "out").mkdir()
        [(_, executed)] = Execution(RunOptions("cpu", "quick", 1), tmp_path / "out").run([plan], 1)
        return judge(plan, executed)

    return execute


def of(verdict):
    return {record.name.removeprefix("demo."): record for record in verdict.records}


def code(verdict):
    """The executed code cells without the one that papermill has added."""
    cells = nbformat.read(verdict.executed, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code" and cell.metadata.get("tags") != ["injected-parameters"]]


def test_what_does_not_need_the_section_runs_and_the_rest_is_missing_with_the_cell_that_raised(run):
    verdict = run(sections())
    records = of(verdict)
    assert {name: record.outcome for name, record in records.items()} == {
        **dict.fromkeys(("first", "before", "alone"), "passed"),
        **dict.fromkeys(("raising", "data", "uses", "deep"), "missing"),
    }
    assert {records[name].reason for name in ("raising", "data", "uses", "deep")} == {"after cell 4 of section data raised"}
    assert verdict.reasons[0] == "cell 4 of section data raised ValueError: no data"
    assert not any("NotebookIsRed" in reason for reason in verdict.reasons) and verdict.run.stopped is None
    assert [cell.execution_count is None for cell in code(verdict)] == [False] * 4 + [True] * 3 + [False, True]


def test_after_a_cell_before_the_first_section_nothing_runs(run):
    notebook = sections()
    notebook.cells[1].source += "\n1 / 0"
    verdict = run(notebook)
    assert {record.reason for record in verdict.records} == {"after cell 2 raised"}
    assert [cell.execution_count is None for cell in code(verdict)] == [False] * 2 + [True] * 7
    assert verdict.reasons[0].startswith("cell 2 raised ZeroDivisionError")
