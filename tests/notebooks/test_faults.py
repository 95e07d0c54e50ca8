"""Faults that training really has, some of each notebook, in the process that runs it: each turns it red."""

from __future__ import annotations

import pytest

from xpulab import files
from xpulab.faults import CATALOGUE
from xpulab.faults.fault import Fault
from xpulab.faults.selftest import try_fault
from xpulab.harness.plan import read_plan
from xpulab.harness.run import kernel_environment


@pytest.fixture(scope="session")
def environment():
    with kernel_environment("cpu") as variables:
        yield variables


class _Caught:
    fault: Fault

    def test_it_is_caught(self, environment):
        trial = try_fault(self.fault, environment)
        assert trial.survived is None, trial


def _first_of_each_notebook(count):
    notebooks = {fault.notebook for fault in CATALOGUE}
    return [fault for name in sorted(notebooks) for fault in [each for each in CATALOGUE if each.notebook == name][:count]]


# The whole catalogue takes too long here; `xpulab selftest` tries it. A class each, so that they are spread over the processes
# that run the tests.
globals().update(
    {f"Test-{fault.name}": type(f"Test-{fault.name}", (_Caught,), {"fault": fault}) for fault in _first_of_each_notebook(4)}
)


def test_names_are_unique():
    assert len({fault.name for fault in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_the_checks_that_must_see_it_are_planned(fault):
    planned = read_plan(files.NOTEBOOKS / f"{fault.notebook}.ipynb", "quick").checks
    assert fault.seen_by and set(fault.seen_by) <= {check.name for check in planned}
