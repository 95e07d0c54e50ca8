"""After a run a sample of faults is injected on the same node, and each must be detected."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext

import jsonschema
import pytest

from tests.conftest import make, save, usual_plans
from xpulab import files
from xpulab.chapters.shared.fault import Fault
from xpulab.faults import CATALOGUE, selftest
from xpulab.faults.prove import candidates, prove
from xpulab.harness.execute import RunOptions
from xpulab.harness.judge import Group, Verdict
from xpulab.harness.report.result import Result
from xpulab.records.record import Record

pytestmark = pytest.mark.integration


def result(tmp_path, device="cpu", level="quick", seed=0, outcome="passed", left_out=()):
    """A run of the whole suite in which every check has this outcome, but for those left out."""
    verdicts = []
    for plan in usual_plans(level).values():
        records = tuple(Record(check.name, outcome, "m") for check in plan.checks if check.name not in left_out)
        verdicts.append(Verdict(plan.name, "A demo", "passed", None, (Group("", "proof", records),)))
    return Result(RunOptions(device, level, 2, seed), tuple(verdicts), 1.0, tmp_path)


# --------------------------------------------------------------------------------------------------------- which faults


def test_on_the_cpu_every_fault_of_its_lane_and_of_level_quick_fits_a_green_run(tmp_path):
    ran = {plan.name for plan in usual_plans("standard").values()}
    fits = (fault for fault in CATALOGUE if fault.level == "quick" and fault.notebook in ran)
    wanted = {fault.name for fault in fits if "cpu" in fault.lanes}
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
def demo(tmp_path, monkeypatch, capsys):
    """demo(injection, checks): whether a run of a small notebook is proved with one fault, and what was printed."""
    notebook = make('import math\ncheck.equal("demo.root", math.sqrt(9), 3.0, control=4.0)', budget=30)
    save(notebook, tmp_path / "demo.ipynb")
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr("xpulab.faults.prove.kernel_environment", lambda device: nullcontext(dict(os.environ)))
    selftest._chapter.cache_clear()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(files.ROOT)]))  # kernels ignore this folder
    verdict = Verdict("demo", "D", "passed", None, (Group("", "proof", (Record("demo.root", "passed", "m"),)),))
    green = Result(RunOptions("cpu", "quick", 1), (verdict,), 1.0, tmp_path)

    def proved(inject, checks):
        # by value: the kernel cannot import this file
        fault = Fault("wrong-root", "a demo", "demo", ("cpu",), checks, lambda: by_value(inject)())
        return prove(green, 6, 1, (fault,)), capsys.readouterr().out

    return proved


def by_value(function):
    """The same function as one that no module has."""
    from types import FunctionType

    return FunctionType(function.__code__, {"__builtins__": __builtins__})


@pytest.mark.parametrize(
    ("inject", "checks", "green", "said"),
    [
        (wrong_root, ("demo.root",), True, "1 of 1 faults detected"),
        (nothing, ("demo.root",), False, "not detected by demo.root; the notebook is green"),
        (wrong_root, ("demo.other",), False, "nothing was proved"),
    ],
    ids=["detected", "missed", "none that fits"],
)
def test_it_is_green_when_a_fault_was_injected_and_each_was_detected(demo, tmp_path, inject, checks, green, said):
    done, printed = demo(inject, checks)
    assert (done, said in printed) == (green, True), printed
    stored = json.loads((tmp_path / "prove.json").read_text())
    schema = json.loads(files.data("schema", "prove.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(stored)
    assert (stored["green"], len(stored["faults"])) == (green, checks == ("demo.root",))
