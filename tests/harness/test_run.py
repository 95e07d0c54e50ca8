"""Which notebooks of a run are not started at all."""

from __future__ import annotations

import pytest
from rich.console import Console

from xpulab.harness import run as harness
from xpulab.harness.execute import Target
from xpulab.harness.plan import read_plan

pytestmark = pytest.mark.integration

GOOD = 'check.equal("demo.good", 2, 2, control=3)'


@pytest.mark.parametrize("device", ["xpu", "gpu", "sim"])
def test_a_notebook_that_needs_more_cards_than_it_may_use_is_skipped_with_the_reason(put, tmp_path, device):
    plan = read_plan(put("two", GOOD, cards=2), "quick")
    harness.prepare(tmp_path / "out")
    outcome = harness.run([plan], Target(device, "quick", 1), 1, tmp_path / "out", Console(quiet=True), cold=True)
    (verdict,) = outcome.result.verdicts
    assert (verdict.outcome, verdict.executed) == ("skipped", None)
    assert verdict.reason == "it needs 2 cards, and --cards allows 1"
    assert outcome.result.outcome == "failed", "a run that compared nothing is not green"


@pytest.mark.parametrize(("device", "cards"), [("cpu", 1), ("sim", 2), ("xpu", 4)])
def test_ranks_are_processes_on_the_cpu_and_cards_elsewhere(put, device, cards):
    assert harness._skipped(read_plan(put("two", GOOD, cards=2), "quick"), Target(device, "quick", cards)) is None
