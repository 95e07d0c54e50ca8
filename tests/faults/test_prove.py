"""After a run a sample of faults is injected on the same node, and a fault that no check detects makes the run red."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext

import jsonschema
import pytest
from rich.console import Console

from tests.conftest import make, save, usual_plans
from xpulab import files
from xpulab.chapters.shared.fault import Fault
from xpulab.faults import CATALOGUE, selftest
from xpulab.faults.prove import candidates, prove
from xpulab.fleet.gate import gate
from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict
from xpulab.harness.report.result import Result
from xpulab.harness.report.text import format_result
from xpulab.records import proof as proofs
from xpulab.records.record import Record

pytestmark = pytest.mark.integration


def result(tmp_path, device="cpu", level="quick", seed=0, outcome="passed", left_out=()):
    """A run of the whole suite in which every check has this outcome, but for those left out."""
    verdicts = []
    for plan in usual_plans(level).values():
        records = tuple(Record(check.name, outcome, "m") for check in plan.checks if check.name not in left_out)
        verdicts.append(Verdict(plan.name, plan.title, "passed", None, records, None, (), (), None))
    return Result(Target(device, level, 2, seed), tuple(verdicts), 1.0, tmp_path)


# --------------------------------------------------------------------------------------------------------- which faults


def test_on_the_cpu_every_fault_of_its_lane_and_of_level_quick_fits_a_green_run(tmp_path):
    ran = {plan.name for plan in usual_plans("standard").values()}
    fits = (fault for fault in CATALOGUE if fault.level == "quick" and fault.notebook in ran)
    wanted = {fault.name for fault in fits if "cpu" in fault.lanes and not selftest.lacked_here(fault)}
    found = candidates(result(tmp_path, level="standard"))
    assert {fault.name for fault in found} == wanted
    assert {fault.device for fault in found} == {"cpu"}


@pytest.mark.parametrize("device", ["xpu", "gpu"])
@pytest.mark.parametrize("level", ["smoke", "quick"])
def test_on_a_card_only_faults_of_the_python_side_that_simulated_cards_detect_are_used(tmp_path, device, level):
    found = candidates(result(tmp_path, device, level))
    lanes = {fault.name: set(fault.lanes) for fault in CATALOGUE}
    assert len(found) >= 3
    assert all("sim" in lanes[fault.name] and fault.device == device and not fault.sim_faults for fault in found)


# -------------------------------------------------------------------------------------------------------- the injection


def wrong_root():
    import math

    math.sqrt = lambda x: 4.0


def nothing():
    pass


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """demo(injection): the result of a run of a small notebook, proved with one fault."""
    notebook = make('import math\ncheck.equal("demo.root", math.sqrt(9), 3.0, control=4.0)', budget=30)
    save(notebook, tmp_path / "demo.ipynb")
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr("xpulab.faults.prove.kernel_environment", lambda device: nullcontext(dict(os.environ)))
    selftest._chapter.cache_clear()
    verdict = Verdict("demo", "D", "passed", None, (Record("demo.root", "passed", "m"),), None, (), (), None)
    green = Result(Target("cpu", "quick", 1), (verdict,), 1.0, tmp_path)

    def proved(inject, checks=("demo.root",)):
        # by value: the kernel cannot import this file
        fault = Fault("wrong-root", "a demo", "demo", ("cpu",), checks, lambda: by_value(inject)())
        return prove(green, 6, 1, Console(quiet=True), (fault,))

    return proved


def by_value(function):
    """The same function as one that no module has."""
    from types import FunctionType

    return FunctionType(function.__code__, {"__builtins__": __builtins__})


def test_a_detected_fault_leaves_the_run_green_and_is_in_prove_json_and_the_page(demo, tmp_path):
    done = demo(wrong_root)
    assert done.is_green and done.proof.faults[0].detected_by == ("demo.root",)
    stored = json.loads((tmp_path / "prove.json").read_text())
    schema = json.loads(files.data("schema", "prove.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(stored)
    assert proofs.from_json(stored) == done.proof
    page = (tmp_path / "index.html").read_text()
    assert "READY" in page and "1 faults injected on this node, each detected" in page


def test_a_missed_fault_makes_the_run_red_everywhere(demo, tmp_path):
    done = demo(nothing)
    reason = "1 of 1 injected faults were not detected: wrong-root"
    assert not done.is_green and done.proof.reason.endswith(reason)
    assert "MISSED   demo" in format_result(done) and reason in format_result(done)
    stored = json.loads((tmp_path / "result.json").read_text())
    assert (stored["green"], stored["outcome"], stored["proof"]["missed"]) == (False, "failed", ["wrong-root"])
    schema = json.loads(files.data("schema", "result.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(stored)
    assert "NOT READY" in (tmp_path / "index.html").read_text()
    assert '<failure message="a demo">' in (tmp_path / "junit.xml").read_text()
    assert reason in gate(tmp_path, 24).line


def test_a_run_to_which_no_fault_fits_is_not_proved(demo):
    done = demo(wrong_root, checks=("demo.other",))
    assert not done.is_green and "nothing was proved" in done.proof.reason
