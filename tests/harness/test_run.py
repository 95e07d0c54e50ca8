"""Which notebooks of a run are not started at all."""

from __future__ import annotations

import pytest
from nbformat import v4
from rich.console import Console

from tests.conftest import GOOD
from xpulab.harness import fork_server
from xpulab.harness import run as harness
from xpulab.harness.execute import RunOptions
from xpulab.harness.plan import read_plan

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("device", ["xpu", "gpu", "sim"])
def test_a_notebook_that_needs_more_cards_than_it_may_use_is_skipped_with_the_reason(put, tmp_path, device):
    plan = read_plan(put("two", GOOD, cards=2), "quick")
    harness.prepare(tmp_path / "out")
    with fork_server.started(device, cold=True) as server:
        outcome = harness.run([plan], RunOptions(device, "quick", 1), 1, tmp_path / "out", Console(quiet=True), server)
    (verdict,) = outcome.result.verdicts
    assert (verdict.outcome, verdict.executed) == ("skipped", None)
    assert verdict.reason == "it needs 2 cards, and --cards allows 1"
    assert outcome.result.outcome == "failed", "a run that compared nothing is not green"


@pytest.mark.parametrize(("seed", "committed", "outcome"), [(0, "5", "failed"), (7, "0", "passed")])
def test_a_notebook_gets_the_seed_and_its_text_is_compared_with_the_committed_one_for_seed_0(
    put, tmp_path, seed, committed, outcome
):
    shown = v4.new_code_cell("print(seed)", outputs=[v4.new_output("stream", text=f"{committed}\n")], execution_count=1)
    plan = read_plan(put("one", shown, f'check.equal("demo.seed", seed, {seed}, control=99)'), "quick")
    harness.prepare(tmp_path / "out")
    asked = RunOptions("cpu", "quick", 1, seed)
    with fork_server.started("cpu", cold=True) as server:
        [verdict] = harness.run([plan], asked, 1, tmp_path / "out", Console(quiet=True), server).result.verdicts
    assert (verdict.outcome, verdict.run.seed, verdict.records[0].outcome) == (outcome, seed, "passed")
