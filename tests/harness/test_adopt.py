"""Only the outputs of a green run on the CPU, made from the very same cells, are taken over into notebooks/."""

from __future__ import annotations

import copy
import importlib.util
import json
from dataclasses import asdict

import nbformat
import pytest
from nbformat import v4

from tests.conftest import GOOD
from xpulab import files
from xpulab.harness import report
from xpulab.harness.execute import Run, RunOptions
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan
from xpulab.harness.report.result import Result
from xpulab.records.record import Record, RunContext

DIGEST = "0123456789abcdef"
PASSED = Record("demo.good", "passed", "two is two", control="rejected", digest=DIGEST)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("adopt_outputs", files.ROOT / "tools" / "adopt_outputs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Adoption:
    """Committed notebooks, what papermill made of them, and the reports of that run."""

    def __init__(self, script, make, folder):
        self.script, self.folder, self.notebooks = script, folder, folder / "notebooks"
        self.executed = {name: self._execute(make(GOOD), name) for name in ("01_one", "02_two")}

    def _execute(self, notebook, name):
        (self.folder / "run" / "notebooks").mkdir(parents=True, exist_ok=True)
        self.notebooks.mkdir(exist_ok=True)
        nbformat.write(notebook, self.notebooks / f"{name}.ipynb")
        executed = copy.deepcopy(notebook)
        injected = v4.new_code_cell('device = "cpu"', metadata={"tags": ["injected-parameters"]}, execution_count=2)
        executed.cells.insert(1, injected)
        code = [cell for cell in executed.cells if cell.cell_type == "code"]
        for count, cell in enumerate(code, start=1):
            cell.metadata["papermill"] = {"duration": 1.0, "status": "completed"}
            cell.execution_count = count
        executed.metadata["papermill"] = {"duration": 5.0}
        executed.metadata["xpulab"]["run"] = asdict(Run("cpu", "quick", 1, 2.0, 30.0, None))
        line = {"text/plain": "passed  demo.good  two is two"}
        executed.cells[2].outputs = [v4.new_output("display_data", data={}, metadata=RunContext("cpu", 1).to_metadata())]
        executed.cells[4].outputs = [
            v4.new_output("display_data", data=line, metadata=PASSED.to_metadata()),
            v4.new_output("execute_result", data={"text/plain": "4"}, execution_count=4),
        ]
        return executed

    def adopt(self, device="cpu", folder=()):
        verdicts = []
        for name, notebook in self.executed.items():
            executed = self.folder / "run" / "notebooks" / f"{name}.ipynb"
            nbformat.write(notebook, executed)
            verdicts.append(judge(read_plan(self.notebooks / f"{name}.ipynb", "quick"), executed))
        report.write(Result(RunOptions(device, "quick", 1), tuple(verdicts), 3.0, self.folder / "run"))
        self.script.main(self.folder / "run", *folder)

    def committed(self):
        return [nbformat.read(self.notebooks / f"{name}.ipynb", as_version=4) for name in self.executed]

    def refusal(self, **options):
        before = self.committed()
        with pytest.raises(SystemExit) as error:
            self.adopt(**options)
        assert self.committed() == before, "what was refused was taken over"
        return str(error.value)


@pytest.fixture
def adoption(script, book, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path / "notebooks")
    return Adoption(script, book, tmp_path)


def test_outputs_of_a_green_run_are_taken_over_without_papermills_traces(adoption):
    sources = [[cell.source for cell in notebook.cells] for notebook in adoption.committed()]
    adoption.adopt()
    for notebook, before in zip(adoption.committed(), sources, strict=True):
        assert [cell.source for cell in notebook.cells] == before
        assert (
            DIGEST not in json.dumps(notebook)
            and "papermill" not in json.dumps(notebook)
            and "run" not in notebook.metadata.xpulab
        )
        assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == [1, 2, 3, 4]
        assert notebook.cells[3].outputs[0].data["text/plain"] == "passed  demo.good  two is two"
        assert notebook.cells[3].outputs[1].execution_count == 3


def show(record):
    return lambda two: setattr(two.cells[4].outputs[0], "metadata", record.to_metadata())


def raise_in_the_last_cell(two):
    two.cells[5].outputs = [v4.new_output("error", ename="OSError", evalue="disk full", traceback=[])]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda two: two.cells[4].update(source=f"{GOOD}  # edited"), "02_two"),
        (show(Record("demo.good", "failed", "two is two", control="rejected")), "demo.good"),
        (show(Record("demo.good", "skipped", "no reason")), "nothing was compared"),
        (lambda two: two.cells[4].update(outputs=[]), "demo.good"),
        (raise_in_the_last_cell, "OSError"),
        (lambda two: two.metadata["xpulab"]["run"].update(stopped="interrupted"), "interrupted"),
    ],
    ids=["other sources", "red", "nothing compared", "missing", "raised though its checks passed", "stopped"],
)
def test_a_run_that_is_not_green_is_refused_and_nothing_at_all_is_taken_over(adoption, change, named):
    change(adoption.executed["02_two"])
    refusal = adoption.refusal()
    assert named in refusal and "02_two" in refusal
