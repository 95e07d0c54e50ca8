"""A verdict comes from the executed notebook alone, and nothing that it lacks or shows otherwise passes."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict

import nbformat
import pytest
from nbformat import v4

from xpulab.errors import InputError
from xpulab.harness.execute import Run
from xpulab.harness.judge import judge, not_run
from xpulab.harness.plan import read_plan
from xpulab.records.record import Record, RunContext

GOOD = 'check.equal("demo.good", 2, 2, control=3, means="two is two")'
PASSED = Record("demo.good", "passed", "two is two", control="rejected")


def shows(record, detail=""):
    """The output of a check, as xpulab.checks.check writes it."""
    text = f"{record.outcome:<8}{record.name}  {record.means}{detail}"
    return v4.new_output("display_data", data={"text/plain": text}, metadata=record.to_metadata())


def ran_on(device):
    return v4.new_output("display_data", data={"text/plain": "the device"}, metadata=RunContext(device, 1).to_metadata())


class Case:
    """A committed notebook, and one that was executed from it, to be changed before it is judged."""

    def __init__(self, notebook, folder):
        self.folder, self.committed = folder, notebook
        for count, cell in enumerate(self._code(notebook), start=1):
            cell.execution_count = count
        self.parameters, self.run_context, self.time, self.check, self.last = self._code(notebook)
        self.executed = self.show(PASSED)

    def show(self, record, device="cpu"):
        """Makes the committed outputs, and the executed ones with this record from this device."""
        self.run_context.outputs = [ran_on("cpu")]
        self.time.outputs = [v4.new_output("stream", text="took 3 s\n")]
        self.check.outputs = [shows(PASSED)]
        self.executed = copy.deepcopy(self.committed)
        _, run_context, time, check, _ = self._code(self.executed)
        run_context.outputs, time.outputs = [ran_on(device)], [v4.new_output("stream", text="took 5 s\n")]
        check.outputs = [shows(record)]
        return self.executed

    def code(self, number):
        """Code cell `number`, counted from 1, of the executed notebook."""
        return self._code(self.executed)[number - 1]

    def run(self, **changed):
        """Writes down how the executed notebook was run."""
        run = asdict(Run("cpu", "quick", 1, 2.0, 30.0, None))
        self.executed.metadata["xpulab"]["run"] = {**run, **changed}

    def verdict(self):
        (self.folder / "copied").mkdir(exist_ok=True)
        nbformat.write(self.committed, self.folder / "demo.ipynb")
        nbformat.write(self.executed, self.folder / "copied" / "demo.ipynb")
        return judge(read_plan(self.folder / "demo.ipynb", "quick"), self.folder / "copied" / "demo.ipynb")

    @staticmethod
    def _code(notebook):
        return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture
def case(book, tmp_path):
    heading = v4.new_markdown_cell("# A demo")
    time = v4.new_code_cell("print(clock)", metadata={"tags": ["nbval-ignore-output"]})
    return Case(book(heading, time, GOOD), tmp_path)


def red(verdict):
    assert verdict.outcome == "failed"
    return " | ".join(verdict.reasons)


# --------------------------------------------------------------------------------------------------- nothing is missing


def test_an_executed_notebook_from_elsewhere_is_judged(case):
    verdict = case.verdict()
    assert (verdict.outcome, verdict.reasons, verdict.run) == ("passed", (), None)
    assert (verdict.records, verdict.compared, verdict.run_context) == ((PASSED,), 1, RunContext("cpu", 1))
    assert verdict.notes == ("it was not run by xpulab: no time and no device are on record",)


def test_a_check_whose_record_was_removed_is_missing(case):
    case.code(4).outputs = []
    verdict = case.verdict()
    assert [(record.name, record.outcome) for record in verdict.records] == [("demo.good", "missing")]
    assert "1 of 1 checks are red: demo.good" in red(verdict)


def test_a_check_whose_record_lost_its_metadata_is_missing_however_its_text_reads(case):
    case.code(4).outputs[0].metadata = {}
    assert "demo.good" in red(case.verdict())


def test_a_record_that_was_never_planned_is_broken(case):
    case.code(4).outputs.append(shows(Record("demo.more", "passed", "more", control="rejected")))
    verdict = case.verdict()
    assert [(record.name, record.outcome) for record in verdict.records][1:] == [("demo.more", "broken")]
    assert "demo.more" in red(verdict)


@pytest.mark.parametrize("outcome", ["failed", "broken", "missing"])
def test_a_red_record_makes_the_notebook_red_and_its_text_is_not_compared_on_top(case, outcome):
    case.show(Record("demo.good", outcome, "two is two"))
    assert red(case.verdict()) == "1 of 1 checks are red: demo.good"


@pytest.mark.parametrize("outcome", ["known", "fixed"])
def test_a_known_defect_is_no_reason_to_be_red(case, outcome):
    case.show(Record("demo.good", outcome, "two is two"), device="gpu")
    assert case.verdict().outcome == "passed"


def test_a_record_with_an_outcome_that_no_one_knows_is_red(case):
    with_another_check(case, PASSED, "cpu")
    case.code(4).outputs[0].metadata["xpulab"]["check"]["outcome"] = "splendid"
    assert case.verdict().outcome == "failed"


def test_nothing_but_skips_is_red(case):
    case.show(Record("demo.good", "skipped", "no card", reason="no card"), device="gpu")
    assert red(case.verdict()) == "nothing was compared, so the notebook is not green"


def test_a_notebook_without_any_check_is_red(book, tmp_path):
    nbformat.write(book("x = 1"), tmp_path / "none.ipynb")
    verdict = judge(read_plan(tmp_path / "none.ipynb", "quick"), tmp_path / "none.ipynb")
    assert red(verdict) == "nothing was compared, so the notebook is not green"


@pytest.mark.parametrize("outcome", ["skipped", "missing"])
def test_a_notebook_that_was_not_run_lists_all_its_checks(case, outcome):
    case.verdict()
    verdict = not_run(read_plan(case.folder / "demo.ipynb", "quick"), outcome, "it needs 2 cards")
    assert (verdict.outcome, verdict.reasons, verdict.executed, verdict.compared) == (outcome, ("it needs 2 cards",), None, 0)
    assert [(record.name, record.outcome, record.reason) for record in verdict.records] == [
        ("demo.good", outcome, "it needs 2 cards")
    ]


def test_an_executed_file_that_is_no_notebook_is_refused_with_its_name(case):
    case.verdict()
    torn = case.folder / "torn.ipynb"
    torn.write_text("{")
    with pytest.raises(InputError, match=r"torn.ipynb line 1: not JSON"):
        judge(read_plan(case.folder / "demo.ipynb", "quick"), torn)


# ------------------------------------------------------------------------------------------------------- how it was run


def test_a_notebook_that_was_stopped_is_red_though_its_checks_passed(case):
    case.run(stopped="the kernel died in cell 5")
    assert red(case.verdict()) == "the kernel died in cell 5"


def test_a_notebook_that_ran_on_another_device_than_asked_is_red(case):
    case.run(device="xpu")
    assert red(case.verdict()) == "it was to run on xpu, but ran on cpu"


def test_a_cell_that_raised_is_red_though_the_checks_passed(case):
    case.code(5).outputs = [v4.new_output("error", ename="OSError", evalue="disk full\nmore", traceback=[])]
    assert red(case.verdict()) == "cell 5 of section all raised OSError: disk full"


def test_an_exception_without_words_is_told(case):
    case.code(1).outputs = [v4.new_output("error", ename="KeyboardInterrupt", evalue="", traceback=[])]
    assert red(case.verdict()).startswith("cell 1 raised KeyboardInterrupt")


def test_the_verdicts_own_error_is_not_told_twice(case):
    case.show(Record("demo.good", "failed", "two is two"))
    case.code(5).outputs = [v4.new_output("error", ename="NotebookIsRed", evalue="1 of 1", traceback=[])]
    assert red(case.verdict()) == "1 of 1 checks are red: demo.good"


def test_the_verdicts_own_error_counts_when_no_check_is_red(case):
    case.code(5).outputs = [v4.new_output("error", ename="NotebookIsRed", evalue="nothing", traceback=[])]
    assert red(case.verdict()) == "cell 5 of section all raised NotebookIsRed: nothing"


def test_cells_that_papermill_added_are_neither_counted_nor_compared(case):
    note = v4.new_markdown_cell("An exception", metadata={"tags": ["papermill-error-cell-tag"]})
    injected = v4.new_code_cell('device = "cpu"', metadata={"tags": ["injected-parameters"]})
    case.executed.cells[:1] = [note, case.executed.cells[0], injected]
    assert case.verdict().outcome == "passed"
    case.code(6).outputs = [v4.new_output("error", ename="OSError", evalue="disk full", traceback=[])]
    assert red(case.verdict()) == "cell 5 of section all raised OSError: disk full"


@pytest.mark.parametrize(("seconds", "notes"), [(44.0, ()), (46.0, ("it took 46 s, its budget is 30 s",))])
def test_overrunning_the_budget_by_half_is_noted_and_not_red(case, seconds, notes):
    case.run(seconds=seconds)
    verdict = case.verdict()
    assert (verdict.outcome, verdict.notes) == ("passed", notes)


# ------------------------------------------------------------------------------------------------ the text that is shown


def test_executed_cells_that_were_edited_are_red(case):
    case.code(4).source += "  # edited"
    assert "its cells are not those of the committed notebook" in red(case.verdict())


def test_an_executed_cell_that_was_dropped_is_red(case):
    case.executed.cells.remove(case.code(3))
    assert "its cells are not those of the committed notebook" in red(case.verdict())


def test_another_text_is_red_with_what_both_say(case):
    case.code(2).outputs[0].data["text/plain"] = "another device"
    assert red(case.verdict()) == (
        "cell 2 shows text that differs from the committed notebook: 'another device', not 'the device'"
    )


def test_an_output_too_many_is_red(case):
    case.code(2).outputs.append(v4.new_output("stream", text="a warning\n"))
    assert red(case.verdict()).startswith("cell 2 shows text that differs from the committed notebook")


def test_an_output_of_the_same_kind_too_many_is_red(case):
    case.code(2).outputs.append(v4.new_output("display_data", data={"text/plain": "more"}))
    assert red(case.verdict()).startswith("cell 2 shows text that differs from the committed notebook")


def test_an_output_too_few_is_red(case):
    case.run_context.outputs.append(v4.new_output("stream", text="committed\n"))
    assert red(case.verdict()).startswith("cell 2 shows text that differs from the committed notebook")


def test_text_in_a_cell_tagged_nbval_ignore_output_is_not_compared(case):
    assert case.time.outputs[0].text != case.code(3).outputs[0].text
    assert case.verdict().outcome == "passed"


def test_without_that_tag_the_same_text_is_red(case):
    for cell in (case.time, case.code(3)):
        cell.metadata = {}
    assert red(case.verdict()) == "cell 3 shows text that differs from the committed notebook: 'took 5 s', not 'took 3 s'"


def test_a_cell_whose_outputs_were_never_committed_is_not_compared(case):
    case.run_context.outputs, case.run_context.execution_count = [], None
    assert case.verdict().outcome == "passed"


def test_metadata_pictures_and_counts_are_not_compared(case):
    case.code(2).execution_count = 40
    case.code(2).outputs[0].metadata["more"] = 1
    case.code(2).outputs[0].data["image/png"] = "aGVsbG8="
    assert case.verdict().outcome == "passed"


@pytest.mark.parametrize("outcome", ["skipped", "known", "fixed"])
def test_on_the_cpu_a_check_that_came_out_otherwise_than_committed_is_red(case, outcome):
    case.show(Record("demo.good", outcome, "another reason"))
    assert "cell 4 shows text that differs from the committed notebook" in red(case.verdict())


def with_another_check(case, record, device):
    """As `case`, with a second check that passes, so that a skipped first one leaves something compared."""
    other = Record("demo.other", "passed", "three is three", control="rejected")
    case.check.source += '\ncheck.equal("demo.other", 3, 3, control=4, means="three is three")'
    case.show(record, device)
    case.check.outputs.append(shows(other))
    case.code(4).outputs.append(shows(other))


@pytest.mark.parametrize("outcome", ["skipped", "known", "fixed"])
def test_on_another_device_a_check_may_be_skipped_or_known(case, outcome):
    with_another_check(case, Record("demo.good", outcome, "why"), "gpu")
    assert case.verdict().reasons == ()


def test_on_another_device_a_failed_check_is_red(case):
    with_another_check(case, Record("demo.good", "failed", "two is two"), "gpu")
    assert red(case.verdict()) == "1 of 2 checks are red: demo.good"


def test_on_another_device_a_line_that_reads_failed_is_red_whatever_its_record_says(case):
    with_another_check(case, PASSED, "gpu")
    case.code(4).outputs[0].data["text/plain"] = "failed  demo.good  two is two"
    assert "cell 4 shows text that differs from the committed notebook" in red(case.verdict())


def test_on_another_device_all_other_text_is_compared_as_ever(case):
    case.show(PASSED, "gpu")
    case.code(2).outputs[0].data["text/plain"] = "another device"
    assert "'another device', not 'the device'" in red(case.verdict())


def test_the_notebook_that_is_judged_is_left_as_it_was(case):
    case.run()
    case.verdict()
    written = (case.folder / "copied" / "demo.ipynb").read_text()
    judge(read_plan(case.folder / "demo.ipynb", "quick"), case.folder / "copied" / "demo.ipynb")
    assert (case.folder / "copied" / "demo.ipynb").read_text() == written
    assert json.loads(written)["metadata"]["xpulab"]["run"]["stopped"] is None
