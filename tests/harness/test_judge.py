"""A verdict comes from the executed notebook alone, and nothing that it lacks or shows otherwise passes."""

from __future__ import annotations

import copy
from dataclasses import asdict

import nbformat
import pytest
from nbformat import v4

from tests.conftest import GOOD
from xpulab.harness.execute import Run
from xpulab.harness.judge import judge, not_run
from xpulab.harness.plan import read_plan
from xpulab.records.record import Record, RunContext

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


def raised(number, name, value):
    error = v4.new_output("error", ename=name, evalue=value, traceback=[])
    return lambda case: case.code(number).update(outputs=[error])


def without_tag(case):
    for cell in (case.time, case.code(3)):
        cell.metadata = {}


MORE = Record("demo.more", "passed", "more", control="rejected")
EDITED = "its cells are not those of the committed notebook"
TEXT = "cell 2 shows text that differs from the committed notebook"
RED = {
    "a record removed": (lambda case: case.code(4).update(outputs=[]), "1 of 1 checks are red: demo.good"),
    "its metadata lost": (lambda case: case.code(4).outputs[0].update(metadata={}), "demo.good"),
    "a record never planned": (lambda case: case.code(4).outputs.append(shows(MORE)), "demo.more"),
    "stopped": (lambda case: case.run(stopped="the kernel died in cell 5"), "the kernel died in cell 5"),
    "another device": (lambda case: case.run(device="xpu"), "it was to run on xpu, but ran on cpu"),
    "raised": (raised(5, "OSError", "disk full\nmore"), "cell 5 of section all raised OSError: disk full"),
    "only the verdict": (raised(5, "NotebookIsRed", "nothing"), "cell 5 of section all raised NotebookIsRed: nothing"),
    "cells edited": (lambda case: case.code(4).update(source=f"{GOOD}  # edited"), EDITED),
    "another text": (lambda case: case.code(2).outputs[0].data.update({"text/plain": "b"}), f"{TEXT}: 'b', not 'the device'"),
    "an output too many": (lambda case: case.code(2).outputs.append(v4.new_output("stream", text="a warning\n")), TEXT),
    "text without the tag": (without_tag, f"{TEXT.replace('2', '3')}: 'took 5 s', not 'took 3 s'"),
}


@pytest.mark.parametrize(("change", "reason"), RED.values(), ids=RED)
def test_what_lacks_or_shows_otherwise_is_red_with_the_reason(case, change, reason):
    change(case)
    assert reason in red(case.verdict())


@pytest.fixture
def with_another(case):
    """with_another(record, device): `case` with a second check that passes, so that a skipped first leaves one compared."""

    def show(record, device):
        other = Record("demo.other", "passed", "three is three", control="rejected")
        case.check.source += '\ncheck.equal("demo.other", 3, 3, control=4, means="three is three")'
        case.show(record, device)
        case.check.outputs.append(shows(other))
        case.code(4).outputs.append(shows(other))
        return case

    return show


@pytest.mark.parametrize("outcome", ["skipped", "missing"])
def test_a_notebook_that_was_not_run_lists_all_its_checks(case, outcome):
    case.verdict()
    verdict = not_run(read_plan(case.folder / "demo.ipynb", "quick"), outcome, "it needs 2 cards")
    assert (verdict.outcome, verdict.reasons, verdict.executed, verdict.compared) == (outcome, ("it needs 2 cards",), None, 0)
    assert [(record.name, record.outcome, record.reason) for record in verdict.records] == [
        ("demo.good", outcome, "it needs 2 cards")
    ]


# ------------------------------------------------------------------------------------------------ the text that is shown


@pytest.mark.parametrize("outcome", ["skipped", "known", "fixed"])
def test_on_the_cpu_a_check_that_came_out_otherwise_than_committed_is_red(case, outcome):
    case.show(Record("demo.good", outcome, "another reason"))
    assert "cell 4 shows text that differs from the committed notebook" in red(case.verdict())


@pytest.mark.parametrize("outcome", ["skipped", "known", "fixed"])
def test_on_another_device_a_check_may_be_skipped_or_known(with_another, outcome):
    assert with_another(Record("demo.good", outcome, "why"), "gpu").verdict().reasons == ()


def test_on_another_device_what_is_red_on_the_cpu_is_red_too(with_another):
    case = with_another(PASSED, "gpu")
    case.code(2).outputs[0].data["text/plain"] = "another device"
    assert "'another device', not 'the device'" in red(case.verdict())
    case.code(2).outputs[0].data["text/plain"] = "the device"
    case.code(4).outputs[0].data["text/plain"] = "failed  demo.good  two is two"  # whatever its record says
    assert "cell 4 shows text that differs" in red(case.verdict())
    case.show(Record("demo.good", "failed", "two is two"), "gpu")
    assert "demo.good" in red(case.verdict())


@pytest.mark.parametrize(("device", "outcome"), [("cpu", "passed"), ("gpu", "failed"), ("xpu", "failed")])
def test_a_notebook_that_was_to_run_on_a_card_must_say_where_it_ran(case, device, outcome):
    case.run_context.outputs, case.code(2).outputs = [], []
    case.run(device=device)
    verdict = case.verdict()
    assert verdict.outcome == outcome
    assert device == "cpu" or f"it was to run on {device}, but did not record where it ran" in verdict.reasons
