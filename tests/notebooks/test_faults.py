"""Faults in the process that runs a notebook turn it red: the quickest of each notebook, and all that level smoke must detect.

The whole catalogue takes too long here: `xpulab selftest` tries it.
"""

from __future__ import annotations

import pytest

from tests.conftest import usual_plans
from xpulab.faults import CATALOGUE
from xpulab.faults.selftest import WITHOUT_MODELS, trials
from xpulab.harness.fork_server import kernel_environment
from xpulab.harness.plan import plan_of_checks

pytestmark = pytest.mark.notebooks

PLANS = usual_plans("quick")


def cells(fault):
    """How many cells run for the fault."""
    return sum(
        len(section.cells) for section in plan_of_checks(PLANS[fault.notebook].chapter, "quick", fault.detected_by).sections
    )


HERE = [fault for fault in CATALOGUE if fault.notebook in PLANS]  # not those of a chapter with its own environment
TRIED = [fault for fault in HERE if fault.level == "quick" and not fault.not_run]
QUICKEST = [min((fault for fault in TRIED if fault.notebook == name), key=cells) for name in sorted(PLANS)]
CASES = [(fault, "quick") for fault in QUICKEST] + [(fault, "smoke") for fault in HERE if fault.smoke]


@pytest.fixture(scope="module")
def environment():
    with kernel_environment("cpu") as variables:
        yield {**variables, **WITHOUT_MODELS}  # the stand-in of chapter 01, whatever this machine has


@pytest.mark.parametrize(("fault", "level"), CASES, ids=[f"{fault.name}-{level}" for fault, level in CASES])
def test_it_is_detected(environment, fault, level):
    (trial,) = trials([(fault, level)], 1, environment)
    assert trial.missed is None, trial
