"""The catalogue holds together: every capability has a fault, and every fault is another one that its notebook must detect."""

from __future__ import annotations

from types import SimpleNamespace

import IPython

from tests.conftest import chapters, release
from xpulab import files, ranks
from xpulab.chapters.first_lora import pretrained_faults as pretrained
from xpulab.chapters.shared.fault import CELLS
from xpulab.faults import CATALOGUE, catalogue, selftest
from xpulab.harness.plan import plan_of
from xpulab.records.record import LEVELS
from xpulab.sim.faults import parse

PLANS = {
    level: {chapter.path.stem: plan_of(chapter, level) for chapter in chapters()}
    | {f"{files.RELEASE}/{chapter.path.stem}": plan_of(chapter, level) for chapter in release()}
    for level in LEVELS
}


def planned(notebook, level="quick"):
    return {check.name for check in PLANS[level][notebook].checks}


def is_own(fault):
    """Whether it breaks nothing but xpulab's own code: then it proves this code, and not the checks that detect it."""
    own, simulated = ("xpulab:", "xpulab."), ("xpulab.sim:", "xpulab.sim.")  # the simulated accelerator counts as a device
    return all(name.startswith(own) and not name.startswith(simulated) for name in fault.breaks)


def test_each_capability_that_a_notebook_checks_has_a_fault_there():
    checked = {(name, check.split(".", 1)[0]) for name in PLANS["quick"] for check in planned(name)}
    detected = {(fault.notebook, check.split(".", 1)[0]) for fault in CATALOGUE for check in fault.detected_by}
    assert checked - detected == set()


def test_every_check_is_detected_by_a_fault_that_breaks_more_than_our_own_code():
    faults = (*CATALOGUE, *catalogue.faults_in(pretrained))
    proving = [fault for fault in faults if not is_own(fault)]
    attacked = {check for fault in proving for check in fault.detected_by + fault.smoke}
    checks = {check.name for plan in PLANS["standard"].values() for check in plan.checks}
    assert len(checks) > 400
    assert checks - attacked == set(), "give each a fault in Paddle's, PaddleNLP's or the device's functions, or remove it"


def test_every_text_that_a_fault_replaces_in_cells_is_in_one(monkeypatch):
    shell = SimpleNamespace()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.setattr(ranks, "run", ranks.run)
    for fault in CATALOGUE:
        if CELLS in fault.breaks:
            shell.input_transformers_cleanup = []
            fault.inject()
            cells = [cell.source.splitlines(keepends=True) for cell in selftest.chapter_of(fault).notebook.cells]
            for change in shell.input_transformers_cleanup:
                assert any(change(cell) != cell for cell in cells), fault.name
            assert shell.input_transformers_cleanup, fault.name


def test_every_fault_breaks_something_in_a_way_that_its_lane_has():
    for fault in CATALOGUE:
        assert bool(parse(fault.sim_faults)) == bool(fault.sim_faults), fault.name
        assert "cpu" not in fault.lanes or not fault.sim_faults, f"{fault.name}: on the CPU there are no cards to break"


def test_every_fault_must_be_detected_by_checks_that_its_notebook_plans():
    for fault in CATALOGUE:
        assert fault.detected_by and set(fault.detected_by) <= planned(fault.notebook, fault.level), fault.name
        assert set(fault.smoke) <= planned(fault.notebook, "smoke") if fault.smoke else True, fault.name


AT_SMOKE = {
    "optimizer does not step": "optimizer-does-not-step",
    "silent CPU": "trains-on-the-cpu",
    "all_reduce sums wrong": "sum-forgets-a-rank",
    "checkpoint loads zeros": "load-returns-zeros",
    "wrong wheel": "wheel-of-another-device",
    "NaN loss": "nan-loss-from-the-second-step",
    "LoRA base trains": "base-weights-train",
    "DPO sign": "margin-with-the-wrong-sign",
    "slow card": "cards-are-not-what-they-say",
    "slow link": "link-below-its-rate",
}
"""What a scheduler's prolog must detect on a node: by symptom the fault that shows it."""


def test_what_a_prolog_must_detect_is_tried_at_level_smoke():
    assert set(AT_SMOKE.values()) <= {fault.name for fault in CATALOGUE if fault.smoke}
