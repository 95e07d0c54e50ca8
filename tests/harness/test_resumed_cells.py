"""What is kept of an interrupted notebook, and what it shows after it has run again."""

from __future__ import annotations

import nbformat
import pytest
from nbformat import v4

from tests.conftest import section
from xpulab.harness import resume
from xpulab.harness.judge import judge
from xpulab.harness.lost import DIED, KernelLoss, mark
from xpulab.harness.plan import read_plan
from xpulab.records.processor import ProcessorSeconds, add_to_cell
from xpulab.records.record import Record

STARTED = "2026-11-22T18:00:{:02d}.000000"
RUN = {"device": "cpu", "level": "quick", "cards": 1, "seconds": 3.0, "budget_seconds": 30.0, "stopped": None, "seed": 0}


@pytest.fixture
def plan(put):
    """Code cells: 1 parameters, 2 imports, 3 and 4 section a, 5 section b, 6 section c, which needs a, 7 verdict()."""
    cells = [
        section("a"),
        "a = 1",
        'check.equal("demo.a", a, 1, control=2)',
        section("b"),
        'check.equal("demo.b", 1, 1, control=2)',
        section("c", "a"),
        'check.equal("demo.c", a, 1, control=2)',
    ]
    return read_plan(put("chapter", *cells), "quick")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out" / "notebooks").mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def ran(plan, folder):
    """ran(5): the notebook as papermill leaves it when it is killed in code cell 5; red: names of checks that failed.

    run: the metadata of one that was not killed.
    """

    def write(killed_in, red=(), text="first", run=None):
        notebook = nbformat.from_dict(plan.notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, cell in enumerate(code, start=1):
            done = number < killed_in
            cell.outputs, cell.execution_count = [], number if done else None
            status = "completed" if done else "running" if number == killed_in else "pending"
            cell.metadata["papermill"] = {"status": status, "duration": 1.0 if done else None}
            add_to_cell(cell.metadata, ProcessorSeconds(kernel=0.5, ranks=0.0, children=0.0))
            cell.metadata["papermill"]["start_time"] = STARTED.format(number) if number <= killed_in else None
            if done and "check.equal" in cell.source:
                name = cell.source.split('"')[1]
                record = Record(name, "failed" if name in red else "passed", means=text)
                output = v4.new_output("display_data", {"text/plain": text}, metadata=record.to_metadata())
                cell.outputs = [output]
        if run:
            notebook.metadata["xpulab"] = {**notebook.metadata["xpulab"], "run": run}
        nbformat.write(notebook, folder / "notebooks" / "chapter.ipynb")

    return write


def means_of(folder):
    """By check what its record says it means: in which run it was made."""
    notebook = nbformat.read(folder / "notebooks" / "chapter.ipynb", as_version=4)
    records = [output.metadata["xpulab"]["check"] for cell in notebook.cells for output in cell.get("outputs", [])]
    return {record["name"]: (record["means"], record["outcome"]) for record in records}


def again(plan, folder, ran, killed_in=99, text="second", **options):
    """The notebook goes on, to its end or until it is killed again; its verdict."""
    begun = resume.begin(plan, folder)
    assert not begun.has_ended
    ran(killed_in, text=text, run=RUN if killed_in == 99 else None, **options)
    return judge(plan, resume.finish(plan, folder)) if killed_in == 99 else None


def change(folder, number, how):
    """how(cell) for a code cell of what was executed."""
    path = folder / "notebooks" / "chapter.ipynb"
    notebook = nbformat.read(path, as_version=4)
    how([cell for cell in notebook.cells if cell.cell_type == "code"][number - 1])
    nbformat.write(notebook, path)


def raised(cell):
    cell.outputs = [v4.new_output("error", ename="OSError", evalue="disk", traceback=[])]
    cell.metadata.papermill.status = "failed"


def test_a_notebook_that_never_ran_runs(plan, folder):
    begun = resume.begin(plan, folder)
    assert not begun.has_ended and resume.records_of(begun) == []


def test_a_notebook_that_has_ended_does_not_run_again(plan, folder, ran):
    ran(99, run=RUN)
    assert resume.begin(plan, folder).has_ended and resume.has_ended(plan, folder)


@pytest.mark.parametrize("reason", ["interrupted", "interrupted; papermill did not return from it"])
def test_a_notebook_that_was_interrupted_has_not_ended(plan, folder, ran, reason):
    ran(6, run={**RUN, "stopped": reason})
    assert not resume.begin(plan, folder).has_ended


def died(cell):
    cell.outputs = []
    mark(cell, KernelLoss(DIED))


def test_what_was_green_is_as_it_is_when_it_has_run_again(plan, folder, ran):
    ran(6)
    assert resume.records_of(resume.begin(plan, folder)) == []
    again(plan, folder, ran, red=["demo.a"])
    assert means_of(folder) == {"demo.a": ("second", "failed"), "demo.b": ("second", "passed"), "demo.c": ("second", "passed")}


def test_what_was_red_stays_red(plan, folder, ran):
    ran(5, red=["demo.a"])
    begun = resume.begin(plan, folder)
    assert [(record.name, record.outcome) for record in resume.records_of(begun)] == [("demo.a", "failed")]
    assert resume.variables(begun)
    verdict = again(plan, folder, ran)
    assert means_of(folder)["demo.a"] == ("first", "failed") and verdict.outcome == "failed"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (raised, "cell 4 of section a raised OSError: disk"),
        (died, "the kernel died in cell 4 of section a"),
    ],
    ids=["raised", "died"],
)
def test_a_cell_that_raised_or_cost_its_kernel_stays_so(plan, folder, ran, how, reason):
    ran(5)
    change(folder, 4, how)
    verdict = again(plan, folder, ran)
    assert verdict.reasons[0] == reason
    outcomes = {record.name: record.outcome for record in verdict.records}
    assert (outcomes["demo.a"], outcomes["demo.b"]) == ("missing", "passed")


def test_a_damaged_notebook_is_run_again(plan, folder, ran):
    ran(6)
    executed = folder / "notebooks" / "chapter.ipynb"
    executed.write_text(executed.read_text()[:-40])
    assert not resume.begin(plan, folder).has_ended and not executed.exists()


def test_what_the_interrupted_cell_recorded_is_not_kept(plan, folder, ran):
    ran(6, red=["demo.b"], run={**RUN, "stopped": "interrupted"})
    change(folder, 6, lambda cell: cell.metadata.papermill.pop("start_time"))  # it was interrupted in cell 5
    assert resume.records_of(resume.begin(plan, folder)) == []


def test_what_was_red_stays_so_through_several_kills(plan, folder, ran):
    ran(5, red=["demo.a"])
    again(plan, folder, ran, killed_in=6, red=["demo.b"])
    again(plan, folder, ran, text="third")
    assert means_of(folder) == {"demo.a": ("first", "failed"), "demo.b": ("second", "failed"), "demo.c": ("third", "passed")}
    executed = nbformat.read(folder / "notebooks" / "chapter.ipynb", as_version=4)
    assert executed.metadata["xpulab"]["run"]["resumed"] == 2
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["chapter.ipynb"]


def test_a_kill_between_its_end_and_its_verdict_loses_no_red_cell(plan, folder, ran):
    ran(5, red=["demo.a"])
    resume.begin(plan, folder)
    ran(99, text="second", run=RUN)  # and killed: `finish` was not called
    assert not resume.has_ended(plan, folder)
    assert resume.begin(plan, folder).has_ended
    assert means_of(folder)["demo.a"] == ("first", "failed")
