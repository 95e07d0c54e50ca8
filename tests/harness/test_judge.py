"""The judge alone: an executed notebook in, a verdict out, without any kernel."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict

import nbformat
import pytest
from nbformat import v4

from xpulab.harness.execute import Run
from xpulab.harness.judge import judge, not_run
from xpulab.harness.plan import read_plan
from xpulab.record import Record, Setting

RUN = Run(device="cpu", level="quick", cards=1, seconds=2.0, budget_seconds=30.0, stopped=None)
ONE = 'check.equal("demo.one", 2, 2, control=3)'
TWO = 'check.equal("demo.two", 2, 2, control=3)'
FIRST, SECOND, LAST = 2, 3, 4  # where the two checks and the verdict stand


def seen(name, outcome="passed", means="two is two"):
    """What a check shows."""
    record = Record(name, outcome, means, measured=0.0, expected="equal", control="rejected", reason="why")
    line = f"{outcome:<8}{name}  {means}"
    return v4.new_output("display_data", {"text/plain": line}, metadata=record.to_metadata())


def says(text):
    return v4.new_output("stream", name="stdout", text=text)


def set_in(device):
    """What a notebook's first cell shows."""
    return v4.new_output("display_data", {"text/plain": "the setting"}, metadata=Setting(device, 1).to_metadata())


class Case:
    """A committed notebook with outputs, and what came of executing it, to be changed by a test."""

    def __init__(self, book, folder):
        self.folder = folder
        self.committed = book(ONE, TWO)
        for count, cell in enumerate(self.committed.cells, start=1):
            cell.execution_count = count
        self.committed.cells[1].outputs = [set_in("cpu")]
        self.committed.cells[FIRST].outputs = [seen("demo.one")]
        self.committed.cells[SECOND].outputs = [seen("demo.two")]
        self.committed.cells[LAST].outputs = [says("2 passed in 0.1 s\n")]
        self.executed = deepcopy(self.committed)
        self.run = asdict(RUN)

    def judge(self):
        if self.run:
            self.executed.metadata["xpulab"]["run"] = self.run
        nbformat.write(self.committed, self.folder / "demo.ipynb")
        (self.folder / "out").mkdir()
        nbformat.write(self.executed, self.folder / "out" / "demo.ipynb")
        return judge(read_plan(self.folder / "demo.ipynb", "quick"), self.folder / "out" / "demo.ipynb")

    def on(self, device):
        """Executed on another device, and says so."""
        self.run["device"] = device
        self.executed.cells[1].outputs = [set_in(device)]
        return self

    @property
    def cells(self):
        return self.executed.cells


@pytest.fixture
def case(book, tmp_path):
    return Case(book, tmp_path)


def outcomes(verdict):
    return {record.name: record.outcome for record in verdict.records}


# ------------------------------------------------------------------------------------------------------------- green


def test_what_was_planned_seen_and_reads_the_same_is_green(case):
    verdict = case.judge()
    assert (verdict.outcome, verdict.reasons, verdict.notes, verdict.compared) == ("passed", (), (), 2)
    assert (verdict.run, verdict.setting) == (RUN, Setting("cpu", 1))


def test_a_notebook_that_something_else_executed_can_be_judged(case):
    case.run = None
    verdict = case.judge()
    assert (verdict.outcome, verdict.run) == ("passed", None)
    assert verdict.notes == ("it was not run by xpulab: no time and no device are on record",)


def test_the_cells_that_papermill_adds_are_no_edit(case):
    case.cells.insert(1, v4.new_code_cell('device = "cpu"', metadata={"tags": ["injected-parameters"]}))
    assert case.judge().outcome == "passed"


def test_an_overrun_is_noted_and_not_judged(case):
    case.run["seconds"] = 46.0
    assert (verdict := case.judge()).outcome == "passed" and verdict.notes == ("it took 46 s, its budget is 30 s",)


def test_up_to_one_and_a_half_budgets_nothing_is_noted(case):
    case.run["seconds"] = 45.0
    assert case.judge().notes == ()


# --------------------------------------------------------------------------------------------------- nothing goes missing


def test_a_record_that_is_gone_is_missing(case):
    case.cells[SECOND].outputs = []
    verdict = case.judge()
    assert outcomes(verdict) == {"demo.one": "passed", "demo.two": "missing"}
    assert verdict.outcome == "failed" and "1 of 2 checks are not well: demo.two" in verdict.reasons


def test_a_record_that_nobody_planned_is_broken(case):
    case.cells[FIRST].outputs.append(seen("demo.three"))
    verdict = case.judge()
    assert outcomes(verdict)["demo.three"] == "broken" and verdict.outcome == "failed"


@pytest.mark.parametrize("outcome", ["failed", "broken"])
def test_a_red_check_makes_the_notebook_red(case, outcome):
    case.cells[SECOND].outputs = [seen("demo.two", outcome)]
    verdict = case.judge()
    assert verdict.outcome == "failed"
    assert verdict.reasons == ("1 of 2 checks are not well: demo.two",), "that its text differs too is no news"


@pytest.mark.parametrize("last", ["passed", "skipped"])
def test_a_later_record_of_the_same_name_does_not_hide_a_red_one(case, last):
    case.cells[SECOND].outputs = [seen("demo.two", "failed"), seen("demo.two", last)]
    verdict = case.judge()
    assert (outcomes(verdict)["demo.two"], verdict.outcome) == ("failed", "failed")


def test_nothing_compared_is_red(case):
    for notebook in (case.committed, case.executed):
        notebook.cells[FIRST].outputs, notebook.cells[SECOND].outputs = [seen("demo.one", "skipped")], [seen("demo.two", "skipped")]
    verdict = case.judge()
    assert verdict.outcome == "failed" and verdict.reasons == ("nothing was compared, and nothing compared is not green",)


def test_a_cell_that_raised_after_all_checks_passed_is_red(case):
    case.cells[LAST].outputs = [v4.new_output("error", ename="ValueError", evalue="why\nmore", traceback=[])]
    verdict = case.judge()
    assert verdict.outcome == "failed" and verdict.reasons == ("cell 5 raised ValueError: why",)


def test_an_exception_without_a_word_is_named(case):
    case.cells[LAST].outputs = [v4.new_output("error", ename="AssertionError", evalue="", traceback=[])]
    assert case.judge().reasons == ("cell 5 raised AssertionError: ",)


def test_the_verdicts_own_error_is_told_only_when_no_check_is_red(case):
    case.cells[LAST].outputs = [v4.new_output("error", ename="NotebookIsRed", evalue="1 of 2", traceback=[])]
    assert case.judge().reasons == ("cell 5 raised NotebookIsRed: 1 of 2",)


def test_the_verdicts_own_error_adds_nothing_to_a_red_check(case):
    case.cells[SECOND].outputs = [seen("demo.two", "failed")]
    case.cells[LAST].outputs = [v4.new_output("error", ename="NotebookIsRed", evalue="1 of 2", traceback=[])]
    assert case.judge().reasons == ("1 of 2 checks are not well: demo.two",)


def test_a_notebook_that_was_stopped_is_red_whatever_it_shows(case):
    case.run["stopped"] = "interrupted"
    verdict = case.judge()
    assert (verdict.outcome, verdict.reasons) == ("failed", ("interrupted",))


@pytest.mark.parametrize("outcome", ["skipped", "missing"])
def test_a_notebook_that_did_not_run_has_its_checks_in_that_state(case, outcome):
    case.judge()
    verdict = not_run(read_plan(case.folder / "demo.ipynb", "quick"), outcome, "why")
    assert outcomes(verdict) == {"demo.one": outcome, "demo.two": outcome}
    assert (verdict.outcome, verdict.reasons, verdict.compared, verdict.executed) == (outcome, ("why",), 0, None)


# ------------------------------------------------------------------------------------------------------- the device


def test_a_notebook_that_ran_on_another_device_than_asked_is_red(case):
    case.on("gpu").run["device"] = "xpu"
    verdict = case.judge()
    assert verdict.outcome == "failed" and verdict.reasons == ("it was to run on xpu, but ran on gpu",)


def test_a_notebook_that_was_to_run_on_a_card_must_say_where_it_ran(case):
    case.run["device"] = "gpu"
    for notebook in (case.committed, case.executed):
        notebook.cells[1].outputs = []
    verdict = case.judge()
    assert verdict.outcome == "failed" and "it was to run on gpu, but never said where it ran" in verdict.reasons


# --------------------------------------------------------------------------------------------- the text that is shown


def test_edited_cells_are_red(case):
    case.cells[FIRST].source += "\n"
    verdict = case.judge()
    assert verdict.outcome == "failed" and "its cells are not those of the committed notebook" in verdict.reasons[0]


def test_a_cell_that_is_gone_is_red(case):
    del case.cells[LAST]
    assert "its cells are not those" in case.judge().reasons[0]


def test_another_text_than_the_committed_one_is_red_and_both_are_shown(case):
    case.cells[FIRST].outputs = [seen("demo.one", means="two is three")]
    verdict = case.judge()
    assert verdict.outcome == "failed"
    assert verdict.reasons[0].startswith("cell 3 shows another text than the committed notebook: ")
    assert "'passed  demo.one  two is three', not 'passed  demo.one  two is two'" in verdict.reasons[0]


@pytest.mark.parametrize("outcome", ["skipped", "known", "fixed"])
def test_on_the_cpu_passed_does_not_look_like_another_outcome(case, outcome):
    case.cells[FIRST].outputs = [seen("demo.one", outcome)]
    assert case.judge().outcome == "failed"


@pytest.mark.parametrize("outcome", ["skipped", "known", "fixed"])
@pytest.mark.parametrize("device", ["gpu", "xpu"])
def test_on_a_card_passed_skipped_known_and_fixed_look_alike(case, outcome, device):
    case.on(device).cells[FIRST].outputs = [seen("demo.one", outcome, means="other words")]
    verdict = case.judge()
    assert (verdict.outcome, verdict.reasons) == ("passed", ())


def test_on_a_card_another_check_does_not_look_alike(case):
    case.on("gpu").cells[FIRST].outputs = [seen("demo.one"), says("passed  demo.other  two\n")]
    assert case.judge().outcome == "failed"


@pytest.mark.parametrize("outcome", ["failed", "broken"])
def test_on_a_card_a_red_check_is_as_red_as_elsewhere(case, outcome):
    case.on("gpu").cells[FIRST].outputs = [seen("demo.one", outcome)]
    assert case.judge().outcome == "failed"


def test_on_a_card_a_failed_line_does_not_look_like_a_passed_one(case):
    shows = seen("demo.one")
    shows.data["text/plain"] = "failed  demo.one  two is two"
    case.on("gpu").cells[FIRST].outputs = [shows]
    verdict = case.judge()
    assert verdict.outcome == "failed" and "'failed  demo.one" in verdict.reasons[0]


def test_an_output_that_is_gone_is_red(case):
    case.committed.cells[FIRST].outputs.append(says("a line\n"))
    verdict = case.judge()
    assert verdict.outcome == "failed" and verdict.reasons[0].startswith("cell 3 shows another text")


def test_an_output_that_is_new_is_red(case):
    case.cells[FIRST].outputs.append(says("a warning\n"))
    verdict = case.judge()
    assert verdict.outcome == "failed" and verdict.reasons[0].startswith("cell 3 shows another text")


def test_numbers_in_the_metadata_are_not_compared(case):
    record = Record("demo.one", "passed", "two is two", measured=0.25, expected="equal", control="rejected", seconds=9.0)
    case.cells[FIRST].outputs[0].metadata = record.to_metadata()
    assert case.judge().outcome == "passed"


def test_a_cell_tagged_nbval_ignore_output_is_not_compared(case):
    case.cells[LAST].outputs = [says("2 passed in 7.1 s\n")]
    assert case.judge().outcome == "passed"


def test_a_cell_without_that_tag_is_compared(case):
    for notebook in (case.committed, case.executed):
        notebook.cells[LAST].metadata.tags = []
    case.cells[LAST].outputs = [says("2 passed in 7.1 s\n")]
    assert "cell 5 shows another text" in case.judge().reasons[0]


def test_a_notebook_whose_outputs_were_never_committed_is_not_compared(case):
    for cell in case.committed.cells:
        cell.outputs, cell.execution_count = [], None
    assert case.judge().outcome == "passed"


def test_a_figure_is_not_compared_pixel_by_pixel(case):
    for notebook, picture in ((case.committed, "AAAA"), (case.executed, "BBBB")):
        notebook.cells[FIRST].outputs.append(v4.new_output("display_data", {"image/png": picture, "text/plain": "a figure"}))
    assert case.judge().outcome == "passed"
