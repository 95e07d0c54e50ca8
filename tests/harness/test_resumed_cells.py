"""What is kept of an interrupted notebook, what is run again, and what the joined notebook shows."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbformat import v4

from tests.harness.conftest import section
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
    for name in ("notebooks", "rest"):
        (tmp_path / "out" / name).mkdir(parents=True)
    return tmp_path / "out"


@pytest.fixture
def ran(plan, folder):
    """ran(5): the notebook as papermill leaves it when it is killed in code cell 5; red: names of checks that failed.

    plan: an excerpt; the number is still that in the whole notebook. run: the metadata of one that was not killed.
    """

    def write(killed_in, red=(), asked=plan, where="notebooks", text="first", run=None):
        notebook = nbformat.from_dict(asked.notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, cell in enumerate(code, start=1):
            number = cell.metadata.get("xpulab", {}).get("cell", number)
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
        nbformat.write(notebook, folder / where / "chapter.ipynb")

    return write


def sections_of(plan):
    return [section.name for section in plan.sections]


def means_of(folder):
    """By check what its record says it means: in which run it was made."""
    notebook = nbformat.read(folder / "notebooks" / "chapter.ipynb", as_version=4)
    records = [output.metadata["xpulab"]["check"] for cell in notebook.cells for output in cell.get("outputs", [])]
    return {record["name"]: (record["means"], record["outcome"]) for record in records}


def test_a_notebook_that_never_ran_runs_as_a_whole(plan, folder):
    begun = resume.begin(plan, folder)
    assert begun.rest is plan and resume.records_of(begun) == []


def test_a_notebook_that_has_ended_does_not_run_again(plan, folder, ran):
    ran(99, run=RUN)
    assert resume.begin(plan, folder).rest is None


@pytest.mark.parametrize("reason", ["interrupted", "interrupted; papermill did not return from it"])
def test_a_notebook_that_was_interrupted_has_not_ended(plan, folder, ran, reason):
    ran(6, run={**RUN, "stopped": reason})
    assert resume.begin(plan, folder).rest is not None


@pytest.mark.parametrize(
    ("killed_in", "left"),
    [(2, ["all", "a", "b", "c"]), (4, ["a", "b", "c"]), (5, ["a", "b", "c"]), (6, ["a", "c"]), (7, [])],
)
def test_what_is_left_runs_with_what_it_needs(plan, folder, ran, killed_in, left):
    ran(killed_in)
    assert [name for name in sections_of(resume.begin(plan, folder).rest) if name != "all"] == [
        name for name in left if name != "all"
    ]


def raise_in(folder, number, where="notebooks"):
    """Code cell `number` of what was executed raised, and nothing of what needs its section ran."""
    path = folder / where / "chapter.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cell = [cell for cell in notebook.cells if cell.cell_type == "code"][number - 1]
    cell.outputs = [v4.new_output("error", ename="OSError", evalue="disk", traceback=[])]
    cell.metadata.papermill.status = "failed"
    nbformat.write(notebook, path)


def test_a_section_that_raised_is_not_run_again_nor_what_needs_it(plan, folder, ran):
    ran(5)
    raise_in(folder, 4)
    begun = resume.begin(plan, folder)
    assert sections_of(begun.rest) == ["b"]
    told = json.loads(begun.records.read_text())["left_out"]
    assert told["missing"] == dict.fromkeys(("demo.a", "demo.c"), "after cell 4 of section a raised")
    ran(99, asked=begun.rest, where="rest", text="second", run=RUN)
    verdict = judge(plan, resume.finish(begun, folder))
    assert {record.name: record.outcome for record in verdict.records} == {
        "demo.a": "missing",
        "demo.b": "passed",
        "demo.c": "missing",
    }
    assert verdict.reasons[0] == "cell 4 of section a raised OSError: disk"


def test_a_section_that_raises_when_it_runs_again_is_lost(plan, folder, ran):
    ran(6)
    begun = resume.begin(plan, folder)
    ran(99, asked=begun.rest, where="rest", text="second", run=RUN)
    raise_in(folder, 3, where="rest")
    verdict = judge(plan, resume.finish(begun, folder))
    assert verdict.reasons[0] == "cell 3 of section a raised OSError: disk"


@pytest.mark.parametrize("went_on", [True, False])
def test_a_section_that_cost_its_kernel_is_not_run_again_and_the_new_kernel_is_noted(plan, folder, ran, went_on):
    ran(5)
    path = folder / "notebooks" / "chapter.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cell = [cell for cell in notebook.cells if cell.cell_type == "code"][3]
    mark(cell, KernelLoss(DIED, went_on=went_on))
    nbformat.write(notebook, path)
    begun = resume.begin(plan, folder)
    assert sections_of(begun.rest) == ["b"]
    ran(99, asked=begun.rest, where="rest", text="second", run=RUN)
    verdict = judge(plan, resume.finish(begun, folder))
    assert verdict.reasons[0] == "the kernel died in cell 4 of section a"
    assert ("the kernel died in cell 4 of section a; went on in a new kernel" in verdict.notes) is went_on


def test_a_damaged_notebook_is_run_again(plan, folder, ran):
    ran(6)
    executed = folder / "notebooks" / "chapter.ipynb"
    executed.write_text(executed.read_text()[:-40])
    assert sections_of(resume.begin(plan, folder).rest) == sections_of(plan)


def finish(plan, folder, ran, killed_in=99, **options):
    begun = resume.begin(plan, folder)
    ran(killed_in, asked=begun.rest, where="rest", text="second", run=RUN, **options)
    return resume.finish(begun, folder)


def test_a_finished_section_shows_what_it_showed_first(plan, folder, ran):
    ran(6)
    finish(plan, folder, ran)
    assert means_of(folder) == {"demo.a": ("first", "passed"), "demo.b": ("first", "passed"), "demo.c": ("second", "passed")}


def test_of_a_check_that_ran_twice_the_red_one_counts(plan, folder, ran):
    ran(6)
    finish(plan, folder, ran, red=["demo.a"])
    assert means_of(folder)["demo.a"] == ("second", "failed")


def test_a_red_check_of_a_section_that_had_not_finished_stays(plan, folder, ran):
    ran(5, red=["demo.a"])
    begun = resume.begin(plan, folder)
    assert [record.outcome for record in resume.records_of(begun)] == ["failed"]
    finish(plan, folder, ran)
    assert means_of(folder)["demo.a"] == ("first", "failed")


def test_what_the_interrupted_cell_recorded_is_not_kept(plan, folder, ran):
    ran(6, red=["demo.b"], run={**RUN, "stopped": "interrupted"})
    notebook = nbformat.read(folder / "notebooks" / "chapter.ipynb", as_version=4)
    notebook.cells[-2].metadata.papermill.start_time = None  # it was interrupted in cell 5, which recorded a red check
    nbformat.write(notebook, folder / "notebooks" / "chapter.ipynb")
    begun = resume.begin(plan, folder)
    assert [record.name for record in resume.records_of(begun)] == ["demo.a"]
    assert sections_of(begun.rest) == sections_of(plan)[1:]


def test_a_resume_that_is_killed_keeps_what_both_runs_finished(plan, folder, ran):
    ran(5)
    begun = resume.begin(plan, folder)
    ran(6, asked=begun.rest, where="rest", text="second")
    again = resume.begin(plan, folder)
    assert sections_of(again.rest) == ["a", "c"]
    ran(99, asked=again.rest, where="rest", text="third", run=RUN)
    executed = nbformat.read(resume.finish(again, folder), as_version=4)
    assert means_of(folder) == {"demo.a": ("first", "passed"), "demo.b": ("second", "passed"), "demo.c": ("third", "passed")}
    assert executed.metadata["xpulab"]["run"]["resumed"] == 2
    assert executed.metadata["xpulab"]["run"]["seconds"] == 4.0 + 5.0 + 3.0
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["chapter.ipynb"]
