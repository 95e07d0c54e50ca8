"""Faults in the process that runs a notebook turn it red: one of each notebook, and all that level smoke must detect.

The whole catalogue takes too long here: `xpulab selftest` tries it.
"""

from __future__ import annotations

import pytest

from xpulab.faults import CATALOGUE
from xpulab.faults.selftest import try_fault
from xpulab.harness.run import kernel_environment

pytestmark = pytest.mark.notebooks

FIRST = {fault.notebook: fault for fault in reversed(CATALOGUE)}
CASES = [(fault, "quick") for fault in FIRST.values()] + [(fault, "smoke") for fault in CATALOGUE if fault.smoke]


@pytest.fixture(scope="module")
def environment():
    with kernel_environment("cpu") as variables:
        yield variables


@pytest.mark.parametrize(("fault", "level"), CASES, ids=[f"{fault.name}-{level}" for fault, level in CASES])
def test_it_is_detected(environment, fault, level):
    trial = try_fault(fault, environment, level)
    assert trial.missed is None, trial
