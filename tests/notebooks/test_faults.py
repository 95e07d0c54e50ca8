"""Faults that training really has, one at a time, in the process that runs the committed notebook: each turns it red."""

from __future__ import annotations

import pytest

from xpulab import files
from xpulab.faults import CATALOGUE
from xpulab.faults.fault import Fault
from xpulab.harness.plan import read_plan


class _Seen:
    fault: Fault

    @pytest.fixture(scope="class")
    def outcome(self, run_notebooks):
        fault = self.fault
        return run_notebooks(fault.notebook, fault=fault.breaks, device=fault.device, sim_faults=fault.sim_faults)

    def test_the_run_is_red(self, outcome):
        assert (outcome.exit_code, outcome.result["outcome"]) == (1, "failed")

    def test_it_is_seen_by_the_checks_that_are_about_it(self, outcome):
        assert set(self.fault.seen_by) <= outcome.red(), outcome.printed

    def test_it_takes_no_check_away_unless_it_ends_the_notebook(self, outcome):
        notebook = outcome.notebook(self.fault.notebook)
        missing = [check["name"] for check in notebook["checks"] if check["outcome"] == "missing"]
        assert bool(missing) == bool(self.fault.says), missing
        assert self.fault.says in notebook["reason"].lower()


# A class each, so that the faults are spread over the processes that run the tests.
globals().update({f"Test-{fault.name}": type(f"Test-{fault.name}", (_Seen,), {"fault": fault}) for fault in CATALOGUE})


def test_names_are_unique():
    assert len({fault.name for fault in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_the_checks_that_must_see_it_are_planned(fault):
    planned = read_plan(files.NOTEBOOKS / f"{fault.notebook}.ipynb", "quick").checks
    assert fault.seen_by and set(fault.seen_by) <= {check.name for check in planned}
