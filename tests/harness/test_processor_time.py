"""Executed cells hold the processor time that a warm kernel reported; committed ones, and those of cold kernels, hold none."""

from __future__ import annotations

import os

import nbformat
import pytest

from tests.conftest import GOOD
from xpulab import warm
from xpulab.harness.execute import Execution, RunOptions
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan
from xpulab.records.processor import from_metadata
from xpulab.warm import kernels

pytestmark = pytest.mark.integration

COMPUTE = "import time\nwhile time.process_time() < 1: pass"


@pytest.fixture
def executed(put, tmp_path):
    """executed(environment): the verdict on a notebook that computes, and what was measured of each code cell."""

    def run(environment):
        plan = read_plan(put("computes", COMPUTE, GOOD), "quick")
        (tmp_path / "out").mkdir()
        execution = Execution(RunOptions("cpu", "quick", 1), tmp_path / "out", environment)
        [(_, path)] = execution.run([plan], 1)
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        return judge(plan, path), [from_metadata(cell.metadata) for cell in cells]

    return run


def test_every_cell_of_a_warm_kernel_holds_what_it_used_and_is_judged_as_before(executed):
    with warm.ForkServer(("ipykernel.kernelapp",)) as fork_server:
        verdict, used = executed(kernels.environment(fork_server, os.environ))
    assert None not in used and max(each.kernel for each in used) > 0.1
    assert verdict.reasons == ()
